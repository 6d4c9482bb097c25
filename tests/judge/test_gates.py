"""What each gate of a release says, and the answer."""

import math
from dataclasses import replace
from typing import Any

import pytest

from quantwatch.flow.acceptance import (
    Answer,
    Bounded,
    GateKind,
    GateResult,
    GateVerdict,
    Latency,
    Margins,
    Memory,
    Paired,
    Rules,
)
from quantwatch.flow.observation import Observation
from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.report import SetReport, TargetReport
from quantwatch.flow.verdict import Finding, Interval, Limit, Metric, Quality, Verdict
from quantwatch.judge import gates

PASS, FAIL, CANNOT_TELL = GateVerdict.PASS, GateVerdict.FAIL, GateVerdict.CANNOT_TELL
MARGINS = Margins(kl_mean=0.01, log_perplexity=math.log(1.01), top1=0.02)
EVEN = Bounded(0.0, -0.001, 0.001)


def result(verdict: GateVerdict, gate: GateKind = GateKind.QUALITY) -> GateResult:
    return GateResult("math", gate, verdict, (f"it is {verdict}",))


@pytest.mark.parametrize(
    ("verdicts", "complete", "answer"),
    [
        ((PASS, PASS), True, Answer.KEEP),
        ((PASS, FAIL), True, Answer.REJECT),
        ((CANNOT_TELL, FAIL), True, Answer.REJECT),
        ((PASS, CANNOT_TELL), True, Answer.CANNOT_TELL),
        ((PASS, PASS), False, Answer.CANNOT_TELL),
        ((PASS, FAIL), False, Answer.REJECT),
        ((), True, Answer.CANNOT_TELL),
    ],
)
def test_only_a_whole_row_of_passed_gates_keeps(
    verdicts: tuple[GateVerdict, ...], complete: bool, answer: Answer
) -> None:
    found, reasons = gates.answer([result(one) for one in verdicts], complete=complete)
    assert found is answer
    assert reasons


def test_the_answer_names_task_set_and_gate_of_what_decided() -> None:
    _, reasons = gates.answer([result(PASS), result(FAIL, GateKind.AGAINST_RUNNING)], complete=True)
    assert reasons == ("math, not worse than running: it is fail",)


def target(quality: Quality, *, whole: Quality | None = None) -> TargetReport:
    finding = Finding(Metric.KL_MEAN, quality, 0.2, Interval(0.1, 0.3), Limit(0.01, 0.05), "r")
    bare = Finding(Metric.TOP1_AGREEMENT, quality, 0.9, None, Limit(0.96, 0.94), "r")
    verdict = Verdict(quality, ("the set says so", "and so on"), (finding, bare))
    one = SetReport("math", "p", 1, 20, ProbeMode.PROMPT_SCORING, Observation(5, 5), None, verdict)
    return TargetReport("candidate", None, whole or quality, ("the node as a whole",), (one,))


@pytest.mark.parametrize(
    ("quality", "verdict"),
    [
        (Quality.OK, PASS),
        (Quality.WARN, PASS),
        (Quality.DEGRADED, FAIL),
        (Quality.CORRUPTED, FAIL),
        (Quality.INCONCLUSIVE, CANNOT_TELL),
        (Quality.INVALID, CANNOT_TELL),
        (Quality.UNKNOWN, CANNOT_TELL),
        (Quality.SKIPPED, CANNOT_TELL),
    ],
)
def test_a_quality_that_cannot_be_told_is_neither_pass_nor_fail(quality: Quality, verdict: GateVerdict) -> None:
    found = gates.quality(target(quality))
    assert found.verdict is verdict
    assert found.reasons == (f"{quality}: the set says so", "and so on")


def test_the_numbers_of_quality_carry_interval_and_critical_limit() -> None:
    kl, top1 = gates.quality(target(Quality.DEGRADED)).figures
    assert (kl.number, kl.limit, kl.unit) == (Bounded(0.2, 0.1, 0.3), 0.05, "nats")
    assert (top1.number, top1.limit, top1.unit) == (Bounded(0.9), 0.94, "")


def test_what_is_known_of_the_node_as_a_whole_counts_for_each_set() -> None:
    found = gates.quality(target(Quality.SKIPPED, whole=Quality.CORRUPTED))
    assert found.verdict is FAIL
    assert found.reasons == ("corrupted: the node as a whole",)


def difference(**changed: Any) -> Paired:
    whole = Paired(48, 48, 30, 4000, kl_mean=EVEN, log_perplexity=EVEN, top1=EVEN)
    return replace(whole, **changed)


def test_a_candidate_within_every_margin_is_not_worse() -> None:
    found = gates.against_running("math", difference(), MARGINS)
    assert found.verdict is PASS
    assert len(found.reasons) == len(found.figures) == 3
    assert [one.limit for one in found.figures] == pytest.approx([0.01, 1.01, 0.02])
    assert found.figures[1].number.value == 1.0


@pytest.mark.parametrize("metric", ["kl_mean", "log_perplexity", "top1"])
def test_a_candidate_proven_worse_by_more_than_a_margin_fails(metric: str) -> None:
    found = gates.against_running("math", difference(**{metric: Bounded(0.06, 0.03, 0.09)}), MARGINS)
    assert found.verdict is FAIL
    assert len(found.reasons) == 1
    assert "worse with its whole one-sided interval" in found.reasons[0]


@pytest.mark.parametrize("value", [0.009, 0.011])
def test_a_difference_whose_bound_is_beyond_the_margin_cannot_be_told(value: float) -> None:
    found = gates.against_running("math", difference(kl_mean=Bounded(value, 0.005, 0.02)), MARGINS)
    assert found.verdict is CANNOT_TELL
    assert "draw more" in found.reasons[0]


def test_a_difference_at_the_margin_is_within() -> None:
    assert gates.against_running("m", difference(kl_mean=Bounded(0, -1, 0.01)), MARGINS).verdict is PASS
    assert gates.against_running("m", difference(kl_mean=Bounded(0.02, 0.01, 1)), MARGINS).verdict is CANNOT_TELL


def test_few_different_prompts_prove_nothing_either_way() -> None:
    worse = Bounded(0.06, 0.03, 0.09)
    found = gates.against_running("math", difference(distinct_prompts=4, kl_mean=worse), MARGINS)
    assert found.verdict is CANNOT_TELL
    assert "4 different prompts; 5 are the least" in found.reasons[0]


def test_a_difference_without_a_number_cannot_be_told() -> None:
    assert gates.against_running("m", difference(log_perplexity=Bounded()), MARGINS).verdict is CANNOT_TELL


def test_a_ratio_that_no_float_holds_is_still_worse() -> None:
    found = gates.against_running("m", difference(log_perplexity=Bounded(800.0, 750.0, 900.0)), MARGINS)
    assert found.verdict is FAIL


def test_too_many_missing_prompts_leave_the_comparison_open_but_a_proof_stands() -> None:
    found = gates.against_running("math", difference(prompts=38), MARGINS)
    assert found.verdict is CANNOT_TELL
    assert found.reasons == ("10 of 48 drawn prompts are missing in the comparison with the running node",)
    worse = difference(prompts=38, top1=Bounded(0.06, 0.03, 0.09))
    assert gates.against_running("math", worse, MARGINS).verdict is FAIL


def test_without_a_common_prompt_nothing_can_be_told() -> None:
    assert gates.against_running("math", None, MARGINS).verdict is CANNOT_TELL


def times(p99: Bounded, **changed: Any) -> Latency:
    whole = Latency(500, 500, 0, 0.95, 0.2, 0.2, 0.3, 0.4, p99, 2.0, Bounded(0.0, 0.0, 0.007))
    return replace(whole, **changed)


ABSOLUTE = Rules(p99_seconds=1.0)
RATIO = Rules(p99_ratio=1.2)


@pytest.mark.parametrize(
    ("p99", "verdict"),
    [
        (Bounded(0.9, 0.8, 1.3), PASS),
        (Bounded(1.0, 0.8, 1.3), PASS),
        (Bounded(1.1, 0.8, 1.3), CANNOT_TELL),
        (Bounded(1.1, 1.0, 1.3), CANNOT_TELL),
        (Bounded(1.3, 1.1, 1.6), FAIL),
    ],
)
def test_a_p99_fails_only_when_its_whole_interval_is_over_the_limit(p99: Bounded, verdict: GateVerdict) -> None:
    found = gates.latency("math", times(p99), None, ABSOLUTE)
    assert found is not None
    assert found.verdict is verdict
    assert found.figures[0].limit == 1.0


def test_too_few_requests_leave_a_p99_open_and_other_numbers_are_told() -> None:
    found = gates.latency("math", times(Bounded(0.9, 0.8), sent=367, completed=367), None, ABSOLUTE)
    assert found is not None
    assert found.verdict is CANNOT_TELL
    assert (
        "a P99 needs 368 times at 95.0% confidence, and the candidate gave 367 (P95 0.4 s, slowest 2 s)"
        in (found.reasons[0])
    )


def test_too_few_requests_can_still_prove_a_p99_too_long() -> None:
    found = gates.latency("math", times(Bounded(3.0, 2.0), sent=100, completed=100), None, ABSOLUTE)
    assert found is not None
    assert found.verdict is FAIL


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        (Bounded(1.0, 0.9, 1.1), Bounded(1.0, 0.9, 1.1), PASS),
        (Bounded(1.3, 1.2, 1.4), Bounded(1.0, 0.9, 1.1), CANNOT_TELL),
        (Bounded(1.5, 1.4, 1.6), Bounded(1.0, 0.9, 1.1), FAIL),
        (Bounded(1.5, 1.4, 1.6), Bounded(1.0, 0.9, math.inf), CANNOT_TELL),
    ],
)
def test_a_ratio_of_p99_sets_the_far_ends_against_each_other(
    ours: Bounded, theirs: Bounded, verdict: GateVerdict
) -> None:
    found = gates.latency("math", times(ours), times(theirs), RATIO)
    assert found is not None
    assert found.verdict is verdict


def test_the_node_with_fewer_times_decides_whether_a_ratio_can_be_told() -> None:
    few = times(Bounded(1.0, 0.9, math.inf), sent=100, completed=100, level=0.975)
    enough = times(Bounded(1.0, 0.9, 1.1), level=0.975)
    ours = gates.latency("math", few, enough, RATIO)
    theirs = gates.latency("math", enough, few, RATIO)
    assert ours is not None
    assert theirs is not None
    assert (ours.verdict, theirs.verdict) == (CANNOT_TELL, CANNOT_TELL)
    assert "needs 437 times at 97.5% confidence, and the candidate gave 100" in ours.reasons[0]
    assert "the running node gave 100" in theirs.reasons[0]


def test_a_p99_that_is_a_timeout_never_passes_as_a_ratio() -> None:
    slow = times(Bounded(120.0, 110.0, 120.0), timeouts=6, completed=494)
    found = gates.latency("math", slow, slow, RATIO)
    assert found is not None
    assert found.verdict is CANNOT_TELL
    assert "ran into the time-out" in found.reasons[0]


def test_a_running_node_that_takes_no_time_at_all_breaks_no_ratio() -> None:
    found = gates.latency("math", times(Bounded(1.0, 0.9, 1.1)), times(Bounded(0.0, 0.0, 0.5)), RATIO)
    assert found is not None
    assert found.verdict is FAIL


@pytest.mark.parametrize("running", [None, times(Bounded(), sent=4, completed=0)])
def test_a_running_node_without_times_leaves_the_ratio_open(running: Latency | None) -> None:
    found = gates.latency("math", times(Bounded(1.0, 0.9, 1.1)), running, RATIO)
    assert found is not None
    assert found.verdict is CANNOT_TELL


@pytest.mark.parametrize("candidate", [None, times(Bounded(), sent=4, completed=0)])
def test_a_candidate_without_times_cannot_be_told(candidate: Latency | None) -> None:
    found = gates.latency("math", candidate, None, ABSOLUTE)
    assert found is not None
    assert found.reasons == ("the candidate completed no request of the load",)
    told = gates.latency("math", None, None, ABSOLUTE, why="it is down")
    assert told is not None
    assert told.reasons == ("it is down",)


def test_a_limit_that_is_not_given_makes_no_gate() -> None:
    none = Rules()
    assert gates.latency("math", times(EVEN), None, none) is None
    assert gates.errors("math", times(EVEN), none) is None
    assert gates.memory("math", Memory(peak=1.0), Memory(), none) is None


def failing(share: Bounded, sent: int = 500, **errors: int) -> Latency:
    return times(Bounded(1.0, 0.9, 1.1), errors=errors, error_share=share, sent=sent)


ONE_PERCENT = Rules(max_error_share=0.01)


@pytest.mark.parametrize(
    ("share", "verdict"),
    [
        (Bounded(0.0, 0.0, 0.007), PASS),
        (Bounded(0.01, 0.003, 0.02), PASS),
        (Bounded(0.014, 0.006, 0.03), CANNOT_TELL),
        (Bounded(0.05, 0.033, 0.07), FAIL),
    ],
)
def test_errors_fail_only_when_their_whole_interval_is_over_the_limit(share: Bounded, verdict: GateVerdict) -> None:
    found = gates.errors("math", failing(share, failed=int(share.value * 500)), ONE_PERCENT)
    assert found is not None
    assert found.verdict is verdict


def test_too_few_requests_show_no_small_share_of_failures() -> None:
    for sent, verdict in ((367, CANNOT_TELL), (368, PASS)):
        found = gates.errors("math", failing(Bounded(0.0, 0.0, 0.01), sent=sent), ONE_PERCENT)
        assert found is not None
        assert found.verdict is verdict
    few = gates.errors("math", failing(Bounded(0.0, 0.0, 0.5), sent=3), Rules(max_error_share=0.0))
    assert few is not None
    assert few.verdict is PASS, "no failure at all is allowed, and there was none"


def test_failures_are_told_by_kind() -> None:
    found = gates.errors("math", failing(Bounded(0.05, 0.033, 0.07), failed=20, timeout=5), ONE_PERCENT)
    assert found is not None
    assert found.reasons[0].startswith("25 of 500 requests failed (20 failed, 5 timeout), over the allowed 1.00%")


def test_trouble_of_the_network_is_never_held_against_the_candidate() -> None:
    found = gates.errors("math", failing(Bounded(0.0, 0.0, 0.009), unreachable=90), ONE_PERCENT)
    assert found is not None
    assert found.verdict is CANNOT_TELL
    assert "90 of them say nothing of the node" in found.reasons[0]


def test_its_own_failures_stand_beside_those_of_the_network() -> None:
    found = gates.errors("math", failing(Bounded(0.05, 0.033, 0.07), unreachable=90, failed=20), ONE_PERCENT)
    assert found is not None
    assert found.verdict is FAIL


def test_errors_of_no_load_cannot_be_told() -> None:
    for why, told in ((None, "no request of the load was sent to the candidate"), ("it is down", "it is down")):
        found = gates.errors("math", None, ONE_PERCENT, why=why)
        assert found is not None
        assert (found.verdict, found.reasons) == (CANNOT_TELL, (told,))


SIZES = Rules(max_bytes=2000, max_memory_ratio=1.5)


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        (1500.0, 1000.0, PASS),
        (2000.0, 2000.0, PASS),
        (2001.0, 2000.0, FAIL),
        (1501.0, 1000.0, FAIL),
        (1500.0, None, CANNOT_TELL),
        (1500.0, 0.0, CANNOT_TELL),
        (2001.0, None, FAIL),
        (None, 1000.0, CANNOT_TELL),
    ],
)
def test_memory_is_held_against_both_limits(ours: float | None, theirs: float | None, verdict: GateVerdict) -> None:
    found = gates.memory("math", Memory(peak=ours), Memory(peak=theirs), SIZES)
    assert found is not None
    assert found.verdict is verdict


def test_a_node_that_does_not_tell_its_memory_is_told_which_metric_is_missing() -> None:
    found = gates.memory("math", Memory(), Memory(), Rules(max_bytes=1, metric="my_bytes"))
    assert found is not None
    assert "do not tell my_bytes; set gates.memory.metric" in found.reasons[0]


@pytest.mark.parametrize(
    ("rules", "verdict"), [(Rules(max_bytes=1400), FAIL), (Rules(max_memory_ratio=1.6), PASS), (Rules(), None)]
)
def test_memory_is_held_against_the_limit_that_is_given(rules: Rules, verdict: GateVerdict | None) -> None:
    found = gates.memory("math", Memory(peak=1500.0), Memory(peak=1000.0), rules)

    assert (found.verdict if found is not None else None) is verdict
    assert found is None or len(found.reasons) == 1
