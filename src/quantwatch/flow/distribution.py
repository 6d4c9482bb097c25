"""What one server said about one golden sequence, position by position."""

from array import array
from dataclasses import dataclass, field
from enum import StrEnum

from quantwatch.flow.prompt import ProbeMode

NO_ID = -1
"""Fills a column that holds no token."""


class MarkKind(StrEnum):
    """Why a position proves that the server's numbers are broken."""

    NON_FINITE = "non_finite"
    RANK_ZERO = "rank_zero"
    SENTINEL = "sentinel"
    UNIFORM = "uniform"
    ID_OUT_OF_RANGE = "id_out_of_range"


@dataclass(frozen=True, slots=True)
class Mark:
    """A corrupted position: the row in the Distribution, and what was seen there."""

    row: int
    kind: MarkKind
    detail: str


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """Top-k log-probabilities in nats at n positions of one sequence, as flat row-major columns.

    positions: [n] index in the sequence of the token that each row predicts. ids, logprobs: [n, k + 1]; columns 0..k-1
    hold the top k in any order, column k the sequence's own token where its rank is over k; NO_ID fills the rest.
    actual: [n] log-probability of the sequence's own token, NaN where the server did not list it. floor: [n] value of
    rank k, so no unlisted token is more probable. marks: the corrupted rows; their numbers mean nothing.
    rank: the data-parallel rank that answered, None where none was chosen. exact: the server listed k tokens that it
    was asked for, and the one it generated, so nothing bounds a token that is not listed and floor is infinite.
    """

    prompt_id: str
    mode: ProbeMode
    k: int
    prompt_length: int
    positions: "array[int]"
    ids: "array[int]"
    logprobs: "array[float]"
    actual: "array[float]"
    floor: "array[float]"
    marks: tuple[Mark, ...] = field(default=())
    seconds: float = 0.0
    rank: int | None = None
    exact: bool = False

    @property
    def width(self) -> int:
        """Columns a row: k, and one for the sequence's own token beyond rank k."""
        return self.k + 1

    def top_ids(self) -> tuple[tuple[int, ...], ...]:
        """The ids of the top k at each position, in the order of the list."""
        starts = range(0, len(self.ids), self.width)
        return tuple(tuple(self.ids[start : start + self.k]) for start in starts)

    def __len__(self) -> int:
        return len(self.positions)
