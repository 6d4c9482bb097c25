"""The tokens behind runs: kept as long as somebody will look, given out as far as may be shown, lost with their run."""

import math
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from quantwatch.errors import StoreError
from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.run import RunRecord
from quantwatch.flow.tokens import Candidate, PromptSeen, PromptsShown, TokenSeen, TokensSeen
from quantwatch.flow.verdict import Quality
from quantwatch.record.archive import Archive
from quantwatch.record.care import check
from quantwatch.record.columns import LARGEST, packed, unpacked
from quantwatch.record.evidence import KEPT, Kind, ids_in
from quantwatch.record.salvage import Count, salvage
from quantwatch.record.steps import STEPS, tokens_are_kept
from quantwatch.record.store import Store
from support.stored import after, at, decision, opened, run, set_report

SOUND = TokenSeen(
    position=7,
    id=5,
    kl=0.25,
    logprob_baseline=-0.5,
    logprob_node=-1.25,
    baseline=(Candidate(5, -0.5), Candidate(9, -1.5)),
    node=(Candidate(9, -0.75), Candidate(5, -1.25)),
    tail_baseline=0.125,
    tail_node=0.0625,
)
BROKEN = TokenSeen(8, 6, None, -0.25, None, (Candidate(6, -0.25),), (), 0.5, 1.0, mark="non_finite: 2 of 2 values")


def prompt(name: str, kl: float, *tokens: TokenSeen) -> PromptSeen:
    return PromptSeen(name, ProbeMode.PROMPT_SCORING, 6, kl, kl, tokens or (SOUND,))


SEEN = TokensSeen((prompt("math-2", math.nan, BROKEN), prompt("math-1", 0.25, SOUND, BROKEN)), 24)


def kept(store: Store, record: RunRecord, seen: TokensSeen = SEEN) -> str:
    store.add_run(record, after(record))
    store.keep_tokens(record.id, seen, tokenizer="t")
    return record.id


def tokens(folder: Path, run_id: str, shown: PromptsShown = PromptsShown.IDS) -> TokensSeen | None:
    with Archive.open(folder / "q.db") as archive:
        return archive.tokens(run_id, shown=shown)


def with_tokens(folder: Path) -> list[str]:
    """Runs that have theirs, in the order of their ids."""
    with closing(sqlite3.connect(folder / "q.db")) as other:
        return [row[0] for row in other.execute("SELECT DISTINCT run FROM token_evidence ORDER BY run")]


def test_tokens_come_back_as_they_were_the_worst_prompt_first(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        made = kept(store, run(1))

    found = tokens(tmp_path, made)

    assert found is not None
    assert repr(found) == repr(SEEN)  # NaN equals nothing
    assert found.prompts[1] == SEEN.prompts[1]
    assert tokens(tmp_path, run(2).id) is None


def test_what_may_not_be_shown_now_is_not_given_out(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        made = kept(store, run(1))
        store.keep_texts("t", {5: " the", 9: "\ufffd", 77: "unused"})
        store.keep_texts("another", {5: "wrong", 6: "wrong"})

    full, ids = tokens(tmp_path, made, PromptsShown.FULL), tokens(tmp_path, made, PromptsShown.IDS)

    assert full is not None
    assert ids is not None
    assert full.texts == {5: " the", 9: "\ufffd"}
    assert (ids.texts, ids.prompts[1]) == ({}, full.prompts[1])
    assert tokens(tmp_path, made, PromptsShown.OFF) is None


def test_of_sound_runs_only_the_newest_of_each_target_and_task_set_keeps_its_tokens(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        for number, quality in enumerate((Quality.OK, Quality.OK, Quality.OK), 1):
            kept(store, run(number, quality=quality))
        other_set, other_target = run(4, task_set="sql"), run(5, target="int8-b")
        for one in (other_set, other_target):
            kept(store, one)

    assert with_tokens(tmp_path) == [run(3).id, other_set.id, other_target.id]


def test_runs_to_look_into_keep_their_tokens_beside_the_newest_sound_one(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        qualities = (Quality.OK, Quality.WARN, Quality.DEGRADED, Quality.CORRUPTED, Quality.OK)
        for number, quality in enumerate(qualities, 1):
            kept(store, run(number, quality=quality))

    assert with_tokens(tmp_path) == [run(number).id for number in (2, 3, 4, 5)]


@pytest.mark.parametrize("useless", [Quality.INVALID, Quality.UNKNOWN, Quality.SKIPPED])
def test_runs_that_tell_nothing_take_the_place_of_their_kind_alone(tmp_path: Path, useless: Quality) -> None:
    with opened(tmp_path) as store:
        for number, quality in enumerate((Quality.OK, useless, useless, Quality.WARN), 1):
            kept(store, run(number, quality=quality))
        assert with_tokens(tmp_path) == [run(number).id for number in (1, 3, 4)]
        kept(store, run(5, quality=Quality.OK))

    assert with_tokens(tmp_path) == [run(number).id for number in (3, 4, 5)]


@pytest.mark.parametrize("found", [Quality.DEGRADED, Quality.CORRUPTED])
def test_a_breach_that_was_not_believed_keeps_its_tokens_as_breaches_do(tmp_path: Path, found: Quality) -> None:
    with opened(tmp_path) as store:
        kept(store, run(1, quality=Quality.INVALID, report=set_report(quality=found)))
        for number, report in ((2, set_report()), (3, None), (4, set_report(quality=Quality.INVALID))):
            kept(store, run(number, quality=Quality.INVALID, report=report))

    assert with_tokens(tmp_path) == [run(1).id, run(4).id]


@pytest.mark.parametrize("quality", [Quality.INCONCLUSIVE, Quality.INVALID])
def test_runs_that_are_cut_short_do_not_drive_out_broken_numbers_that_were_seen_once(
    tmp_path: Path, quality: Quality
) -> None:
    report = set_report(quality=Quality.INCONCLUSIVE)
    once = replace(report, observation=replace(report.observation, corruption="NaN in its reply"))
    most = KEPT[Kind.OPEN]
    with opened(tmp_path) as store:
        kept(store, run(1, quality=quality, report=once))
        for number in range(2, most + 4):
            kept(store, run(number, quality=Quality.INCONCLUSIVE))

    assert with_tokens(tmp_path) == [run(number).id for number in (1, *range(4, most + 4))]


@pytest.mark.parametrize(
    ("quality", "kind"),
    [(Quality.DEGRADED, Kind.BREACH), (Quality.WARN, Kind.WARN), (Quality.INCONCLUSIVE, Kind.OPEN)],
)
def test_what_comes_for_months_keeps_the_newest_and_those_that_were_decided_on(
    tmp_path: Path, quality: Quality, kind: Kind
) -> None:
    small, most = TokensSeen((prompt("math-1", 0.25),), 24), KEPT[kind]
    with opened(tmp_path) as store:
        store.decide(decision(run=run(2).id))
        for number in range(1, most + 4):
            kept(store, run(number, quality=quality), small)

    assert with_tokens(tmp_path) == [run(number).id for number in (2, *range(4, most + 4))]


def test_all_kinds_together_are_as_many_runs_as_the_documentation_says() -> None:
    said = (Path(__file__).resolve().parents[2] / "docs" / "daemon.md").read_text("utf-8")
    assert f"That is {sum(KEPT.values())} runs at most" in said


def test_tokens_of_no_run_and_of_no_prompt_are_not_kept(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.keep_tokens("r-none", SEEN, tokenizer="t")
        kept(store, run(1), TokensSeen((), 24))

        assert store.without_text("t", [3, 1]) == [3, 1]
        store.keep_texts("t", {})
    assert with_tokens(tmp_path) == []


def test_tokens_are_kept_once(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        made = kept(store, run(1))
        store.keep_tokens(made, TokensSeen(SEEN.prompts[1:], 3), tokenizer="other")

    found = tokens(tmp_path, made)
    assert found is not None
    assert found.measured == 24
    assert found.prompts[0].prompt_id == "math-2"


def test_a_text_takes_the_place_of_an_older_one_and_many_ids_are_asked_about(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.keep_texts("t", {1: "a", 2: "half \ud83d"})
        store.keep_texts("t", {1: "b"})

        assert store.without_text("t", [5000, *range(2000)]) == [5000, 0, *range(3, 2000)]
        assert store.without_text("u", [1]) == [1]


def test_golden_tokens_are_the_first_that_a_text_is_wanted_for() -> None:
    assert ids_in(SEEN.prompts) == (6, 5, 9)


def test_tokens_go_with_their_run_and_texts_with_the_last_run_of_their_tokenizer(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        old = kept(store, run(1, quality=Quality.DEGRADED))
        store.keep_texts("t", {5: " the"})
        newer = run(2)
        store.add_run(newer, after(newer))
        store.keep_tokens(newer.id, SEEN, tokenizer="u")
        store.keep_texts("u", {5: "die"})

        store.prune(runs_before=at(1.5), decisions_before=at(0))

        assert store.without_text("t", [5]) == [5]
        assert store.without_text("u", [5]) == []
    assert tokens(tmp_path, old) is None
    assert with_tokens(tmp_path) == [newer.id]


# ------------------------------------------------------------------ files


def test_an_older_store_gets_the_same_tables_as_a_new_one(tmp_path: Path) -> None:
    opened(tmp_path, name="new.db").close()
    with opened(tmp_path) as store:
        store.add_run(run(1), after(run(1)))
    with closing(sqlite3.connect(tmp_path / "q.db")) as other, other:
        other.execute("DROP TABLE token_evidence")
        other.execute("DROP TABLE token_texts")
        other.execute("UPDATE meta SET value = '4' WHERE key = 'schema'")

    with opened(tmp_path) as store:
        kept(store, run(2))
        store.keep_texts("t", {5: " the"})

    assert STEPS[3] is tokens_are_kept
    assert columns(tmp_path / "q.db") == columns(tmp_path / "new.db")
    assert with_tokens(tmp_path) == [run(2).id]


def columns(path: Path) -> list[object]:
    with closing(sqlite3.connect(path)) as other:
        told = [
            other.execute(f"PRAGMA {what}({table})").fetchall()
            for table in ("token_evidence", "token_texts")
            for what in ("table_info", "foreign_key_list")
        ]
        return [*told]


def test_tokens_are_salvaged_and_odd_ones_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        made = kept(store, run(1))
        store.keep_texts("t", {5: " the"})
    with closing(sqlite3.connect(tmp_path / "q.db")) as other, other:
        other.execute("UPDATE token_evidence SET document = x'00' WHERE place = 1")
    opened(tmp_path, name="new.db").close()

    counts = salvage(tmp_path / "q.db", tmp_path / "new.db")

    assert counts["token_evidence"] == Count(saved=1, refused=1)
    assert counts["token_texts"] == Count(saved=1)
    with Archive.open(tmp_path / "new.db") as archive:
        found = archive.tokens(made, shown=PromptsShown.FULL)
    assert found is not None
    assert [one.prompt_id for one in found.prompts] == ["math-2"]


@pytest.mark.parametrize("document", [b"", b"\0", packed([])[:-1], packed({"prompt": "x"}), "text", packed([1])])
def test_what_cannot_be_read_is_said(tmp_path: Path, document: object) -> None:
    with opened(tmp_path) as store:
        made = kept(store, run(1))
    assert check(tmp_path / "q.db", now=at(60)) == []
    with closing(sqlite3.connect(tmp_path / "q.db")) as other, other:
        other.execute("UPDATE token_evidence SET document = ? WHERE place = 0", (document,))

    with pytest.raises(StoreError, match="cannot be read"):
        tokens(tmp_path, made)

    assert check(tmp_path / "q.db", now=at(60)) == [f"the tokens of math-2 in the run {made} cannot be read"]


def test_a_document_that_blows_up_is_refused() -> None:
    with pytest.raises(ValueError, match="too large"):
        unpacked(packed("a" * LARGEST))
