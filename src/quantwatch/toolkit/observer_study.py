"""How a static activation scale depends on the observer that chooses it, and on how much the observer has seen."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

from quantwatch.errors import InputError
from quantwatch.flow.divergence import Divergence
from quantwatch.toolkit.capture import captured_at
from quantwatch.toolkit.fake_quant import quantize
from quantwatch.toolkit.recipe import Observer, Scheme
from quantwatch.toolkit.score import divergence
from quantwatch.toolkit.smooth_study import Bench

COPIES = 2


@dataclass(frozen=True, slots=True)
class Calibrated:
    """W8A8 with static activations whose scales come from so many prompts."""

    observer: Observer
    prompts: int
    divergence: Divergence


def observer_study(bench: Bench, counts: Sequence[int]) -> tuple[Calibrated, ...]:
    """Calibrate every observer on the first prompts, as many as each count says, in one pass; measure each.

    Raises InputError for a count below 1 or over the number of calibration prompts.
    """
    most = len(bench.calibration)
    if not counts or min(counts) < 1 or max(counts) > most:
        raise InputError(f"--counts: numbers from 1 to {most}, of calibration prompts, are wanted")
    held = captured_at(bench.model, bench.calibration[: max(counts)], counts, heard=bench.hearer("calibrating"))
    found = []
    for count in counts:
        for observer in Observer:
            made = copy.deepcopy(bench.model)
            quantize(made, Scheme.W8A8_STATIC, inputs=held[count], observer=observer)
            heard = bench.hearer(f"{observer}, {count} prompts")
            found.append(Calibrated(observer, count, divergence(bench.asked, made, heard=heard)))
    return tuple(found)
