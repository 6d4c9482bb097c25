"""Streaming statistics of activations: any number of tokens in a fixed amount of memory, seen once."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

LOWEST = -16
"""The coarse bins begin at 2^-16; what is smaller is counted with them."""

OCTAVES = 32
"""And end at 2^16, about where FP16 ends; what is larger is counted in the last one."""

COARSE = 4
"""Bins an octave for each channel: a quantile is off by an eighth at most."""

FINE = 128
"""Bins an octave for a tensor as a whole: a quantile is off by 0.4 % at most."""

MANTISSA_BITS = 23
EXPONENT_BIAS = 127


@dataclass(frozen=True, slots=True)
class Bins:
    """Edges of a fixed histogram of |x|: each octave 2^e to 2^(e + 1) is cut into equal parts.

    So an index is the exponent and the first bits of the mantissa of a float32, and no logarithm is rounded. an_octave:
    a power of two.
    """

    an_octave: int

    @property
    def number(self) -> int:
        """How many bins."""
        return OCTAVES * self.an_octave

    def index(self, sizes: Tensor) -> Tensor:
        """The bin of each size: int64 of the same shape. sizes: float32 without negatives."""
        bits = self.an_octave.bit_length() - 1
        places = (sizes.contiguous().view(torch.int32) >> (MANTISSA_BITS - bits)).long()
        return (places - ((EXPONENT_BIAS + LOWEST) << bits)).clamp_(0, self.number - 1)

    def edges(self) -> Tensor:
        """(number + 1,) float64; the first is 0, since what is smaller than all counts there."""
        places = torch.arange(self.number + 1, dtype=torch.float64)
        octave = (places / self.an_octave).floor()
        edges = torch.exp2(octave + LOWEST) * (1 + (places - octave * self.an_octave) / self.an_octave)
        edges[0] = 0.0
        return edges

    def share_up_to(self, counts: Tensor, limits: Tensor) -> Tensor:
        """Share of the counted sizes that are at most a limit, evenly spread within a bin: (rows,) float64.

        counts: (rows, number). limits: (rows,) float64. 1 where nothing was counted.
        """
        edges = self.edges().to(counts.device)
        low, high = edges[:-1], edges[1:]
        within = ((limits.unsqueeze(1) - low) / (high - low)).clamp(0.0, 1.0)
        total = counts.sum(1)
        return torch.where(total > 0, (counts * within).sum(1) / total.clamp(min=1), 1.0)

    def quantile(self, counts: Tensor, share: float) -> Tensor:
        """The size that so large a share of the counted does not exceed, evenly spread within a bin: (rows,) float64.

        counts: (rows, number). 0 where nothing was counted.
        """
        edges = self.edges().to(counts.device)
        reached = counts.double().cumsum(1)
        wanted = reached[:, -1:] * share
        place = (reached < wanted).sum(1, keepdim=True).clamp(max=self.number - 1)
        inside = counts.double().gather(1, place)
        before = reached.gather(1, place) - inside
        part = ((wanted - before) / inside.clamp(min=1)).clamp(0.0, 1.0)
        low, high = edges[place], edges[place + 1]
        return torch.where(reached[:, -1:] > 0, low + part * (high - low), 0.0).squeeze(1)


CHANNEL_BINS = Bins(COARSE)
TENSOR_BINS = Bins(FINE)


@dataclass(slots=True)
class Moments:
    """Count, mean and central sums of powers of n columns, joined batch by batch in float64.

    mean: (n,). second, third, fourth: (n,) sums of (x - mean)^p. The joining is that of Pebay 2008, "Formulas for
    robust, one-pass parallel computation of covariances and arbitrary-order statistical moments", equation 3.1.
    """

    count: int
    mean: Tensor
    second: Tensor
    third: Tensor
    fourth: Tensor

    @classmethod
    def of(cls, x: Tensor) -> "Moments":
        """The moments of rows: (m, n) of any float type, m at least 1."""
        x = x.double()
        mean = x.mean(0)
        away = x - mean
        square = away * away
        return cls(len(x), mean, square.sum(0), (square * away).sum(0), (square * square).sum(0))

    def joined(self, other: "Moments") -> "Moments":
        """The moments of both parts together."""
        a, b = self.count, other.count
        n, delta = a + b, other.mean - self.mean
        second = self.second + other.second + delta**2 * (a * b / n)
        third = (
            self.third
            + other.third
            + delta**3 * (a * b * (a - b) / n**2)
            + 3 * delta * (a * other.second - b * self.second) / n
        )
        fourth = (
            self.fourth
            + other.fourth
            + delta**4 * (a * b * (a * a - a * b + b * b) / n**3)
            + 6 * delta**2 * (a * a * other.second + b * b * self.second) / n**2
            + 4 * delta * (a * other.third - b * self.third) / n
        )
        return Moments(n, self.mean + delta * (b / n), second, third, fourth)

    def over_all(self) -> "Moments":
        """The moments of all columns taken as one: fields (1,)."""
        mean = self.mean.mean()
        away = self.mean - mean
        each = self.count
        second = self.second + each * away**2
        third = self.third + 3 * away * self.second + each * away**3
        fourth = self.fourth + 4 * away * self.third + 6 * away**2 * self.second + each * away**4
        sums = (one.sum().unsqueeze(0) for one in (second, third, fourth))
        return Moments(each * len(self.mean), mean.unsqueeze(0), *sums)

    def kurtosis(self) -> Tensor:
        """N sum (x - mean)^4 / (sum (x - mean)^2)^2: (n,) float64, 3 for a normal distribution, NaN for a constant."""
        constant = self.second <= 1e-24 * self.count * (1e-12 + self.mean**2)
        return torch.where(constant, torch.nan, self.count * self.fourth / self.second**2)


@dataclass(slots=True)
class ChannelStatistics:
    """What n channels carried, token by token.

    least, most: (n,) float32. counts: (n, CHANNEL_BINS.number) int32, of |x|. whole: (TENSOR_BINS.number,) int64, of
    |x| over all channels. by_token: how the tokens fare with a scale of their own each.
    """

    channels: int
    least: Tensor = field(init=False)
    most: Tensor = field(init=False)
    counts: Tensor = field(init=False)
    whole: Tensor = field(init=False)
    moments: Moments | None = field(default=None, init=False)
    by_token: dict[int, "TokenScales"] = field(default_factory=dict, init=False)
    broken: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.least = torch.full((self.channels,), torch.inf)
        self.most = torch.full((self.channels,), -torch.inf)
        self.counts = torch.zeros(self.channels, CHANNEL_BINS.number, dtype=torch.int32)
        self.whole = torch.zeros(TENSOR_BINS.number, dtype=torch.int64)

    @torch.no_grad()
    def add(self, x: Tensor) -> None:
        """Take in activations (..., n). Once one was not finite, `broken` tells and nothing more is counted."""
        rows = x.detach().float().flatten(0, -2)
        if self.broken or not len(rows):
            return
        if not bool(rows.isfinite().all()):
            self.broken = True
            return
        sizes = rows.abs()
        self._count(rows, sizes)
        moments = Moments.of(rows)
        self.moments = moments if self.moments is None else self.moments.joined(moments)
        for bits in (8, 4):
            self.by_token.setdefault(bits, TokenScales(bits)).add(sizes)

    def _count(self, rows: Tensor, sizes: Tensor) -> None:
        if self.least.device != rows.device:
            for name in ("least", "most", "counts", "whole"):
                setattr(self, name, getattr(self, name).to(rows.device))
        self.least = torch.minimum(self.least, rows.amin(0))
        self.most = torch.maximum(self.most, rows.amax(0))
        number = CHANNEL_BINS.number
        places = CHANNEL_BINS.index(sizes) + torch.arange(self.channels, device=rows.device) * number
        self.counts += torch.bincount(places.flatten(), minlength=self.channels * number).view(-1, number).int()
        self.whole += torch.bincount(TENSOR_BINS.index(sizes).flatten(), minlength=TENSOR_BINS.number)

    @property
    def absmax(self) -> Tensor:
        """Largest |x| of each channel: (n,) float32."""
        return torch.maximum(self.least.abs(), self.most.abs())

    @property
    def tokens(self) -> int:
        """How many tokens were seen."""
        return 0 if self.moments is None else self.moments.count


@dataclass(slots=True)
class TokenScales:
    """Symmetric scales of one token each, max|x| / (2^(bits-1) - 1): what they are and what they round away.

    total: their sum. largest: the largest. zeros, small: how many activations round to 0, and to 0 or +-1.
    """

    bits: int
    total: float = 0.0
    largest: float = 0.0
    zeros: int = 0
    small: int = 0

    def add(self, sizes: Tensor) -> None:
        """Take in |x| of tokens: (m, n)."""
        tiny = torch.finfo(torch.float32).tiny
        scales = sizes.amax(1, keepdim=True) / (2 ** (self.bits - 1) - 1)
        codes = (sizes / scales.clamp(min=tiny)).round_()
        self.total += float(scales.double().sum())
        self.largest = max(self.largest, float(scales.max()))
        self.zeros += int((codes == 0).sum())
        self.small += int((codes <= 1).sum())
