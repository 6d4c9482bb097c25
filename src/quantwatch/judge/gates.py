"""The release gate: what was measured of a candidate -> what each gate says, and the answer.

A gate passes, fails, or cannot tell; what cannot be told is never an acceptance. Limits on quality, latency and errors
fail a candidate only when the whole interval lies beyond them, as everywhere in quantwatch. Against the running node a
candidate must prove more: the upper bound of its difference has to be within the margin (non-inferiority).
"""

import math
from collections.abc import Sequence

from quantwatch.flow.acceptance import (
    TAIL,
    TITLES,
    Answer,
    Bounded,
    Figure,
    GateKind,
    GateResult,
    GateVerdict,
    Latency,
    Margins,
    Memory,
    Paired,
    Rules,
    least_requests,
    least_without_failure,
)
from quantwatch.flow.report import SetReport, TargetReport
from quantwatch.flow.verdict import BREACHES, GOOD
from quantwatch.judge.conclude import MAX_MISSING
from quantwatch.judge.threshold import LEAST_PROMPTS, name_of

Said = tuple[GateVerdict, str]

_ORDER = (GateVerdict.FAIL, GateVerdict.CANNOT_TELL, GateVerdict.PASS)


def answer(gates: Sequence[GateResult], *, complete: bool) -> tuple[Answer, tuple[str, ...]]:
    """Keep only when there are gates and every one of them passes; one that fails rejects, whatever else is unknown."""
    failed = [one for one in gates if one.verdict is GateVerdict.FAIL]
    unknown = [one for one in gates if one.verdict is GateVerdict.CANNOT_TELL]
    if failed:
        return Answer.REJECT, _told(failed)
    if unknown or not gates or not complete:
        interrupted = () if complete else ("the gate was interrupted before everything was measured",)
        return Answer.CANNOT_TELL, (*_told(unknown), *interrupted) or ("nothing was measured",)
    return Answer.KEEP, ("every gate passes",)


def _told(gates: Sequence[GateResult]) -> tuple[str, ...]:
    return tuple(f"{one.task_set}, {TITLES[one.gate]}: {reason}" for one in gates for reason in one.reasons)


def _gate(task_set: str, gate: GateKind, said: Sequence[Said], figures: Sequence[Figure]) -> GateResult:
    """One gate out of what was said; the worst decides, and only what agrees with it is told."""
    verdict = next(one for one in _ORDER if one in {one for one, _ in said})
    reasons = tuple(reason for one, reason in said if one is verdict)
    return GateResult(task_set, gate, verdict, reasons, tuple(figures))


def not_measured(task_set: str, gate: GateKind, why: str) -> GateResult:
    """A gate for which there is nothing to look at."""
    return GateResult(task_set, gate, GateVerdict.CANNOT_TELL, (why,))


def quality(candidate: TargetReport) -> GateResult:
    """The candidate of one task set against the baseline: neither degraded nor corrupted. A warning passes, told.

    What was found about the node as a whole counts where it is worse than what the task set shows.
    """
    (report,) = candidate.task_sets
    verdict, found = report.verdict, candidate.quality
    outcome = GateVerdict.PASS if found in GOOD else GateVerdict.CANNOT_TELL
    outcome = GateVerdict.FAIL if found in BREACHES else outcome
    told = verdict.reasons if verdict.quality is found else candidate.reasons
    reasons = (f"{found}: {told[0]}", *told[1:])
    return GateResult(report.name, GateKind.QUALITY, outcome, reasons, _figures(report))


def _figures(report: SetReport) -> tuple[Figure, ...]:
    figures = []
    for one in report.verdict.findings:
        interval = one.interval
        number = Bounded(one.value) if interval is None else Bounded(one.value, interval.low, interval.high)
        unit = "nats" if one.metric.startswith("kl") else ""
        figures.append(Figure(name_of(one), number, one.limit.critical, unit))
    return tuple(figures)


def against_running(task_set: str, paired: Paired | None, margins: Margins) -> GateResult:
    """The candidate against the running node, by paired differences on the same prompts."""
    if paired is None:
        why = "no prompt was answered by baseline, candidate and running node alike"
        return not_measured(task_set, GateKind.AGAINST_RUNNING, why)
    ratio = _exp(paired.log_perplexity)
    figures = (
        Figure("added mean KL", paired.kl_mean, margins.kl_mean, "nats"),
        Figure("perplexity over the running node's", ratio, math.exp(margins.log_perplexity)),
        Figure("lost top-1 agreement", paired.top1, margins.top1),
    )
    said = [_not_worse(one, paired) for one in figures]
    missing = paired.drawn - paired.prompts
    if missing > MAX_MISSING * paired.drawn:
        doubt = f"{missing} of {paired.drawn} drawn prompts are missing in the comparison with the running node"
        said.append((GateVerdict.CANNOT_TELL, doubt))
    return _gate(task_set, GateKind.AGAINST_RUNNING, said, figures)


def _exp(bounded: Bounded) -> Bounded:
    def safe(value: float) -> float:
        return math.exp(value) if value < 700 else math.inf

    return Bounded(safe(bounded.value), safe(bounded.low), safe(bounded.high))


def _not_worse(figure: Figure, paired: Paired) -> Said:
    number, margin = figure.number, figure.limit
    assert margin is not None  # noqa: S101, every figure here has its margin; this is for the type checker
    said = f"{figure.name}: {number.value:.4g}, margin {margin:.4g}"
    if paired.distinct_prompts < LEAST_PROMPTS or math.isnan(number.value):
        few = f"{paired.distinct_prompts} different prompts; {LEAST_PROMPTS} are the least"
        return GateVerdict.CANNOT_TELL, f"{said}, on {few}"
    if number.low > margin:
        return GateVerdict.FAIL, f"{said}, worse with its whole one-sided interval (from {number.low:.4g})"
    if number.high <= margin:
        return GateVerdict.PASS, f"{said}, not worse (one-sided 95 % bound {number.high:.4g})"
    return GateVerdict.CANNOT_TELL, f"{said}, but its one-sided 95 % bound {number.high:.4g} is not within; draw more"


def latency(
    task_set: str, candidate: Latency | None, running: Latency | None, rules: Rules, *, why: str | None = None
) -> GateResult | None:
    """The 99th percentile of the candidate's times, absolute and over the running node's; None without such limits.

    why: reason for which no load was sent, if it was not.
    """
    if rules.p99_seconds is None and rules.p99_ratio is None:
        return None
    if candidate is None or not candidate.timed:
        return not_measured(task_set, GateKind.LATENCY, why or "the candidate completed no request of the load")
    said, figures = [], []
    if rules.p99_seconds is not None:
        figures.append(Figure("P99 latency", candidate.p99, rules.p99_seconds, "s"))
        said.append(_tail(figures[-1], candidate, f"P99 latency {candidate.p99.value:.4g} s"))
    if rules.p99_ratio is not None and (running is None or not running.timed):
        said.append((GateVerdict.CANNOT_TELL, "the running node completed no request of the load"))
    elif rules.p99_ratio is not None and running is not None:
        ratio = _ratio(candidate.p99, running.p99)
        figures.append(Figure("P99 latency over the running node's", ratio, rules.p99_ratio))
        said.append(_tail_ratio(figures[-1], candidate, running))
    return _gate(task_set, GateKind.LATENCY, said, figures)


def _tail(figure: Figure, sample: Latency, shown: str, *, whose: str = "the candidate") -> Said:
    number, limit = figure.number, figure.limit
    assert limit is not None  # noqa: S101, as in _not_worse
    if number.low > limit:
        whole = f"with its whole interval (from {number.low:.4g})"
        return GateVerdict.FAIL, f"{shown} is over the limit {limit:.4g}, {whole}"
    few = _too_few(sample, whose)
    if few is not None:
        return GateVerdict.CANNOT_TELL, few
    if number.value > limit:
        back = f"but its interval reaches back to {number.low:.4g}"
        return GateVerdict.CANNOT_TELL, f"{shown} is over the limit {limit:.4g}, {back}; send more requests"
    return GateVerdict.PASS, f"{shown} is within the limit {limit:.4g}"


def _tail_ratio(figure: Figure, candidate: Latency, running: Latency) -> Said:
    shown = f"P99 latency over the running node's, {figure.number.value:.4g},"
    thin, whose = (candidate, "the candidate") if candidate.timed <= running.timed else (running, "the running node")
    verdict, reason = _tail(figure, thin, shown, whose=whose)
    if verdict is GateVerdict.PASS and candidate.cut_off:
        said = f"{shown} may be larger: over 1 % of the candidate's requests ran into the time-out"
        return GateVerdict.CANNOT_TELL, said
    return verdict, reason


def _too_few(sample: Latency, whose: str) -> str | None:
    least = least_requests(TAIL, sample.level)
    if sample.timed >= least:
        return None
    instead = f"P95 {sample.p95:.4g} s, slowest {sample.maximum:.4g} s"
    return f"a P99 needs {least} times at {sample.level:.1%} confidence, and {whose} gave {sample.timed} ({instead})"


def _ratio(ours: Bounded, theirs: Bounded) -> Bounded:
    """A ratio of two positive numbers whose intervals hold together: the far ends against each other."""
    low, high = max(ours.low, 0.0) / theirs.high, math.inf
    if theirs.low > 0:
        high = ours.high / theirs.low
    return Bounded(ours.value / theirs.value if theirs.value else math.inf, low, high)


def errors(task_set: str, candidate: Latency | None, rules: Rules, *, why: str | None = None) -> GateResult | None:
    """The share of the load's requests that the candidate did not answer whole; None without such a limit.

    why: as for latency.
    """
    limit = rules.max_error_share
    if limit is None:
        return None
    if candidate is None or not candidate.sent:
        return not_measured(task_set, GateKind.ERRORS, why or "no request of the load was sent to the candidate")
    failed, ours = sum(candidate.errors.values()), candidate.not_the_nodes
    kinds = ", ".join(f"{count} {kind}" for kind, count in candidate.errors.items())
    shown = f"{failed} of {candidate.sent} requests failed" + (f" ({kinds})" if kinds else "")
    figures = (Figure("failed requests", candidate.error_share, limit),)
    said = [_held(shown, candidate.error_share, limit)]
    least = least_without_failure(limit)
    if candidate.sent - ours < least:
        said.append((GateVerdict.CANNOT_TELL, f"{shown}; {least} requests are the least to show {limit:.2%} or less"))
    if ours > limit * candidate.sent:
        doubt = f"{shown}, and {ours} of them say nothing of the node: the network's trouble, or the plan's"
        said.append((GateVerdict.CANNOT_TELL, doubt))
    return _gate(task_set, GateKind.ERRORS, said, figures)


def _held(shown: str, share: Bounded, limit: float) -> Said:
    if share.value <= limit:
        return GateVerdict.PASS, f"{shown}, allowed {limit:.2%}"
    if share.low > limit:
        return GateVerdict.FAIL, f"{shown}, over the allowed {limit:.2%} with its whole interval (from {share.low:.2%})"
    back = f"but its interval reaches back to {share.low:.2%}"
    return GateVerdict.CANNOT_TELL, f"{shown}, over the allowed {limit:.2%}, {back}; send more requests"


def memory(task_set: str, candidate: Memory, running: Memory, rules: Rules) -> GateResult | None:
    """The candidate's largest memory, absolute and over the running node's; None without such limits."""
    if rules.max_bytes is None and rules.max_memory_ratio is None:
        return None
    ours, theirs, said, figures = candidate.peak, running.peak, [], []
    if ours is None:
        why = f"the candidate's /metrics do not tell {rules.metric}; set gates.memory.metric"
        return not_measured(task_set, GateKind.MEMORY, why)
    if rules.max_bytes is not None:
        figures.append(Figure("memory", Bounded(ours), float(rules.max_bytes), "B"))
        shown = f"memory {_size(ours)}"
        said.append(_within(shown, ours, rules.max_bytes, _size(rules.max_bytes)))
    if rules.max_memory_ratio is not None and not theirs:
        why = f"the running node's /metrics do not tell {rules.metric}; set gates.memory.metric"
        said.append((GateVerdict.CANNOT_TELL, why))
    elif rules.max_memory_ratio is not None and theirs:
        figures.append(Figure("memory over the running node's", Bounded(ours / theirs), rules.max_memory_ratio))
        shown = f"memory {_size(ours)} is {ours / theirs:.4g} times the running node's"
        said.append(_within(shown, ours / theirs, rules.max_memory_ratio, f"{rules.max_memory_ratio:.4g}"))
    return _gate(task_set, GateKind.MEMORY, said, figures)


def _within(shown: str, value: float, limit: float, limit_shown: str) -> Said:
    if value > limit:
        return GateVerdict.FAIL, f"{shown}, over the limit {limit_shown}"
    return GateVerdict.PASS, f"{shown}, within the limit {limit_shown}"


def _size(value: float) -> str:
    return f"{value / 2**20:.4g} MiB"
