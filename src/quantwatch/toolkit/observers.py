"""Where a static activation scale clips: chosen once, from what calibration has seen."""

import torch
from torch import Tensor

from quantwatch.toolkit.capture import Histogram, Inputs
from quantwatch.toolkit.recipe import Observer

CANDIDATES = 512
"""Clips that are tried, evenly spaced up to the largest size seen."""

TOP = 127
"""Largest code of a symmetric int8 number."""


PERCENTILE = 0.9999
"""Share of |x| that the percentile observer does not clip."""


def clip(inputs: Inputs, observer: Observer) -> float:
    """The size that becomes code 127: the largest seen, the one of least mean squared error, or a percentile."""
    if observer is Observer.MINMAX:
        return float(inputs.absmax.max())
    if observer is Observer.PERCENTILE:
        return percentile_clip(inputs.histogram, PERCENTILE)
    return least_error_clip(inputs.histogram)


def percentile_clip(histogram: Histogram, share: float) -> float:
    """The upper end of the bin in which so large a share of |x| is reached; 0 for a histogram of zeros."""
    reached = histogram.counts.cumsum(0)
    place = int((reached < share * float(reached[-1])).sum())
    return histogram.limit * (min(place, len(reached) - 1) + 1) / len(reached)


def least_error_clip(histogram: Histogram) -> float:
    """The clip c whose quantizer makes the least squared error over the histogram, its bins taken at their middle.

        error(c) = sum_i n_i (x_i - min(round(x_i / d), 127) d)^2,  d = c / 127

    A small c rounds finely and clips the large; a large c the other way round. The same idea as PyTorch's
    HistogramObserver, which minimizes an estimate of this error. 0 for a histogram of zeros.
    """
    if histogram.limit == 0.0:
        return 0.0
    candidates = torch.arange(1, CANDIDATES + 1, dtype=torch.float64) * (histogram.limit / CANDIDATES)
    return float(candidates[_errors(histogram, candidates).argmin()])


def _errors(histogram: Histogram, candidates: Tensor) -> Tensor:
    x, step = histogram.centers(), candidates.unsqueeze(1) / TOP
    return ((x - (x / step).round().clamp(max=TOP) * step).square() * histogram.counts).sum(1)
