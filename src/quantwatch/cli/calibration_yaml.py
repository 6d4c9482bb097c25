"""Proposed limits as a block for the configuration, with the evidence beside every number."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from quantwatch.flow.calibration import Calibrated, Proposal, SetCalibration, far_end
from quantwatch.flow.identity import Identity
from quantwatch.flow.verdict import Limit, Metric
from quantwatch.judge.propose import noise_floor, widest
from quantwatch.judge.threshold import LABELS

HEAD = """\
# Limits proposed by `quantwatch calibrate` on {at}. Nothing is in force until a person puts it there: copy
# what you agree with into the configuration, then `quantwatch check-config FILE`, `quantwatch reload --config FILE`.
# Distances: KL in nats, |ln| of the perplexity ratio, 1 - top-1. docs/calibration.md has the formulas.
"""


def proposal_yaml(whole: Calibrated, configured: Mapping[str, str]) -> str:
    """A YAML block that a configuration takes as it is. configured: all its targets with their schemes.

    Limits of a task set hold for all targets, so they stand there only where all are of one scheme; else they stand
    under their scheme, the widest that any of its task sets needs.
    """
    lines = [HEAD.format(at=f"{whole.at:%Y-%m-%d %H:%M} UTC").rstrip()]
    if not whole.complete:
        lines.append("# Interrupted or stopped early: this is what the cycles so far say.")
    measured = {one.target for one in whole.sets}
    others = [name for name in configured if name not in measured]
    if others:
        lines.append(f"# Not measured, and limits hold for all targets of a task set or scheme: {', '.join(others)}")
    lines += _by_scheme(whole) if len(set(configured.values())) > 1 else _by_set(whole)
    return "\n".join(lines) + "\n"


Found = Sequence[tuple[str, Sequence[Proposal]]]
"""What is proposed for the same place by each of several targets or task sets, with their names."""


def _by_set(whole: Calibrated) -> Iterator[str]:
    names = list(dict.fromkeys(one.task_set for one in whole.sets))
    blocks = {name: list(_task_set([one for one in whole.sets if one.task_set == name])) for name in names}
    if any(_holds(block) for block in blocks.values()):
        yield "task_sets:"
    for name, block in blocks.items():
        yield f"  {name}:" if _holds(block) else f"  # {name}: no limit"
        yield from (f"    # {line}" for one in whole.sets if one.task_set == name for line in _source(one))
        yield from block


def _task_set(sets: Sequence[SetCalibration]) -> Iterator[str]:
    """The limits of a task set, then those of its parts."""
    yield from _place("    ", "limits", _block([(one.name, one.proposals) for one in sets]))
    keys = dict.fromkeys((str(found.part.dimension), found.part.value) for one in sets for found in one.parts)
    slices: dict[str, list[str]] = {}
    for dimension, value in keys:
        found = [
            (f"{one.name}, {part.name}", part.proposals)
            for one in sets
            for part in one.parts
            if (str(part.part.dimension), part.part.value) == (dimension, value)
        ]
        slices.setdefault(dimension, []).extend(_place("", f'"{value}"', _block(found)))
    inner = [line for name, lines in slices.items() for line in _place("", name, lines)]
    yield from _place("    ", "slices", inner) if inner else ()


def _place(indent: str, key: str, block: Iterable[str]) -> Iterator[str]:
    """A block under its key; under a comment where it holds no limit at all."""
    lines = list(block)
    yield f"{indent}{key}:" if _holds(lines) else f"{indent}# {key}: none"
    yield from (f"{indent}  {line}" for line in lines)


def _by_scheme(whole: Calibrated) -> Iterator[str]:
    yield "# The targets are of several schemes, so these stand by scheme: the widest over its task sets."
    yield "# What a task set says under its own limits still wins over them. Parts have limits in a task set only."
    names = list(dict.fromkeys(one.scheme for one in whole.sets))
    blocks = {
        name: list(_block([(one.name, one.proposals) for one in whole.sets if one.scheme == name])) for name in names
    }
    if any(_holds(block) for block in blocks.values()):
        yield "limits:"
    for name, block in blocks.items():
        yield f"  {name}:" if _holds(block) else f"  # {name}: no limit"
        yield from (f"    # {line}" for one in whole.sets if one.scheme == name for line in _source(one))
        yield from (f"    {line}" for line in block)


def _holds(block: Sequence[str]) -> bool:
    return any(not line.lstrip().startswith("#") for line in block)


def _source(one: SetCalibration) -> Iterator[str]:
    """Where the numbers of a target and task set come from."""
    bound = one.estimator.value if one.estimator is not None else "no"
    yield (
        f"{one.name} ({one.scheme}): {one.cycles} cycles of {one.draw} prompts, {one.prompts} different, "
        f"{one.positions} positions, k {one.k}, {one.mode.value}, {bound} bound, fingerprint {one.basis or 'unknown'}"
    )
    yield f"node {_server(one.node)}; baseline {_server(one.baseline)}"
    yield from (" ".join(line.split()) for line in one.left_out)


def _server(identity: Identity | None) -> str:
    if identity is None:
        return "unknown"
    return " ".join((identity.root or identity.model, f"(vLLM {identity.version or 'unknown'})")).replace("\n", " ")


def _block(found: Found) -> Iterator[str]:
    """Limits by metric, the widest; a metric that one of them could not be given is left out for all."""
    metrics = {proposal.level.metric for _, proposals in found for proposal in proposals}
    for metric in Metric:
        if metric in metrics:
            named = [(name, one) for name, proposals in found for one in proposals if one.level.metric is metric]
            yield from _metric(metric, named, all_there=len(named) == len(found))


def _metric(metric: Metric, named: Sequence[tuple[str, Proposal]], *, all_there: bool) -> Iterator[str]:
    limits = [proposal.limit for _, proposal in named if proposal.limit is not None]
    if all_there and len(limits) == len(named):
        yield f"{metric.value}:"
        yield from _numbers(widest(metric, limits))
    else:
        yield f"# {metric.value}: no limit proposed"
    yield from (f"  # {name}: {_evidence(metric, proposal)}" for name, proposal in named)


def _numbers(limit: Limit) -> Iterator[str]:
    yield f"  warn: {limit.warn:.10g}"
    yield f"  critical: {limit.critical:.10g}"


def _evidence(metric: Metric, proposal: Proposal) -> str:
    """Value, interval, cycles, noise, and which part of the formula decided."""
    level = proposal.level
    interval = level.pooled.interval
    ends = "" if interval is None else f", 95 % {interval.low:.4g} .. {interval.high:.4g}"
    values = [cycle.value for cycle in level.cycles]
    between = f", cycles {min(values):.4g} .. {max(values):.4g}" if values else ""
    noise = f", noise floor {noise_floor(level):.3g}, far end at {far_end(metric, level.pooled):.4g}"
    given = "critical is" if proposal.limit is not None else "none:"
    return (
        f"{LABELS[metric]} {level.pooled.value:.4g}{ends}{between}{noise}; {given} {' '.join(proposal.reason.split())}"
    )
