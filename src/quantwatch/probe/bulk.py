"""All positions of a healthy prompt-scoring reply at once, in the few built-in loops that are fast.

Only for replies that typed decoding has accepted: its limits (`wire.py`) rule out values that are no numbers,
sentinels, values over 0, rank 0 and ids that cannot exist. What is left of the checks of `rows.py` is made here on
whole columns. Whatever looks odd is not judged here: the caller then goes row by row.
"""

import math
from array import array
from collections.abc import Sequence
from operator import le

from quantwatch.flow.distribution import NO_ID
from quantwatch.probe.rows import EXCESS, FLAT_UNDER, Columns
from quantwatch.probe.wire import Entry

NOWHERE = Entry(-math.inf)
"""Stands before a row that lists nothing beyond the top k: probability 0, so it changes no sum."""


def columns(rows: Sequence[dict[int, Entry] | None], owns: Sequence[int], *, k: int) -> Columns | None:
    """Columns of n positions, or None where any row needs a closer look.

    rows: n decoded positions. owns: the n ids that the sequence has there. A row of k + 1 tokens begins with its own.
    """
    ids: list[int] = []
    entries: list[Entry] = []
    actual: list[float] = []
    for row, own in zip(rows, owns, strict=True):
        if row is None or (mine := row.get(own)) is None:
            return None
        if len(row) == k:
            ids.append(NO_ID)
            entries.append(NOWHERE)
        elif len(row) != k + 1 or next(iter(row)) != own:
            return None
        ids += row
        entries += row.values()
        actual.append(mine.logprob)
    values = [entry.logprob for entry in entries]
    floor = _floors(values, k + 1)
    if floor is None:
        return None
    return _turned(ids, values, k=k, actual=actual, floor=floor)


def _floors(values: list[float], width: int) -> list[float] | None:
    """Rank-k values; None where a sum or the value beyond rank k is not that of a healthy row."""
    starts = range(0, len(values), width)
    chances = list(map(math.exp, values))
    sums = [sum(chances[i : i + width]) for i in starts]
    floor = [min(values[i + 1 : i + width]) for i in starts]
    likely = max(sums, default=1.0) <= 1.0 + EXCESS / 2 and min(sums, default=1.0) > width * math.exp(FLAT_UNDER)
    return floor if likely and all(map(le, values[::width], floor)) else None


def _turned(ids: list[int], values: list[float], *, k: int, actual: list[float], floor: list[float]) -> Columns:
    """Columns with what stands first in each row put last, and what is empty as a Distribution wants it."""
    found = Columns(k)
    if not actual:
        return found
    width = k + 1
    beyond = [0.0 if value == -math.inf else value for value in values[::width]]
    found.ids = array("q", ids[1:])
    found.ids.append(NO_ID)
    found.logprobs = array("d", values[1:])
    found.logprobs.append(0.0)
    found.ids[k::width] = array("q", ids[::width])
    found.logprobs[k::width] = array("d", beyond)
    found.actual = array("d", actual)
    found.floor = array("d", floor)
    return found
