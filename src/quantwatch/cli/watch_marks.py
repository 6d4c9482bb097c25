"""How far a number has gone towards its limit, and the way that it came, in a few columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from quantwatch.cli.tables import number
from quantwatch.cli.text_plot import BLOCKS
from quantwatch.flow.verdict import Metric

EIGHTHS = " ▏▎▍▌▋▊▉█"
PLAIN_BLOCKS = " .:-=+*#@"

LABELS = {Metric.KL_MEAN: "KL", Metric.PERPLEXITY_RATIO: "PPL", Metric.TOP1_AGREEMENT: "top-1"}
PERFECT = {Metric.KL_MEAN: 0.0, Metric.PERPLEXITY_RATIO: 1.0, Metric.TOP1_AGREEMENT: 1.0}
DIGITS = {Metric.KL_MEAN: 8, Metric.PERPLEXITY_RATIO: 6, Metric.TOP1_AGREEMENT: 6}


@dataclass(frozen=True, slots=True)
class Room:
    """Columns of a bar and of a line of past values. limits: whether there is room for the limit as a number.

    plain: the terminal can show ASCII alone.
    """

    bar: int
    past: int
    limits: bool = False
    plain: bool = False


def room(columns: int, *, plain: bool) -> Room:
    """What fits beside a task set's name in so many columns."""
    texts = sum(len(label) + 1 for label in LABELS.values()) + sum(DIGITS.values())
    wide = columns >= 110
    free = columns - texts - 10 - (3 * 9 if wide else 0)
    bar = max(0, min(10, free // 3 * 3 // 7))
    return Room(bar, max(0, min(24, free // 3 - bar)), limits=wide, plain=plain)


def share(metric: Metric, value: float, limit: float) -> float:
    """How much of the way from perfect to a limit a value has gone; 1 is the limit, below 0 better than perfect."""
    perfect = PERFECT[metric]
    way = limit - perfect
    return (value - perfect) / way if way else float(value != perfect)


def worst_share(task_set: Mapping[str, Any]) -> float:
    """The largest share of a critical limit that a task set of a board has used up; 0 without numbers or limits."""
    found = [0.0]
    for metric in LABELS:
        value, limit = task_set["numbers"].get(metric), _end(task_set["limits"].get(metric))
        if value is not None and limit is not None:
            found.append(share(metric, value, limit))
    return max(found)


def cell(task_set: Mapping[str, Any], metric: Metric, past: Sequence[float], at: Room) -> Text:
    """Name, value, bar and past values of one number, always of the same width."""
    value, limits = task_set["numbers"].get(metric), task_set["limits"].get(metric) or {}
    style = _style(metric, value, limits)
    text = Text(f"{LABELS[metric]} ", style="dim")
    text.append(f"{number(value):<{DIGITS[metric]}.{DIGITS[metric]}}", style)
    end = _end(limits)
    if at.limits:
        text.append(f"{'' if end is None else f' /{number(end)}':<9.9}", "dim")
    text.append(" ").append_text(_bar(metric, value, end, at, style=style))
    return text.append(" ").append(_past(metric, past, end, at), style)


def _end(limits: Mapping[str, Any] | None) -> float | None:
    """The limit that a bar ends at: the critical one, or the warning where that is the only one."""
    critical = (limits or {}).get("critical")
    end: float | None = critical if critical is not None else (limits or {}).get("warn")
    return end


def _style(metric: Metric, value: float | None, limits: Mapping[str, Any]) -> str:
    if value is None:
        return "dim"
    for name, style in (("critical", "bold red"), ("warn", "yellow")):
        if limits.get(name) is not None and share(metric, value, limits[name]) > 1:
            return style
    return "green"


def _bar(metric: Metric, value: float | None, end: float | None, at: Room, *, style: str) -> Text:
    if value is None or end is None:
        return Text(" " * at.bar)
    filled = min(1.0, max(0.0, share(metric, value, end))) * at.bar
    whole, rest = int(filled), filled - int(filled)
    drawn = "#" * round(filled) if at.plain else "█" * whole + (EIGHTHS[round(rest * 8)] if whole < at.bar else "")
    drawn = drawn.rstrip()
    return Text.assemble((drawn, style), ("." * (at.bar - len(drawn)), "dim"))


def _past(metric: Metric, values: Sequence[float], end: float | None, at: Room) -> str:
    """The last values, the newest on the right; the highest block is the limit, or the worst value beyond it."""
    last = values[-at.past :] if at.past else ()
    ways = [abs(value - PERFECT[metric]) for value in last]
    most = max([*ways, abs(end - PERFECT[metric]) if end is not None else 0.0], default=0.0)
    blocks = PLAIN_BLOCKS if at.plain else BLOCKS
    return "".join(blocks[1 + round(7 * way / most) if most else 1] for way in ways).rjust(at.past)
