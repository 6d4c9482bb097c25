"""What the ranges of activations mean: outlier channels, the scales they force, and what those round away."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from quantwatch.toolkit.statistics import CHANNEL_BINS, TENSOR_BINS, ChannelStatistics
from quantwatch.toolkit.survey import Site

ALSO = 5.0
"""A channel that is heavy-tailed alone is an outlier from this multiple of the median channel on."""


@dataclass(frozen=True, slots=True)
class Limits:
    """From where on a channel is an outlier; any one suffices.

    ratio: its absmax over the absmax of the site's median channel. absmax: in itself. kurtosis: over the tokens, 3 for
    a normal distribution, large where few tokens carry all; counts only for channels over ALSO times the median.
    """

    ratio: float = 20.0
    absmax: float = 100.0
    kurtosis: float = 100.0


class Reason(StrEnum):
    """Which limit a channel passes."""

    RATIO = "ratio"
    ABSMAX = "absmax"
    KURTOSIS = "kurtosis"


@dataclass(frozen=True, slots=True)
class Outlier:
    """A channel that is far larger than its neighbours. ratio: inf where the median channel is always 0."""

    site: Site
    channel: int
    absmax: float
    ratio: float
    kurtosis: float
    reasons: tuple[Reason, ...]


class By(StrEnum):
    """What shares a scale."""

    TENSOR = "tensor"
    TOKEN = "token"  # noqa: S105, what shares a scale, no password
    CHANNEL = "channel"


@dataclass(frozen=True, slots=True)
class Consequence:
    """What a symmetric quantizer makes of a site.

    scale: S = max|x| / (2^(bits-1) - 1); the mean over tokens, the median over channels. zeros, small: share of the
    activations that round to 0, and to 0 or +-1: exact by token, else read off histograms (within half a bin).
    """

    bits: int
    by: By
    scale: float
    zeros: float
    small: float


@dataclass(frozen=True, slots=True)
class Range:
    """How wide the activations of a site are.

    span: largest over least absmax of a channel, inf where one is always 0. kurtosis: over all of them.
    p50, p99, p999: quantiles of |x|.
    """

    least: float
    most: float
    mean: float
    absmax: float
    median_channel: float
    span: float
    kurtosis: float
    p50: float
    p99: float
    p999: float


def outliers(site: Site, limits: Limits) -> tuple[Outlier, ...]:
    """The outlier channels of a site, largest first."""
    statistics = site.statistics
    if statistics.moments is None:
        return ()
    absmax = statistics.absmax.double().cpu()
    ratio = absmax / absmax.median()
    kurtosis = statistics.moments.kurtosis().cpu()
    found = []
    for channel in absmax.argsort(descending=True).tolist():
        values = float(absmax[channel]), float(ratio[channel]), float(kurtosis[channel])
        reasons = tuple(_reasons(*values, limits=limits))
        if reasons:
            found.append(Outlier(site, channel, *values, reasons))
    return tuple(found)


def _reasons(absmax: float, ratio: float, kurtosis: float, *, limits: Limits) -> Iterator[Reason]:
    if ratio >= limits.ratio:
        yield Reason.RATIO
    if absmax >= limits.absmax:
        yield Reason.ABSMAX
    if kurtosis >= limits.kurtosis and ratio >= ALSO:
        yield Reason.KURTOSIS


def value_range(statistics: ChannelStatistics) -> Range:
    """The range summary of what was seen. Raises ValueError where nothing was."""
    if statistics.moments is None:
        raise ValueError("no activation was seen")
    absmax, whole = statistics.absmax.double().cpu(), statistics.moments.over_all()
    least = float(absmax.min())
    counts = statistics.whole.unsqueeze(0)
    p50, p99, p999 = (min(float(TENSOR_BINS.quantile(counts, q)), float(absmax.max())) for q in (0.5, 0.99, 0.999))
    return Range(
        least=float(statistics.least.min()),
        most=float(statistics.most.max()),
        mean=float(whole.mean),
        absmax=float(absmax.max()),
        median_channel=float(absmax.median()),
        span=float(absmax.max()) / least if least else math.inf,
        kurtosis=float(whole.kurtosis()),
        p50=p50,
        p99=p99,
        p999=p999,
    )


def consequences(statistics: ChannelStatistics) -> tuple[Consequence, ...]:
    """What INT8 and INT4 make of the activations, with one scale by tensor, by token and by channel."""
    return tuple(one for bits in (8, 4) for one in _consequences(statistics, bits))


def _consequences(statistics: ChannelStatistics, bits: int) -> Iterator[Consequence]:
    top = 2 ** (bits - 1) - 1
    absmax = statistics.absmax.double()
    scale = absmax.max() / top
    counts = statistics.whole.unsqueeze(0)
    # Half rounds to even: up to half a step becomes 0, and up to one and a half 0 or 1.
    shares = [float(TENSOR_BINS.share_up_to(counts, (steps * scale).view(1))) for steps in (0.5, 1.5)]
    yield Consequence(bits, By.TENSOR, float(scale), *shares)
    token, seen = statistics.by_token[bits], statistics.tokens * statistics.channels
    yield Consequence(bits, By.TOKEN, token.total / statistics.tokens, token.zeros / seen, token.small / seen)
    scales = absmax / top
    shares = [_mean_share(statistics, steps * scales) for steps in (0.5, 1.5)]
    yield Consequence(bits, By.CHANNEL, float(scales.median()), *shares)


def _mean_share(statistics: ChannelStatistics, limits: Tensor) -> float:
    """Every channel has seen as many tokens, so the mean of their shares is the share of all."""
    return float(CHANNEL_BINS.share_up_to(statistics.counts, limits).mean())


@dataclass(frozen=True, slots=True)
class Finding:
    """All that is told of one site."""

    site: Site
    range: Range
    consequences: tuple[Consequence, ...]
    outliers: tuple[Outlier, ...]

    def of(self, bits: int, by: By) -> Consequence:
        """The consequence of one quantizer."""
        return next(one for one in self.consequences if (one.bits, one.by) == (bits, by))


def findings(sites: Sequence[Site], limits: Limits) -> tuple[Finding, ...]:
    """What is told of each site, in their order."""
    return tuple(
        Finding(site, value_range(site.statistics), consequences(site.statistics), outliers(site, limits))
        for site in sites
    )


def heat(sites: Sequence[Site]) -> dict[str, Tensor]:
    """Absmax by place: (layers, channels) float32 each, so that a channel that is large in every layer is a line."""
    places = dict.fromkeys(site.place for site in sites)
    return {place: torch.stack([_of(site) for site in sites if site.place == place]) for place in places}


def spectrum(sites: Sequence[Site]) -> dict[str, Tensor]:
    """Counts of |x| in TENSOR_BINS by place, over all layers: (number,) int64 each. Keys and values stand apart."""
    places = dict.fromkeys(site.place for site in sites)
    counts = {place: [site.statistics.whole.cpu() for site in sites if site.place == place] for place in places}
    return {place: torch.stack(each).sum(0) for place, each in counts.items()}


def _of(site: Site) -> Tensor:
    return site.statistics.absmax.float().cpu()
