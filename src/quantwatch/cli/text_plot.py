"""Distributions of KL values as lines of blocks on a logarithmic axis, for a terminal."""

from collections.abc import Iterator, Sequence
from math import floor, log10

from quantwatch.flow.calibration import BINS, BINS_A_DECADE, HIGHEST_DECADE, LOWEST_DECADE, SetCalibration, Spread
from quantwatch.flow.verdict import Metric

BLOCKS = " ▁▂▃▄▅▆▇█"
LABEL = 18


def text_plot(spreads: Sequence[Spread], marks: Sequence[tuple[str, float]]) -> Iterator[str]:
    """Lines of at most 80 columns: one a distribution, then one for the marks, then the axis.

    The height of a block is the square root of the share of the values in it, so that a thin tail is still seen. `=0`:
    how many in a hundred are exactly 0. marks: a letter and a value in nats.
    """
    for spread in spreads:
        zero = round(100 * spread.zeros / max(spread.total, 1))
        yield f"{spread.name:<{LABEL}}{zero:>3}|{_blocks(spread)}|"
    if marks:
        yield f"{'limits, mean KL':<{LABEL}}   |{_marks(marks)}|"
    yield f"{'nats':<{LABEL}} =0 {_axis()}"


def _blocks(spread: Spread) -> str:
    most = max(spread.counts, default=0)
    return "".join(BLOCKS[_height(count, most)] for count in spread.counts)


def _height(count: int, most: int) -> int:
    """At least one step for anything that is there."""
    return 0 if count == 0 else max(round((count / most) ** 0.5 * (len(BLOCKS) - 1)), 1)


def place(value: float) -> int:
    """The bin of a value in nats."""
    return min(max(floor((log10(value) - LOWEST_DECADE) * BINS_A_DECADE), 0), BINS - 1) if value > 0 else 0


def _marks(marks: Sequence[tuple[str, float]]) -> str:
    line = [" "] * BINS
    for letter, value in marks:
        line[place(value)] = letter
    return "".join(line)


def _axis() -> str:
    """A number where each decade begins."""
    line = [" "] * (BINS + 2)
    for decade in range(LOWEST_DECADE, HIGHEST_DECADE):
        at = (decade - LOWEST_DECADE) * BINS_A_DECADE
        text = f"1e{decade}" if decade < -2 else f"{10.0**decade:g}"
        line[at : at + len(text)] = list(text)
    return "".join(line).rstrip()


def limit_marks(one: SetCalibration) -> Sequence[tuple[str, float]]:
    """The proposed limits on mean KL: w and c, in nats; none where none is proposed."""
    found = next((p.limit for p in one.proposals if p.level.metric is Metric.KL_MEAN), None)
    if found is None:
        return ()
    return tuple((letter, value) for letter, value in (("w", found.warn), ("c", found.critical)) if value is not None)
