"""Long lists, a page at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

ROWS = 50
"""Rows on one page."""

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Sheet(Generic[Row]):
    """One page of a list. first, last: numbers of its rows, from 1. place, pages: which page of how many."""

    rows: Sequence[Row]
    first: int
    place: int
    pages: int
    count: int

    @property
    def last(self) -> int:
        """Number of its last row."""
        return self.first + len(self.rows) - 1


def sheet(every: Sequence[Row], given: str | None, *, rows: int = ROWS) -> Sheet[Row]:
    """A page of a list. given: its number as an address says it; the nearest page there is for any other text."""
    pages = max(1, -(-len(every) // rows))
    number = int(given) if given is not None and given.isascii() and given.isdigit() and len(given) < 7 else 1
    place = min(pages, max(1, number))
    first = (place - 1) * rows
    return Sheet(every[first : first + rows], first + 1, place, pages, count=len(every))
