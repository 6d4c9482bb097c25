"""Shape and sanity of single positions: the checks that come before any arithmetic."""

import math
from array import array
from dataclasses import dataclass, field

from quantwatch.flow.distribution import NO_ID, Mark, MarkKind

POSITIVE = 1e-4
"""A log-probability over this is no log-probability; room for float32 rounding of a certain token."""

EXCESS = 1e-3
"""How far sum(exp) of a top-k list may be over 1."""

SENTINEL = -9998.0
"""Servers write -9999 or -3.4e38 where they have no finite number."""

FLAT = 1e-3
FLAT_UNDER = -9.0
FLAT_FROM = 5
"""At least FLAT_FROM values within FLAT of each other and all under FLAT_UNDER are a row near -ln V (-10.4 at 32,000
tokens): nobody's distribution. Fewer may be an honest tie of 16-bit logits."""


MAX_VOCABULARY = 2**31
"""No vocabulary is larger, so no id is."""


class RowInvalid(ValueError):
    """The row cannot be a measurement; the text says why."""


@dataclass(slots=True)
class Columns:
    """Columns of a Distribution as they fill up; see flow.Distribution for the meaning of each.

    raw_proven: whether the server is known to answer raw log-probabilities; only then a sentinel in the top k proves
    corruption.
    """

    k: int
    raw_proven: bool = True
    ids: "array[int]" = field(default_factory=lambda: array("q"))
    logprobs: "array[float]" = field(default_factory=lambda: array("d"))
    actual: "array[float]" = field(default_factory=lambda: array("d"))
    floor: "array[float]" = field(default_factory=lambda: array("d"))
    marks: list[Mark] = field(default_factory=list)

    def add(self, ids: list[int], values: list[float], own: int, *, lowest_rank: int | None = None) -> None:
        """Append one position. own: index of the sequence's own token in the lists, or -1 where it is not listed.

        A list of k + 1 tokens is the top k and a token beyond rank k, which the server added because it is the
        sequence's own or the sampled one. Raises RowInvalid when the row cannot be a measurement; a row that proves
        corruption is marked and filled up instead.
        """
        row = len(self.actual)
        if not self.k <= len(ids) <= self.k + 1:
            raise RowInvalid(f"{len(ids)} tokens listed where {self.k} or {self.k + 1} were asked for")
        if len(ids) > self.k:
            ids, values, own = _extra_last(ids, values, own)
        mark = self._corruption(ids, values, lowest_rank)
        if mark is not None:
            self._fill(Mark(row, *mark))
            return
        _check_sum(values)
        self._append(ids, values, own)

    def _append(self, ids: list[int], values: list[float], own: int) -> None:
        actual = math.nan if own < 0 else values[own]
        if len(ids) > self.k and values[self.k] <= SENTINEL:
            # The own token has no finite value: nothing is known of it beyond "not in the top k".
            ids, values, actual = ids[: self.k], values[: self.k], math.nan if own == self.k else actual
        self.floor.append(min(values[: self.k]))
        self.actual.append(actual)
        self.ids.extend(ids)
        self.logprobs.extend(values)
        for _ in range(self.k + 1 - len(ids)):
            self.ids.append(NO_ID)
            self.logprobs.append(0.0)

    def _corruption(self, ids: list[int], values: list[float], lowest_rank: int | None) -> tuple[MarkKind, str] | None:
        if not math.isfinite(sum(values)):
            return (
                MarkKind.NON_FINITE,
                f"{sum(not math.isfinite(v) for v in values)} of {len(values)} values not finite",
            )
        if lowest_rank == 0:
            return MarkKind.RANK_ZERO, "a token of rank 0, which only NaN produces"
        low, high = min(ids), max(ids)
        if low < 0 or high >= MAX_VOCABULARY:
            return MarkKind.ID_OUT_OF_RANGE, f"token id {low if low < 0 else high}"
        top = values[: self.k]
        least, most = min(top), max(top)
        if least <= SENTINEL:
            if not self.raw_proven:
                said = f"{least:g} within the top {self.k}, and the server is not known to answer raw values"
                raise RowInvalid(said)
            return MarkKind.SENTINEL, f"{least:g} within the top {self.k}"
        if len(top) >= FLAT_FROM and most - least < FLAT and most < FLAT_UNDER:
            return MarkKind.UNIFORM, f"the top {self.k} all near {most:.3f}"
        return None

    def _fill(self, mark: Mark) -> None:
        self.marks.append(mark)
        self.ids.extend([NO_ID] * (self.k + 1))
        self.logprobs.extend([0.0] * (self.k + 1))
        self.actual.append(math.nan)
        self.floor.append(math.nan)


def _extra_last(ids: list[int], values: list[float], own: int) -> tuple[list[int], list[float], int]:
    """Move the token that the server added to the top k to the end: the sequence's own, or else the sampled one.

    Returns where the own token stands then. Servers put the added token first. An own token that is more probable than
    another listed one belongs to the top k itself, and then it is the first that was added.
    """
    at = own if own >= 0 and values[own] <= min(values) else 0
    moved_ids = [*ids[:at], *ids[at + 1 :], ids[at]]
    moved = [*values[:at], *values[at + 1 :], values[at]]
    return moved_ids, moved, len(ids) - 1 if own == at else own - (own > at)


def _check_sum(values: list[float]) -> None:
    high = max(values)
    if high > POSITIVE:
        raise RowInvalid(f"a log-probability of {high:.3f} is over 0: these are logits, not log-probabilities")
    if high == 0.0 and min(values) == 0.0 and len(values) > 1:
        raise RowInvalid("every log-probability is 0, as some servers answer under speculative decoding")
    total = math.fsum(map(math.exp, values))
    if total > 1.0 + EXCESS:
        raise RowInvalid(f"the listed probabilities sum to {total:.3f}: these are not raw log-probabilities")
