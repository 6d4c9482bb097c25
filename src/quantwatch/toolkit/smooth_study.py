"""What smoothing does to a model: how far the scales of its activations drop, and how much nearer W8A8 comes."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from quantwatch.flow.divergence import Divergence
from quantwatch.toolkit.capture import Heard, Inputs, capture
from quantwatch.toolkit.fake_quant import quantize
from quantwatch.toolkit.recipe import Scheme
from quantwatch.toolkit.score import Exam, divergence
from quantwatch.toolkit.smoothing import Alpha, smoothable, smoothed
from quantwatch.toolkit.strength import SAMPLE, strengths

COPIES = 3
"""Models in memory at once: the given one, the smoothed one, and one that is quantized."""

SCHEMES = (Scheme.W8A8, Scheme.W8A8_STATIC)


@dataclass(frozen=True, slots=True)
class Drop:
    """One group before and after: largest |x|, its multiple of the median channel, and the strength that was used."""

    name: str
    alpha: float
    before: float
    after: float
    uneven_before: float
    uneven_after: float

    @property
    def share(self) -> float:
        """By what share one scale for the tensor shrinks: 0.9 where it is a tenth."""
        return 1.0 - self.after / self.before if self.before else 0.0


@dataclass(frozen=True, slots=True)
class Bench:
    """What a study works with: the model, prompts to calibrate with, and the exam. heard: makes a hearer for a name."""

    model: nn.Module
    calibration: Sequence[Tensor]
    asked: Exam
    hearer: Callable[[str], Heard]


@dataclass(frozen=True, slots=True)
class SmoothStudy:
    """model: the smoothed copy. drops: by group. naive, cured: W8A8 of the given and of the smoothed model."""

    model: nn.Module
    drops: tuple[Drop, ...]
    naive: Mapping[Scheme, Divergence]
    cured: Mapping[Scheme, Divergence]

    @property
    def mean_drop(self) -> float:
        """Mean over the groups of the share by which a scale shrinks."""
        return sum(one.share for one in self.drops) / len(self.drops)


def smooth_study(bench: Bench, *, alpha: float | None, deep: bool) -> SmoothStudy:
    """Smooth a copy of the model, alpha None for the best strength of each group, and hold both against full precision.

    The given model stays as it is. Raises InputError for an alpha outside 0 to 1, and for models that compute NaN.
    """
    model, texts = bench.model, bench.calibration
    inputs = capture(model, texts, keep=0 if alpha is not None else SAMPLE, heard=bench.hearer("calibrating"))
    chosen: Alpha = alpha if alpha is not None else strengths(model, inputs, deep=deep, heard=bench.hearer("searching"))
    made = smoothed(model, inputs, alpha=chosen, deep=deep)
    after = capture(made, texts, heard=bench.hearer("calibrating the smoothed model"))
    names = [group.names[0] for group in smoothable(model, deep=deep)]
    drops = tuple(_drop(name, chosen, inputs[name], after[name]) for name in names)
    return SmoothStudy(made, drops, _measured(bench, model, inputs), _measured(bench, made, after, "smoothed "))


def _drop(name: str, alpha: Alpha, before: Inputs, after: Inputs) -> Drop:
    value = alpha if isinstance(alpha, int | float) else alpha[name]
    sizes = float(before.absmax.max()), float(after.absmax.max())
    medians = float(before.absmax.median()), float(after.absmax.median())
    uneven = [size / median if median else float("inf") for size, median in zip(sizes, medians, strict=True)]
    return Drop(name, value, *sizes, *uneven)


def _measured(bench: Bench, model: nn.Module, inputs: Mapping[str, Inputs], what: str = "") -> dict[Scheme, Divergence]:
    found = {}
    for scheme in SCHEMES:
        made = copy.deepcopy(model)
        quantize(made, scheme, inputs=inputs)
        found[scheme] = divergence(bench.asked, made, heard=bench.hearer(f"{what}{scheme}"))
    return found
