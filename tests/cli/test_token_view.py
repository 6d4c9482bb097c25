"""`quantwatch show RUN --tokens` as a user runs it, and what it says of tokens that want to be more than text."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

from quantwatch.cli.history import history, show
from quantwatch.cli.main import main
from quantwatch.cli.token_view import POSITIONS, moved_mass, printable, worst_positions
from quantwatch.flow.tokens import Candidate, TokenSeen, TokensSeen
from quantwatch.measure.compare import Scope
from quantwatch.measure.tokens import tokens_seen
from support.recordings import pairs
from support.stored import after, decision, opened, run

COMMANDS = typer.Typer()
for _name, _command in (("history", history), ("show", show)):
    COMMANDS.command(_name)(_command)

BROKEN = TokenSeen(43, 7, None, math.log(0.75), None, (Candidate(7, math.log(0.75)),), (), 0.25, 1.0, mark="sentinel")


@pytest.fixture(scope="module")
def seen() -> TokensSeen:
    """Five answers of a real int8 node with outliers, 48 tokens each."""
    return tokens_seen(pairs("int8-w8a8-outlier"), scope=Scope.CONTINUATION)


@pytest.fixture
def store(tmp_path: Path, seen: TokensSeen) -> Path:
    with opened(tmp_path) as kept:
        for one in (run(1), run(2)):
            kept.add_run(one, after(one))
        kept.keep_tokens(run(1).id, seen, tokenizer="t")
        kept.keep_texts("t", {282: " the", 2148: "\x1b[31m", 3432: "\n"})
        kept.decide(decision(run=run(1).id))
    return tmp_path / "q.db"


def said(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    assert main([str(one) for one in ("show", *arguments)], commands=COMMANDS) == code
    told = capsys.readouterr()
    return told.out if code == 0 else told.err


def with_prompts(folder: Path, shown: str) -> Path:
    """A configuration beside the store that shows so much."""
    file = folder / "quantwatch.yaml"
    file.write_text(
        "schema: 1\nbaseline: {url: http://b}\ntargets: [{name: a, url: http://a, scheme: int8, pool: p}]\n"
        f"pools: {{p: {{}}}}\ntask_sets: {{math: {{}}}}\nstore: {{path: q.db}}\nexpose: {{prompts: {shown}}}\n"
    )
    return file


def test_the_worst_prompt_is_shown_where_it_is_worst(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    told = said(capsys, run(1).id, "--tokens", "--store", store)

    assert "the 5 of 5 prompts that carry the most divergence" in told
    assert "pair-3 from position 11:  282  260  3432 " in told
    assert told.count("position 31: 2148 KL 1.173; 60.0% at the baseline, 8.5% at the node") == 1
    assert "2148        60.0%  3432        35.1%  +32.2%" in told
    assert "at least 87.2% of the probability moved" in told
    assert "all others   1.7%  all others  17.6%" in told
    assert told.count("\nposition ") == POSITIONS


def test_another_prompt_is_shown_by_its_id_alone(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    told = said(capsys, "000001", "--prompt", "pair-0", "--store", store)

    assert "pair-0 from position" in told
    assert "pair-3 from position" not in told


def test_a_prompt_that_is_not_kept_is_refused_with_those_that_are(
    capsys: pytest.CaptureFixture[str], store: Path
) -> None:
    told = said(capsys, "000001", "--prompt", "math-1", "--store", store, code=3)

    assert "there are pair-3, pair-1, pair-2, pair-4, pair-0" in " ".join(told.split())


@pytest.mark.usefixtures("store")
def test_words_are_shown_only_where_the_configuration_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    full = said(capsys, "000001", "--tokens", "--config", with_prompts(tmp_path, "full"))
    ids = said(capsys, "000001", "--tokens", "--config", with_prompts(tmp_path, "ids"))

    assert "2148 '\\x1b[31m'" in full
    assert "\x1b" not in full
    assert "from position 11:  the 260 \\n 6989 " in full
    assert "from position 11:  282  260  3432  6989 " in ids


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("written", ["off", '"off"'])
def test_off_shows_nothing_and_says_why(capsys: pytest.CaptureFixture[str], tmp_path: Path, written: str) -> None:
    told = said(capsys, "000001", "--tokens", "--config", with_prompts(tmp_path, written))

    assert told == "expose.prompts is off, so no tokens are shown\n"


def test_a_run_without_tokens_says_so(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    assert "no tokens are kept of this run" in said(capsys, "000002", "--tokens", "--store", store)


def test_tokens_are_of_runs(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    assert "d-1 is a decision; a run is wanted" in said(capsys, "d-1", "--tokens", "--store", store, code=3)


@pytest.mark.parametrize(("more", "prompts"), [((), 5), (("--prompt", "pair-0"), 1)])
def test_programs_get_everything(
    capsys: pytest.CaptureFixture[str], store: Path, more: tuple[str, ...], prompts: int
) -> None:
    told: Any = json.loads(said(capsys, "000001", "--tokens", "--store", store, "--json", "-", *more))

    assert (told["schema"], told["prompts_shown"], told["run"]["id"]) == (1, "ids", run(1).id)
    assert (told["tokens"]["measured"], len(told["tokens"]["prompts"]), told["tokens"]["texts"]) == (5, prompts, {})
    assert len(told["tokens"]["prompts"][0]["tokens"][0]["baseline"]) == 10


def test_programs_get_null_where_nothing_is_kept(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    told: Any = json.loads(said(capsys, "000002", "--tokens", "--store", store, "--json", "-"))

    assert told["tokens"] is None


def test_broken_positions_and_gaps_are_shown_as_such(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, seen: TokensSeen
) -> None:
    first = seen.prompts[0]
    broken = replace(first, tokens=(first.tokens[0], first.tokens[2], BROKEN), kl_mean=math.nan)
    with opened(tmp_path) as kept:
        kept.add_run(run(1), after(run(1)))
        kept.keep_tokens(run(1).id, replace(seen, prompts=(broken,)), tokenizer="t")

    told = said(capsys, "000001", "--tokens", "--store", tmp_path / "q.db")

    assert "282  ...  3432  ...  7" in told
    assert "position 43: 7 sentinel; 75.0% at the baseline, not listed at the node\n" in told
    assert worst_positions(broken)[-1] is BROKEN
    assert "pair-3        -" in told


def test_mass_that_moved_by_hand() -> None:
    ours = (Candidate(1, math.log(0.5)), Candidate(2, math.log(0.25)))
    theirs = (Candidate(3, math.log(0.5)), Candidate(1, math.log(0.25)))

    one = TokenSeen(0, 1, 0.1, None, None, ours, theirs, 0.25, 0.25)

    assert moved_mass(one) == pytest.approx(0.25)  # 1 lost a quarter; what the others got is a quarter at the least


@pytest.mark.parametrize(
    ("text", "shown"), [("a\tb", "a\\tb"), ("\x1b]0;", "\\x1b]0;"), ("今\u202e", "今\\u202e"), ("\ud800", "\\ud800")]
)
def test_no_text_moves_the_cursor(text: str, shown: str) -> None:
    assert printable(text) == shown
