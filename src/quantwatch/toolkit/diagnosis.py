"""Why a number format hurts a model: which task sets break, which layers cause it, and what each cure buys."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor, nn

from quantwatch.flow.distribution import Distribution
from quantwatch.flow.divergence import Divergence
from quantwatch.flow.prompt import GoldenSequence
from quantwatch.flow.verdict import Finding, Limit, Metric, Quality, worst
from quantwatch.judge.threshold import findings
from quantwatch.toolkit.capture import Heard, Inputs, capture
from quantwatch.toolkit.causes import Causes, causes, exchanged
from quantwatch.toolkit.families import groups
from quantwatch.toolkit.formats import ACTIVATIONS, GROUPED, Format, Variant
from quantwatch.toolkit.quantize_study import quantized, size
from quantwatch.toolkit.score import Exam, compared, paired
from quantwatch.toolkit.smoothing import smoothed
from quantwatch.toolkit.strength import SAMPLE
from quantwatch.toolkit.survey import Site, survey

COPIES = 3
"""Models in memory at once: the given one, a smoothed one, and one that is quantized."""

PROBE = 8
"""Sequences on which layers are told apart: each layer costs a pass over all of them."""

ALPHA = 0.5

EXPORTABLE: dict[Format, str] = {one: f"--scheme {one}" for one in Format if one is not Format.INT6}
"""Options of `toolkit export` for a format that it writes."""


@dataclass(frozen=True, slots=True)
class Part:
    """A task set to diagnose: its exam, and the limits that it is held against."""

    name: str
    asked: Exam
    limits: Mapping[Metric, Limit]


@dataclass(frozen=True, slots=True)
class SetResult:
    """A quantized model on one task set."""

    name: str
    divergence: Divergence
    findings: tuple[Finding, ...]

    @property
    def quality(self) -> Quality:
        """The worst of the findings: degraded where a whole interval is beyond a critical limit."""
        return worst([one.quality for one in self.findings])


@dataclass(frozen=True, slots=True)
class Measured:
    """A quantized model on every task set. whole: all draws taken together."""

    sets: tuple[SetResult, ...]
    whole: Divergence

    def named(self, quality: Quality) -> tuple[str, ...]:
        """The task sets of this quality."""
        return tuple(one.name for one in self.sets if one.quality is quality)

    @property
    def broken(self) -> tuple[str, ...]:
        """The task sets that break for certain."""
        return self.named(Quality.DEGRADED)


@dataclass(frozen=True, slots=True)
class Plan:
    """A cure to try. variant: with it. alpha: strength of smoothing before, None for none; deep: as in smooth.

    export: options of `toolkit export` that write the model so, None where no format of it can.
    """

    name: str
    variant: Variant
    export: str | None
    alpha: float | None = None
    deep: bool = False


@dataclass(frozen=True, slots=True)
class Cured:
    """What a cure makes of it. size: bytes of all weights. recovered: share of plain rounding's mean KL that is gone.

    export: as in Plan.
    """

    name: str
    export: str | None
    measured: Measured
    size: int
    recovered: float


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything that was found. full: bytes of all weights in 16 bits. plain, size: without a cure.

    sites: the activations of full precision over the calibration prompts.
    """

    variant: Variant
    plain: Measured
    size: int
    full: int
    causes: Causes
    cures: tuple[Cured, ...]
    sites: tuple[Site, ...]


def best(cures: Sequence[Cured], *, broken: bool) -> Cured | None:
    """The smallest of the cures after which every task set surely holds, or at least none surely breaks.

    broken: whether one broke before. Where none did, and where no cure mends all, it is the one that wins most back;
    None where nothing is won back.
    """
    helping = [one for one in cures if one.recovered > 0]
    whole = [one for one in helping if broken and not one.measured.broken]
    sure = [one for one in whole if not one.measured.named(Quality.INCONCLUSIVE)]
    if whole:
        return min(sure or whole, key=lambda one: (one.size, -one.recovered))
    return max(helping, key=lambda one: one.recovered, default=None)


@dataclass(frozen=True, slots=True)
class Ward:
    """What a diagnosis works with: the model, prompts to calibrate with, and task sets. hearer: for a step's name."""

    model: nn.Module
    calibration: Sequence[Tensor]
    parts: tuple[Part, ...]
    hearer: Callable[[str], Heard]


def plans(variant: Variant, *, keep: float) -> Iterator[Plan]:
    """The cures that there are for a format.

    Weight-only formats leave activations alone, so there is nothing to smooth; formats with a scale for each row have
    no groups to cut, and no columns to keep.
    """
    served, grouped = EXPORTABLE.get(variant.format), f"--group {variant.group}"
    plain = None if served is None else f"{served} {grouped}" if variant.format in GROUPED else served
    if variant.format in ACTIVATIONS:
        smooth = f"{plain} --smooth {ALPHA:g}"
        yield Plan(f"smoothed {ALPHA:g}", variant, smooth, alpha=ALPHA)
        yield Plan(f"smoothed {ALPHA:g}, deep", variant, f"{smooth} --deep", alpha=ALPHA, deep=True)
    if variant.format in GROUPED:
        yield Plan(f"{100 * keep:g} % of channels kept", replace(variant, keep=keep), None)
        yield Plan("scales searched", replace(variant, scaled=True), plain and f"{plain} --scaled")
        for group in (variant.group // 2, variant.group * 2):
            wide = served and f"{served} --group {group}"
            if group >= 2:
                yield Plan(f"groups of {group}", replace(variant, group=group), wide)


def diagnose(ward: Ward, variant: Variant, *, keep: float, most: int) -> Diagnosis:
    """Find what breaks, why, and what helps. The model is as it was in the end.

    keep: share of channels for the cure that keeps some. most: how many of the worst layers to look into and to keep in
    full precision. Raises InputError where something computes numbers that are not finite.
    """
    inputs = capture(ward.model, ward.calibration, keep=SAMPLE, heard=ward.hearer("calibrating"))
    plain, found, kept = _plain(ward, variant, inputs, most=most)
    cures = [kept] if kept is not None else []
    cures += [_tried(ward, plan, inputs, plain) for plan in plans(variant, keep=keep)]
    sites = survey(ward.model, ward.calibration, heard=ward.hearer("looking at activations"))
    full = size(ward.model, None)
    return Diagnosis(variant, plain, size(ward.model, variant), full, found, tuple(cures), sites)


def _plain(
    ward: Ward, variant: Variant, inputs: Mapping[str, Inputs], *, most: int
) -> tuple[Measured, Causes, Cured | None]:
    """Plain rounding, where its damage comes from, and the worst layers in full precision."""
    made = quantized(ward.model, variant, inputs)
    plain = on_sets(ward, made, variant.name)
    asked = probe(ward.parts, plain)
    found = causes(ward.model, made, asked, inputs=inputs, most=most, hearer=ward.hearer)
    if most == 0:
        return plain, found, None
    layers = sorted(one.layer for one in found.worst[:most])
    heads = tuple(f"model.layers.{layer}." for layer in layers)
    names = [name for group in groups(ward.model) for name in group.names if name.startswith(heads)]
    named = f"layer{'s' if len(layers) > 1 else ''} {', '.join(map(str, layers))} in 16 bits"
    with exchanged(made, ward.model, names) as changed:
        measured = on_sets(ward, changed, named)
    kept = Plan(named, variant, None)
    return plain, found, _told(kept, plain, measured, size(ward.model, variant, full=names))


def _tried(ward: Ward, plan: Plan, inputs: Mapping[str, Inputs], plain: Measured) -> Cured:
    """One cure. Its model ends with this call, before the next one is made (COPIES)."""
    measured = on_sets(ward, _cured(ward, plan, inputs), plan.name)
    return _told(plan, plain, measured, size(ward.model, plan.variant))


def _told(plan: Plan, plain: Measured, measured: Measured, taken: int) -> Cured:
    before, after = plain.whole.kl_mean.value, measured.whole.kl_mean.value
    return Cured(plan.name, plan.export, measured, taken, 1.0 - after / before if before else 0.0)


def _cured(ward: Ward, plan: Plan, inputs: Mapping[str, Inputs]) -> nn.Module:
    if plan.alpha is None:
        return quantized(ward.model, plan.variant, inputs, heard=ward.hearer("searching scales"))
    made = smoothed(ward.model, inputs, alpha=plan.alpha, deep=plan.deep)
    return quantized(made, plan.variant, {})


def on_sets(ward: Ward, model: nn.Module, name: str) -> Measured:
    """A quantized model held against full precision on every task set, and on all draws together."""
    found, everything = [], []
    for part in ward.parts:
        pairs = paired(part.asked, model, heard=ward.hearer(f"{name}, {part.name}"))
        one = compared(pairs)
        found.append(SetResult(part.name, one, findings(one, part.limits)))
        everything += pairs
    return Measured(tuple(found), compared(everything))


def probe(parts: Sequence[Part], plain: Measured, *, most: int = PROBE) -> Exam:
    """At most so many sequences of the task sets that break, of all where none does, one from each in turn.

    Two sets may call different prompts by one id; the one that comes first is taken, with its own baseline.
    """
    broken = [part.asked for part in parts if part.name in plain.broken] or [part.asked for part in parts]
    longest = max(len(asked.sequences) for asked in broken)
    turns = [(asked, turn) for turn in range(longest) for asked in broken if turn < len(asked.sequences)]
    chosen: dict[str, tuple[GoldenSequence, Distribution]] = {}
    for asked, turn in turns:
        one = asked.sequences[turn]
        chosen.setdefault(one.prompt_id, (one, asked.baseline[one.prompt_id]))
    ids = tuple(chosen)[:most]
    sequences = tuple(chosen[id_][0] for id_ in ids)
    return Exam(sequences, {id_: chosen[id_][1] for id_ in ids}, ids, parts[0].asked.k)
