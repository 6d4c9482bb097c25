"""Several runs told as one report, and what names a run's process and basis."""

from dataclasses import replace

import pytest

from quantwatch.flow.identity import Identity
from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.report import Report, SetReport, TargetReport
from quantwatch.flow.verdict import Quality
from quantwatch.flows.basis import basis_of
from quantwatch.flows.report import merged
from support.stored import BASELINE, NODE, set_report


def target(name: str = "a", task_set: str = "math", quality: Quality = Quality.OK, **given: object) -> TargetReport:
    one = TargetReport(name, NODE, quality, (f"{task_set} is {quality}",), (set_report(task_set=task_set),))
    return replace(one, **given)  # type: ignore[arg-type]


def report(*targets: TargetReport, **given: object) -> Report:
    return replace(Report(BASELINE, targets, complete=True), **given)  # type: ignore[arg-type]


def test_each_target_stands_once_with_all_its_task_sets() -> None:
    whole = merged([report(target("a", "math")), report(target("b", "math")), report(target("a", "code"))])

    assert [(one.target, [s.name for s in one.task_sets]) for one in whole.targets] == [
        ("a", ["math", "code"]),
        ("b", ["math"]),
    ]


def test_the_worst_run_gives_a_target_its_quality_and_its_reasons() -> None:
    runs = [target(quality=Quality.OK), target("a", "code", Quality.DEGRADED), target("a", "de", Quality.DEGRADED)]
    (one,) = merged([report(run) for run in runs]).targets

    assert one.quality is Quality.DEGRADED
    assert one.reasons == ("code is degraded", "de is degraded")


def test_a_sentence_that_comes_twice_is_told_once() -> None:
    runs = [target(quality=Quality.UNKNOWN, reasons=("down",), notes=("blind",))] * 2
    (one,) = merged([report(run) for run in runs]).targets
    assert (one.reasons, one.notes) == (("down",), ("blind",))


def test_the_identity_is_the_latest_that_is_known() -> None:
    restarted = replace(NODE, started=9.0)
    runs = [target(), target(identity=restarted), target(identity=None)]
    assert merged([report(run) for run in runs]).targets[0].identity == restarted


def test_the_baseline_is_known_when_one_run_met_it_and_its_trouble_is_not_hidden() -> None:
    runs = [report(target(), baseline=None, trouble="down", misconfigured=True), report(target())]
    whole = merged(runs)
    assert (whole.baseline, whole.trouble, whole.misconfigured) == (BASELINE, "down", True)
    assert not merged(runs[1:]).misconfigured


def test_a_whole_is_complete_when_all_its_parts_are_and_none_is_to_follow() -> None:
    assert merged([report(target())]).complete
    assert not merged([report(target()), report(target(), complete=False)]).complete
    assert not merged([report(target())], complete=False).complete


def test_a_misconfigured_target_is_told_so() -> None:
    assert merged([report(target()), report(target(misconfigured=True))]).targets[0].misconfigured


def test_nothing_cannot_be_merged() -> None:
    with pytest.raises(ValueError, match="no report"):
        merged([])


def test_a_process_is_named_by_its_start_and_version() -> None:
    assert NODE.process == replace(NODE, url="http://elsewhere").process == "1760000500.00 0.32.0"
    assert replace(NODE, started=1.0).process != NODE.process != replace(NODE, version="0.33").process


def test_a_process_that_does_not_tell_when_it_started_has_no_name() -> None:
    assert replace(NODE, started=None).process is None


def basis(baseline: Identity | None, node: Identity | None, one: SetReport, limits: str = "l") -> str:
    return basis_of(baseline, node, one, limits=limits, mode=ProbeMode.PROMPT_SCORING)


@pytest.mark.parametrize(
    "other",
    [
        basis(replace(BASELINE, model="x"), NODE, set_report()),
        basis(replace(BASELINE, version="x"), NODE, set_report()),
        basis(BASELINE, replace(NODE, version="x"), set_report()),
        basis(BASELINE, replace(NODE, root="x"), set_report()),
        basis(BASELINE, NODE, set_report(k=10)),
        basis(BASELINE, NODE, set_report(pool="x")),
        basis(BASELINE, NODE, set_report(), limits="x"),
    ],
)
def test_runs_count_together_only_with_equal_servers_prompts_k_and_limits(other: str) -> None:
    assert other != basis(BASELINE, NODE, set_report()) != ""


def test_a_process_is_told_apart_beside_the_basis() -> None:
    """A node that tells its start time in one run and not in the next is one node all the same."""
    silent = replace(NODE, started=None)
    assert basis(BASELINE, silent, set_report()) == basis(BASELINE, NODE, set_report())


def test_a_baseline_that_only_restarted_is_the_same_basis() -> None:
    again = replace(BASELINE, started=1.0)
    assert basis(again, NODE, set_report()) == basis(BASELINE, NODE, set_report(kl=9.9))


def test_there_is_no_basis_where_a_side_stayed_unknown() -> None:
    assert basis(None, NODE, set_report()) == basis(BASELINE, None, set_report()) == ""
    assert basis(BASELINE, replace(NODE, tokenizer=None), set_report()) == ""
