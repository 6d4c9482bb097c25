"""What is counted."""

from typing import NamedTuple


class Counts(NamedTuple):
    """Since the start: rows seen, broken ones, and finite ones that ran away. magnitude: of the latest step."""

    rows: float = 0.0
    broken: float = 0.0
    runaway: float = 0.0
    magnitude: float = 0.0
