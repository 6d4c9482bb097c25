"""What a report gathers, which causes it finds, and what it advises."""

import shlex
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from quantwatch.flow.canary import Canary, Seen, Sign
from quantwatch.flow.decision import Action, Brake, Objection, Outcome, Result, Ruling
from quantwatch.flow.divergence import Dimension
from quantwatch.flow.load import Load
from quantwatch.flow.notice import Matter, Notice, Topic
from quantwatch.flow.observation import Missing, Observation
from quantwatch.flow.run import RunRecord
from quantwatch.flow.tokens import PromptsShown
from quantwatch.flow.verdict import Quality
from quantwatch.pages.advice import REMEDIES, Cause
from quantwatch.pages.advice_zh import CHINESE, in_language
from quantwatch.pages.gather import incident_of, period_of
from quantwatch.pages.incident import Incident, Kind, Number, Tone, tone_of
from quantwatch.pages.report_file import written
from quantwatch.pages.view import incident_values
from quantwatch.record.archive import Archive
from quantwatch.record.cases import OrderCount
from quantwatch.record.notices import Change
from quantwatch.record.store import Store
from support.incidents import UPGRADED, bad_run, incident_store, part
from support.stored import BASELINE, NODE, after, at, decision, divergence, intent, leaving, opened, run, set_report
from support.typed import refusal

ROOT = Path(__file__).resolve().parents[2]
NOW = datetime(2026, 1, 2, tzinfo=UTC)


def gathered(store: Path, wanted: str, shown: PromptsShown = PromptsShown.FULL) -> Incident:
    with Archive.open(store) as archive:
        return incident_of(archive, archive.find(wanted), now=NOW, shown=shown)


def causes(one: Incident) -> list[Cause]:
    return [each.cause for each in one.advice]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store for all that only read it."""
    return incident_store(tmp_path_factory.mktemp("incident"))


# ------------------------------------------------------------------ what is gathered


def test_an_incident_is_the_same_by_its_run_and_by_its_decision(store: Path) -> None:
    by_run, by_decision = gathered(store, bad_run().id), gathered(store, "d-1")
    assert by_run.run == by_decision.run
    assert by_run.numbers == by_decision.numbers
    assert [one.id for one in by_run.decisions] == ["d-held", "d-1"]
    assert by_decision.decision is not None
    assert (by_run.subject, by_decision.subject) == (bad_run().id, "d-1")
    assert by_decision.decision.id == "d-1"


def test_numbers_come_with_interval_limits_and_how_often_over(store: Path) -> None:
    kl = gathered(store, bad_run().id).numbers[0]
    assert (kl.value, kl.low, kl.high) == pytest.approx((0.12, 0.108, 0.132))
    assert (kl.warn, kl.critical, kl.verdict) == (0.01, 0.05, Quality.DEGRADED)
    assert kl.times == pytest.approx(2.4)


@pytest.mark.parametrize(("value", "critical"), [(None, 0.05), (0.1, None), (0.1, 0.0)])
def test_nothing_is_so_many_times_a_limit_that_is_not_there(value: float | None, critical: float | None) -> None:
    assert Number("kl_mean", "mean KL", value, critical=critical).times is None


def test_the_timeline_tells_cause_before_effect(store: Path) -> None:
    one = gathered(store, "d-1")
    kinds = [each.kind for each in one.timeline if each.at >= at(20)]
    measured = [Kind.RUN, Kind.DECISION, Kind.CHANGE, Kind.NOTICE]
    carried_out = [Kind.DECISION, Kind.ORDER, Kind.CHANGE, Kind.OUTCOME, Kind.CHANGE]
    assert kinds == [*measured, *carried_out, Kind.RUN, Kind.DECISION]
    assert [each.at for each in one.timeline] == sorted(each.at for each in one.timeline)
    assert [each.tone for each in one.timeline if each.acted] == [
        Tone.BAD,
        Tone.WARN,
    ]  # isolated; no answer


def test_what_was_sent_and_answered_holds_no_secret(store: Path) -> None:
    (sent,) = gathered(store, "d-1").exchanges
    assert (sent.result, sent.attempts) == ("verified", 1)
    assert dict(sent.sent)["fallback"] == "http://fp16:8000"
    assert sent.detail == "read back as isolated at http://***@gateway:8080"


def test_the_last_good_run_is_what_is_compared_with(store: Path) -> None:
    one = gathered(store, "d-1")
    assert one.sound is not None
    assert one.sound.id == run(19).id
    assert {(each.place, each.factor) for each in one.changed} == {
        ("node", "version"),
        ("node", "started"),
        ("measurement", "seed"),
    }
    assert len(one.course) == 21
    assert [each.id for each in one.course][-2:] == [bad_run().id, run(40).id]


def test_the_worst_parts_stand_first(store: Path) -> None:
    parts = gathered(store, "d-1").parts
    assert [each.name for each in parts][:2] == ["length long", "language zh"]
    assert parts[0].times == pytest.approx(0.31 / 0.12)


@pytest.mark.parametrize(("shown", "texts"), [(PromptsShown.FULL, True), (PromptsShown.IDS, False)])
def test_tokens_are_given_as_far_as_may_be_seen(shown: PromptsShown, *, texts: bool, store: Path) -> None:
    tokens = gathered(store, "d-1", shown).tokens
    assert tokens is not None
    assert bool(tokens.texts) is texts


def test_tokens_are_left_out_where_nothing_may_be_seen(store: Path) -> None:
    assert gathered(store, "d-1", PromptsShown.OFF).tokens is None


def test_answers_of_the_baseline_are_counted(store: Path) -> None:
    kept = gathered(store, "d-1").yardstick
    assert (kept.answers, kept.first, kept.last, kept.doubts) == (3, at(0), at(2), ())


def test_a_decision_without_a_run_is_told_as_far_as_it_goes(tmp_path: Path) -> None:
    with opened(tmp_path) as kept:
        kept.decide(decision("d-9", run=None, task_set=None))
    one = gathered(tmp_path / "q.db", "d-9")
    assert (one.run, one.quality, one.numbers, one.course) == (None, None, (), ())
    assert one.pool == "llama"


# ------------------------------------------------------------------ which causes fit


def told(folder: Path, record: RunRecord, *, before: RunRecord | None = None) -> Incident:
    """The incident of a run, after another one or none."""
    with opened(folder) as kept:
        for one in (before, record):
            if one is not None:
                kept.add_run(one, after(one))
    return gathered(folder / "q.db", record.id)


def degraded(**changes: Any) -> RunRecord:
    """A breach that differs from run 1 in nothing but the draw."""
    return run(2, 0.12, quality=Quality.DEGRADED, **{"report": reported(), **changes})


def reported(*parts: Any, **changes: Any) -> Any:
    numbers = replace(divergence(0.12), slices=parts)
    return set_report(0.12, quality=Quality.DEGRADED, **{"divergence": numbers, **changes})


def seen(sign: Sign) -> Any:
    return reported(observation=Observation(24, 24, canary=Canary(4, 4, (Seen(sign, f"it shows {sign}", "p"),))))


CASES: list[tuple[Callable[[], RunRecord], Cause]] = [
    (degraded, Cause.NOTHING_CHANGED),
    (lambda: degraded(node=replace(NODE, version="0.33.0")), Cause.VERSION),
    (lambda: degraded(node=replace(NODE, root="acme/other")), Cause.MODEL),
    (lambda: degraded(node=replace(NODE, tokenizer="u" * 8)), Cause.TOKENIZER),
    (lambda: degraded(node=replace(NODE, started=1_760_001_000.0)), Cause.RESTART),
    (lambda: degraded(baseline=replace(BASELINE, version="0.31.0")), Cause.YARDSTICK_CHANGED),
    (lambda: degraded(limits="l2"), Cause.YARDSTICK_CHANGED),
    (lambda: degraded(report=reported(k=10)), Cause.YARDSTICK_CHANGED),
    (lambda: degraded(load_after=Load(waiting=3)), Cause.UNDER_LOAD),
    (lambda: degraded(load_before=Load(kv_usage=0.95)), Cause.UNDER_LOAD),
    (lambda: degraded(report=seen(Sign.TOOL_CALL_AS_TEXT)), Cause.STRUCTURE),
    (lambda: degraded(report=seen(Sign.SCRIPT_SALAD)), Cause.BROKEN_TEXT),
    (lambda: run(2, quality=Quality.CORRUPTED, reason="NaN", report=None), Cause.BROKEN_NUMBERS),
    (
        lambda: degraded(report=reported(divergence=replace(divergence(0.12), corrupted_positions=7))),
        Cause.BROKEN_NUMBERS,
    ),
    (lambda: run(2, quality=Quality.UNKNOWN, reason="timeout", report=None), Cause.CANNOT_TELL),
]
PARTS = [
    (Dimension.LENGTH, ("short", "long"), Cause.LONG_PROMPTS),
    (Dimension.DEPTH, ("early", "late"), Cause.LATE_TOKENS),
    (Dimension.RANK, ("0", "1"), Cause.ONE_RANK),
    (Dimension.LANGUAGE, ("en", "zh"), Cause.ONE_LANGUAGE),
    (Dimension.PROTOCOL, ("no", "yes"), Cause.STRUCTURE),
]


@pytest.mark.parametrize(("made", "cause"), CASES)
def test_a_cause_is_found_by_what_differs(made: Callable[[], RunRecord], cause: Cause, tmp_path: Path) -> None:
    found = causes(told(tmp_path, made(), before=run(1)))
    assert cause in found
    assert found == sorted(found, key=list(Cause).index)


@pytest.mark.parametrize(("dimension", "values", "cause"), PARTS)
def test_a_part_that_is_much_worse_than_its_sibling_is_a_cause(
    dimension: Dimension, values: tuple[str, str], cause: Cause, tmp_path: Path
) -> None:
    good, bad = values
    worse = degraded(report=reported(part(dimension, good, 0.02), part(dimension, bad, 0.07)))
    assert cause in causes(told(tmp_path / "worse", worse, before=run(1)))
    for name, parts in {
        "even": (part(dimension, good, 0.03), part(dimension, bad, 0.07)),
        "tiny": (part(dimension, good, 0.0001), part(dimension, bad, 0.009)),
        "alone": (part(dimension, bad, 0.07),),
    }.items():
        assert cause not in causes(told(tmp_path / name, degraded(report=reported(*parts)), before=run(1)))


def test_short_prompts_that_are_worse_do_not_speak_against_the_cache(tmp_path: Path) -> None:
    parts = (part(Dimension.LENGTH, "short", 0.3), part(Dimension.LENGTH, "long", 0.01))
    assert Cause.LONG_PROMPTS not in causes(told(tmp_path, degraded(report=reported(*parts)), before=run(1)))


def test_a_distribution_that_moved_as_a_whole_speaks_for_outliers(tmp_path: Path) -> None:
    even = degraded(report=reported(part(Dimension.LANGUAGE, "en", 0.1), part(Dimension.LANGUAGE, "zh", 0.14)))
    assert Cause.OUTLIERS in causes(told(tmp_path, even, before=run(1)))


def test_a_node_that_was_never_good_may_have_wrong_limits(tmp_path: Path) -> None:
    assert causes(told(tmp_path, degraded())) == [Cause.NEVER_SOUND]


def test_a_good_run_needs_no_advice(store: Path) -> None:
    assert causes(gathered(store, run(5).id)) == []


def test_a_load_says_nothing_of_a_good_run(tmp_path: Path) -> None:
    assert causes(told(tmp_path, run(2, load_after=Load(waiting=9)), before=run(1))) == []


def decided(kept: Store, *objections: Objection, result: Result | None = None, action: Action = Action.ISOLATE) -> None:
    """A decision about run 2 that was held back, or whose order ended so."""
    made = decision("d-1", action=action, run=run(2).id)
    if result is None:
        kept.decide(replace(made, ruling=Ruling.SUPPRESSED, objections=objections))
        return
    kept.decide(made, intent=intent(made), state=leaving(made))
    kept.settle("d-1", Outcome(result, "it said no", at(11), 1))


def test_what_holds_an_isolation_back_is_named_by_its_brake(tmp_path: Path) -> None:
    with opened(tmp_path) as kept:
        kept.add_run(degraded(), after(degraded()))
        decided(kept, Objection(Brake.CAP, "too many"), Objection(Brake.DRY_RUN, "a rehearsal"))
    held = [one for one in gathered(tmp_path / "q.db", "d-1").advice if one.cause is Cause.HELD_BACK]
    assert [(one.seen, one.runbook) for one in held] == [("too many", "brake-cap")]


def test_a_baseline_in_doubt_comes_first(tmp_path: Path) -> None:
    matter = Matter(Topic.BASELINE_MOVED, "baseline", "moved", "it drifted")
    with opened(tmp_path) as kept:
        kept.add_run(degraded(), after(degraded()))
        decided(kept, Objection(Brake.YARDSTICK, "not proven sound"))
        kept.tell(Change(told=[Notice("n", at(1), at(1), matter)]))
    one = gathered(tmp_path / "q.db", "d-1")
    assert one.advice[0].cause is Cause.BASELINE
    assert one.yardstick.doubts == ("not proven sound", "it drifted")


RELEASES = [(Result.FAILED, Cause.RELEASE_ORDER, "result-failed"), (None, Cause.RELEASE_HELD_BACK, "brake-human")]


@pytest.mark.parametrize(("result", "cause", "runbook"), RELEASES)
def test_a_release_that_came_to_nothing_leads_to_no_advice_to_isolate(
    result: Result | None, cause: Cause, runbook: str, tmp_path: Path
) -> None:
    with opened(tmp_path) as kept:
        kept.add_run(run(2), after(run(2)))
        decided(kept, Objection(Brake.HUMAN, "held by ada"), result=result, action=Action.RELEASE)
    (found,) = gathered(tmp_path / "q.db", "d-1").advice
    assert (found.cause, found.runbook) == (cause, runbook)
    assert not [step for step in found.remedy.steps if "isolate" in f"{step.said} {step.command}"]


OTHERS = [
    Matter(Topic.STORM, "llama", "storm", "3 of 4 breach at once", pool="llama"),
    Matter(Topic.PAUSED, "p-1 pool:llama", "paused", "too many orders failed", pool="llama"),
    Matter(Topic.PROPOSAL, "pool:llama", "isolate", "waits for a person", pool="llama"),
]


@pytest.mark.parametrize("matter", OTHERS)
def test_what_stands_for_a_whole_pool_is_no_doubt_about_the_baseline(matter: Matter, tmp_path: Path) -> None:
    elsewhere = Matter(Topic.STORM, "other", "storm", "another pool", pool="other")
    with opened(tmp_path) as kept:
        kept.add_run(degraded(), after(degraded()))
        told_long_ago = [Notice("n", at(-3000), at(-3000), matter), Notice("m", at(-1), at(-1), elsewhere)]
        kept.tell(Change(told=told_long_ago))
    one = gathered(tmp_path / "q.db", degraded().id)
    assert one.yardstick.doubts == ()
    assert Cause.BASELINE not in causes(one)
    notices = [each.said for each in one.timeline if each.kind is Kind.NOTICE]
    (said,) = notices
    assert said.startswith("told: ")
    assert said.endswith(f": {matter.reason}")


DOUBTS = [
    (Matter(Topic.BASELINE_UNPROVEN, "baseline", "unproven", "r"), -1, True),
    (Matter(Topic.REFERENCE, "math", "missing", "r", task_set="math"), -1, True),
    (Matter(Topic.REFERENCE, "code", "missing", "r", task_set="code"), -1, False),
    (Matter(Topic.BASELINE_MOVED, "baseline", "moved", "r"), 2.4, True),  # while it was measured
    (Matter(Topic.BASELINE_MOVED, "baseline", "moved", "r"), 3, False),
    (Matter(Topic.BASELINE_MOVED, "baseline", "moved", "r", standing=False), -1, False),
]


@pytest.mark.parametrize(("matter", "since", "counts"), DOUBTS)
def test_a_doubt_counts_from_when_it_stands_and_for_its_task_set(
    matter: Matter, since: float, *, counts: bool, tmp_path: Path
) -> None:
    with opened(tmp_path) as kept:
        kept.add_run(degraded(), after(degraded()))
        kept.tell(Change(told=[Notice("n", at(since), at(since), matter)]))
    assert gathered(tmp_path / "q.db", degraded().id).yardstick.doubts == (("r",) if counts else ())


@pytest.mark.parametrize("result", [Result.REFUSED, Result.FAILED, Result.CONTRADICTED])
def test_an_order_that_came_to_nothing_leads_to_its_section(result: Result, tmp_path: Path) -> None:
    with opened(tmp_path) as kept:
        kept.add_run(degraded(), after(degraded()))
        decided(kept, result=result)
    (found,) = [one for one in gathered(tmp_path / "q.db", "d-1").advice if one.cause is Cause.ORDER]
    assert found.runbook == f"result-{result}"
    assert found.seen == "d-1: it said no"


# ------------------------------------------------------------------ what is claimed


ENDED = [
    (Action.RELEASE, Result.VERIFIED, "Release int8-a: carried out, verified", "good", (1, 0, 0)),
    (Action.RELEASE, Result.REFUSED, "Release int8-a: refused", "bad", (0, 1, 0)),
    (Action.RELEASE, Result.FAILED, "Release int8-a: failed", "bad", (0, 1, 0)),
    (Action.RELEASE, Result.WITHDRAWN, "Release int8-a: withdrawn", "warn", (0, 1, 0)),
    (Action.RELEASE, None, "Release int8-a: ordered, not settled yet", "warn", (0, 0, 1)),
    (Action.ISOLATE, Result.FAILED, "Isolate int8-a: failed", "bad", (0, 1, 0)),
    (Action.ISOLATE, None, "Isolate int8-a: ordered, not settled yet", "bad", (0, 0, 1)),
]


@pytest.mark.parametrize(("action", "result", "heading", "tone", "counts"), ENDED)
def test_nothing_is_called_done_before_the_gateway_says_so(
    action: Action, result: Result | None, heading: str, tone: str, counts: tuple[int, int, int], tmp_path: Path
) -> None:
    made = decision("d-1", action=action, run=run(2).id)
    with opened(tmp_path) as kept:
        kept.add_run(degraded(), after(degraded()))
        kept.decide(made, intent=intent(made), state=leaving(made))
        if result is not None:
            kept.settle("d-1", Outcome(result, "it said so", at(11), 1))
    one = gathered(tmp_path / "q.db", "d-1")
    values = incident_values(one, "en")
    assert (values["heading"], values["tone"]) == (heading, tone)
    (event,) = [each for each in one.timeline if each.kind is Kind.DECISION]
    assert (event.tone is Tone.GOOD) is (tone == "good")
    with Archive.open(tmp_path / "q.db") as archive:
        period = period_of(archive, at(0), at(60), now=NOW)
    assert period.orders == OrderCount(1, *counts)
    for kind in ("html", "md"):
        assert ("carried out, verified" in written(period, kind)) is (tone == "good")


# ------------------------------------------------------------------ what is kept back


def leaky() -> RunRecord:
    """A run whose canary quotes answers, and that misses an answer to a prompt that its reason names."""
    said = [
        (Sign.SCRIPT_SALAD, "71% of a free answer's letters are Thai: 'my secret's out"),
        (Sign.UNKNOWN_NAME, "an answer calls what was not offered, at '$.secret': 'secret'"),
        (Sign.SCHEMA_MISMATCH, "an answer does not fit its schema: 'secret is too long': 'secret'"),
    ]
    missing = (
        Missing("math-07", Quality.UNKNOWN, "math-07 is not enrolled"),
        Missing("", Quality.SKIPPED, "not asked any more"),
    )
    signs = tuple(Seen(sign, each, "math-05") for sign, each in said)
    return degraded(report=reported(observation=Observation(24, 24, missing, canary=Canary(4, 4, signs))))


@pytest.mark.parametrize("kind", ["html", "md", "json"])
@pytest.mark.parametrize("shown", PromptsShown)
def test_answers_and_ids_of_prompts_are_told_as_far_as_may_be_seen(
    shown: PromptsShown, kind: str, tmp_path: Path
) -> None:
    with opened(tmp_path) as kept:
        kept.add_run(leaky(), after(leaky()))
    text = written(gathered(tmp_path / "q.db", leaky().id, shown), kind)
    assert ("secret" in text) is (shown is PromptsShown.FULL)
    assert "Thai" in text
    if kind != "md":  # which has no table of missing answers
        assert ("math-0" in text) is (shown is not PromptsShown.OFF)
        assert "is not enrolled" in text
        assert "not asked any more" in text


# ------------------------------------------------------------------ the table of advice


SECTIONS = {
    line.lstrip("#").strip().lower().replace(" ", "-").replace(":", "").replace(",", "")
    for line in (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("#")
}
ANCHORS = {
    *(remedy.runbook for remedy in REMEDIES.values()),
    *(f"brake-{brake}" for brake in Brake),
    *(f"quality-{quality}" for quality in Quality),
    *(f"result-{result}" for result in Result if result not in (Result.VERIFIED,)),
}
STEPS = [step for remedy in REMEDIES.values() for step in remedy.steps]


def test_every_cause_has_its_remedy() -> None:
    assert set(REMEDIES) == set(Cause)
    assert all(remedy.steps for remedy in REMEDIES.values())


def test_every_section_of_the_runbook_that_is_named_is_there() -> None:
    assert set() == ANCHORS - SECTIONS


@pytest.mark.parametrize("command", sorted({step.command for step in STEPS if step.command is not None}))
def test_every_command_that_is_advised_is_taken(command: str) -> None:
    assert refusal(shlex.split(command)[1:]) is None


def test_all_advice_is_there_in_chinese_and_nothing_else() -> None:
    sentences = {*(remedy.title for remedy in REMEDIES.values()), *(step.said for step in STEPS)}
    assert sentences == set(CHINESE)
    assert in_language("zh", "Measure again.") == "重新测量。"
    assert in_language("en", "Measure again.") == "Measure again."


TONES = [
    (Quality.OK, Tone.GOOD),
    (Quality.WARN, Tone.WARN),
    (Quality.CORRUPTED, Tone.BAD),
    (Quality.UNKNOWN, Tone.WARN),
]


@pytest.mark.parametrize(("quality", "tone"), TONES)
def test_a_quality_has_its_tone(quality: Quality, tone: Tone) -> None:
    assert tone_of(quality) is tone


def test_the_sample_is_an_upgrade() -> None:
    assert UPGRADED.version != NODE.version
