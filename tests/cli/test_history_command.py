"""`quantwatch history`, `show` and `diff` as a user runs them."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

from quantwatch.cli.history import diff, history, show
from quantwatch.cli.main import main
from quantwatch.flow.decision import Outcome, Result
from quantwatch.flow.load import Load
from quantwatch.flow.verdict import Quality
from quantwatch.record.differences import explained, factors, numbers
from quantwatch.record.documents import run_json
from support.stored import NODE, after, at, decision, intent, leaving, moved, opened, run, set_report, suppressed

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = typer.Typer()
for _name, _command in (("history", history), ("show", show), ("diff", diff)):
    COMMANDS.command(_name)(_command)

SECOND = run(
    5,
    0.09,
    quality=Quality.DEGRADED,
    node=replace(NODE, version="0.33.0", started=1_760_009_000.0),
    report=set_report(0.09, quality=Quality.DEGRADED, seed=8),
    load_before=Load(waiting=0, kv_usage=0.31, running=4, prompt_tokens=100, generated_tokens=20),
    load_after=Load(waiting=2, kv_usage=0.5),
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two runs, the second worse after an upgrade, an isolation that followed, and one that was stopped."""
    with opened(tmp_path) as kept:
        for one in (run(1), SECOND):
            kept.add_run(one, after(one), [moved("ok", one.quality.value, run=one.id)])
        made = decision(run=SECOND.id)
        kept.decide(
            made, intent=intent(made), state=leaving(made), transitions=[moved("in", "leaving", decision="d-1")]
        )
        kept.begin_attempt("d-1")
        kept.settle("d-1", Outcome(Result.VERIFIED, "read back as isolated", at(11), 1))
        kept.decide(suppressed())
    return tmp_path / "q.db"


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What a command says that ends with 0."""
    assert main([str(one) for one in arguments], commands=COMMANDS) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What a command says that ends with 3."""
    assert main([str(one) for one in arguments], commands=COMMANDS) == 3
    return " ".join(capsys.readouterr().err.split())


def as_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    return json.loads(said(capsys, *arguments, "--json", "-"))


# ------------------------------------------------------------------ history


@pytest.mark.parametrize(("columns", "names"), [("80", 0), (None, 2)])
def test_no_number_is_cut_and_a_pipe_gets_whole_names(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    columns: str | None,
    names: int,
) -> None:
    with opened(tmp_path) as one:
        for number, kl in enumerate((0.0041234, 0.4)):
            made = run(number, kl, target="llama-int8-a", task_set="long_context", quality=Quality.INCONCLUSIVE)
            one.add_run(made, after(made))
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)

    text = said(capsys, "history", "--store", tmp_path / "q.db")

    assert len(re.findall(r"inconclusive +(?:0\.4|0\.004123) +1\.014 +0\.975", text)) == 2
    assert text.count("llama-int8-a") == names


def test_runs_are_listed_newest_first_within_80_columns(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = said(capsys, "history", "--store", store).splitlines()

    assert max(map(len, lines)) <= 80
    shown = [line.split() for line in lines if "int8-a" in line]
    assert shown[0] == ["01-01", "00:05", "000005", "int8-a", "math", "degraded", "0.09", "1.014", "0.975"]
    assert shown[1][2:6] == ["000001", "int8-a", "math", "ok"]
    assert lines[-1] == "That is all."


def test_a_wide_terminal_shows_whole_ids_and_reasons(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    out = " ".join(said(capsys, "history", "--store", store).split())
    assert f"2026-01-01 00:05:00 {SECOND.id} int8-a" in out
    assert "mean KL 0.09 is degraded" in out


def test_a_list_is_narrowed_down(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "000001" not in said(capsys, "history", "--store", store, "--limit", 1)
    assert "Nothing is recorded yet." in said(capsys, "history", "--store", store, "--target", "int8-b")
    assert "Nothing is recorded yet." in said(capsys, "history", "--store", store, "--task-set", "sql")


def test_runs_as_json_are_whole(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = as_json(capsys, "history", "--store", store)
    assert [one["id"] for one in content["runs"]] == [SECOND.id, run(1).id]
    assert content["runs"][0] == run_json(SECOND)


def test_decisions_are_listed_with_what_stopped_them(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = [line.split() for line in said(capsys, "history", "--store", store, "--decisions").splitlines()]
    assert ["01-01", "00:20", "2", "int8-a", "isolate", "suppressed", "-", "cap"] in lines
    assert ["01-01", "00:10", "1", "int8-a", "isolate", "act", "verified"] in lines


def test_decisions_as_json_carry_order_and_outcome(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stopped, done = as_json(capsys, "history", "--store", store, "--decisions")["decisions"]
    assert (stopped["objections"][0]["brake"], stopped["order"]) == ("cap", None)
    assert (done["order"]["driver"], done["attempts"]) == ("webhook", 1)
    assert done["outcome"]["result"] == "verified"
    assert done["findings"][0]["critical"] == 0.05


def test_the_configuration_names_the_store(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text((ROOT / "configs" / "minimal.yaml").read_text() + "\nstore:\n  path: q.db\n")
    assert "degraded" in said(capsys, "history", "--config", config)
    assert "exclude each other" in refused(capsys, "history", "--config", config, "--store", store)


def test_no_store_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no store here; name it with --store" in refused(capsys, "history", "--store", tmp_path / "none.db")


# ------------------------------------------------------------------ show


def test_a_run_is_shown_with_all_it_knows(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "show", "000005", "--store", store)
    for part in (
        f"run {SECOND.id}: math on int8-a: degraded",
        "node: llama-w8a8, at http://int8-a:8000, version 0.33.0",
        "23 of 24 draws, k 20, mode prompt_scoring, seed 8",
        "load before: 4 running, 0 waiting, KV cache 31% full",
        "load after: 2 waiting, KV cache 50% full",
        "missing: math-07 (1x, unknown): no answer in 120 s",
        "decision d-1: isolate was ruled act",
        "ok -> degraded, by quantwatch",
    ):
        assert part in out
    (kl,) = [line.split() for line in out.splitlines() if line.strip().startswith("mean KL  ")]
    assert kl == ["mean", "KL", "0.09", "0.081", "..", "0.099", "0.01", "0.05", "degraded"]


def test_a_run_without_a_load_tells_none(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "load " not in said(capsys, "show", "000001", "--store", store)


def test_a_run_that_asked_nothing_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    down = run(1, quality=Quality.UNKNOWN, reason="connection refused", report=None, baseline=None, node=None)
    with opened(tmp_path) as kept:
        kept.add_run(down, after(down))
    out = said(capsys, "show", "r-", "--store", tmp_path / "q.db")
    assert "connection refused" in out
    assert "node: did not say who it is" in out


def test_a_decision_is_shown_with_all_it_knows(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "show", "d-1", "--store", store)
    for part in (
        "decision d-1: isolate int8-a was ruled act",
        "found: mean KL 0.09 is degraded",
        "order: isolate http://int8-a:8000 through webhook, fallback http://fp16:8000",
        "outcome verified at 2026-01-01 00:11:00: read back as isolated",
        "routing of int8-a: in -> leaving",
    ):
        assert part in out
    stopped = said(capsys, "show", "d-2", "--store", store)
    assert "objection cap: 1 of 2 is isolated already" in stopped
    assert "nothing was sent" in stopped


def test_both_are_shown_as_json(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = as_json(capsys, "show", "000005", "--store", store)
    assert shown["run"]["report"]["kl_mean"] == 0.09
    assert shown["run"]["load_before"]["running"] == 4
    assert [one["id"] for one in shown["decisions"]] == ["d-1"]
    assert shown["transitions"][0]["new"] == "degraded"
    assert as_json(capsys, "show", "d-2", "--store", store)["decision"]["ruling"] == "suppressed"


def test_an_id_that_fits_nothing_or_several_is_a_usage_error(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no run or decision x-1" in refused(capsys, "show", "x-1", "--store", store)
    assert "d- could be d-2, d-1; give more of the id" in refused(capsys, "show", "d-", "--store", store)


# ------------------------------------------------------------------ diff


def test_what_changed_is_told_one_factor_a_line(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.strip() for line in said(capsys, "diff", "000001", "000005", "--store", store).splitlines()]

    assert "node version: 0.32.0 -> 0.33.0" in lines
    assert "node process start: 2025-10-09 09:01:40 -> 2025-10-09 11:23:20" in lines
    assert "measurement seed: 7 -> 8" in lines
    assert "nothing but the draw" not in lines
    assert ["kl", "mean", "0.004", "0.09", "+0.086", "(+2150.0%)"] in [line.split() for line in lines]
    assert ["coverage", "0.98", "0.98", "none"] in [line.split() for line in lines]


def test_two_draws_of_the_same_differ_in_nothing_but_the_draw(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = run(2, 0.005, report=set_report(0.005, seed=9))
    with opened(tmp_path) as kept:
        for one in (run(1), other):
            kept.add_run(one, after(one))
    out = said(capsys, "diff", "000001", "000002", "--store", tmp_path / "q.db")
    assert "measurement seed: 7 -> 9" in out
    assert "nothing but the draw" in out
    assert as_json(capsys, "diff", "000001", "000002", "--store", tmp_path / "q.db")["only_the_draw"] is True


def test_differences_as_json_carry_the_change(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = as_json(capsys, "diff", "000001", "000005", "--store", store)
    assert {(one["place"], one["factor"]) for one in content["factors"]} == {
        ("node", "version"),
        ("node", "started"),
        ("measurement", "seed"),
    }
    changes = {one["number"]: one["change"] for one in content["numbers"]}
    assert changes["kl_mean"] == pytest.approx(0.086)
    assert content["only_the_draw"] is False


def test_a_decision_cannot_be_diffed(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "d-1 is a decision; a run is wanted" in refused(capsys, "diff", "000001", "d-1", "--store", store)


FACTORS = [
    ({"baseline": replace(NODE, name="baseline")}, "baseline"),
    ({"limits": "l2"}, "limits"),
    ({"target": "int8-b"}, "run"),
    ({"report": set_report(pool="e" * 64)}, "measurement"),
    ({"report": set_report(k=10)}, "measurement"),
    ({"report": None}, "measurement"),
]


@pytest.mark.parametrize(("change", "place"), FACTORS)
def test_every_factor_but_the_draw_explains_something(change: dict[str, Any], place: str) -> None:
    found = factors(run_json(run(1)), run_json(replace(run(2), **change)))
    assert place in {one.place for one in found}
    assert explained(found)


def test_a_run_without_numbers_has_nothing_to_subtract() -> None:
    found = numbers(run_json(run(1)), run_json(run(2, report=None)))
    assert {one.change for one in found} == {None}
