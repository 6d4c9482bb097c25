"""Who a server says it is."""

import hashlib
import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime

START_TICK = 0.011
"""Process start times are whole hundredths of a second; closer than this is the same process."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a server tells about itself.

    started: process start in seconds since 1970, from its /metrics. tokenizer: counts and digests of its ids for
    awkward texts. engine: who made the server, as its model card says. vocabulary: how many token ids its model has.
    born: when its counters were made, in seconds since 1970 to the microsecond. Fields are None where the server does
    not say.
    """

    name: str
    url: str
    model: str
    root: str | None = None
    max_model_len: int | None = None
    version: str | None = None
    started: float | None = None
    tokenizer: str | None = None
    engine: str | None = None
    vocabulary: int | None = None
    born: float | None = None

    @property
    def process(self) -> str | None:
        """What names the server's process: its start time and version; None where it does not tell when it started."""
        return None if self.started is None else f"{self.started:.2f} {self.version}"

    @property
    def tokens(self) -> str:
        """Sixteen hex digits that stand for what its token ids mean: its tokenizer, and its model by both names."""
        return hashlib.sha256(json.dumps([self.tokenizer, self.model, self.root]).encode()).hexdigest()[:16]

    def same_process(self, other: "Identity") -> bool | None:
        """Whether both came from one process; None where one of them does not tell when it started."""
        if self.started is None or other.started is None:
            return None
        if abs(self.started - other.started) >= START_TICK:
            return False
        if self.born is not None and other.born is not None:
            return self.born == other.born
        return (self.root, self.version) == (other.root, other.version)


def moment(started: float) -> str:
    """A process start for people: UTC to the hundredth of a second; the bare number where no calendar has it."""
    if not math.isfinite(started) or not 0 <= started < 1e11:
        return f"{started:g}"
    return f"{datetime.fromtimestamp(started, UTC):%Y-%m-%d %H:%M:%S}.{int(started * 100) % 100:02d} UTC"
