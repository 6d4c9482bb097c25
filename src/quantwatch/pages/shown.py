"""Numbers, moments and spans of time as people read them."""

import math
from datetime import UTC, datetime

from quantwatch.pages.manner import Language

NOTHING = "–"
"""Stands where there is no value."""

_SPANS: tuple[tuple[float, dict[Language, str]], ...] = (
    (86_400.0, {"en": "{n} d", "zh": "{n} 天"}),
    (3_600.0, {"en": "{n} h", "zh": "{n} 小时"}),
    (60.0, {"en": "{n} min", "zh": "{n} 分钟"}),
    (0.0, {"en": "{n} s", "zh": "{n} 秒"}),
)


def number(value: float | None, digits: int = 3) -> str:
    """A number with so many significant digits: `0.0123`, `1.02`, `4.1e-06`, `1234`; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if size < -4:
        return f"{value:.{digits - 1}e}"
    return f"{value:.{max(0, digits - 1 - size)}f}"


def share(value: float | None) -> str:
    """A ratio from 0 to 1 in percent: `97.5 %`."""
    return NOTHING if value is None or not math.isfinite(value) else f"{value * 100:.1f} %"


def ratio(value: float | None) -> str:
    """A ratio around 1 with as many places as its limits are told in: `1.0143`."""
    return NOTHING if value is None or not math.isfinite(value) else f"{value:.4f}"


def seconds(value: float | None) -> str:
    """A time that a probe or a run took: `0.25 s`, `31 s`."""
    return NOTHING if value is None or not math.isfinite(value) else f"{number(value, 2)} s"


def figure(metric: str, value: float | None) -> str:
    """A number of a metric, written as its kind is."""
    kinds = {"top1_agreement": share, "perplexity_ratio": ratio, "latency": seconds}
    return kinds.get(metric, number)(value)


def iso(at: datetime) -> str:
    """A moment for machines."""
    return at.astimezone(UTC).isoformat(timespec="seconds")


def moment(at: datetime) -> str:
    """A moment for people, in UTC, to the minute."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def exactly(at: datetime) -> str:
    """A moment for people, in UTC, to the second."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def span(elapsed: float, language: Language) -> str:
    """A span in seconds in its largest unit: `3 h`."""
    size = abs(elapsed)
    unit, words = next((unit, words) for unit, words in _SPANS if size >= unit)
    return words[language].format(n=int(size // unit) if unit else int(size))
