"""How busy a server is, and how much it has done since its process started."""

from collections.abc import Mapping
from dataclasses import dataclass

from quantwatch.flow.identity import START_TICK

COUNTED = ("broken_rows", "runaway_rows", "corrupted_requests")
"""What some servers count of their own numbers."""


@dataclass(frozen=True, slots=True)
class Load:
    """A server at one moment, by its own metrics.

    waiting, running: requests. kv_usage: share of the KV cache in use, 0 to 1 (the fullest engine's). started: process
    start in seconds since 1970. prompt_tokens, generated_tokens, prefix_hits (prompt tokens found in the prefix cache):
    since the process started, over all engines. None where the server does not tell. born: when its counters were made,
    to the microsecond. engines: names of the engines behind the URL, one a data-parallel rank. broken_rows,
    runaway_rows: of logits, as our plugin in the server has counted them since the process started;
    corrupted_requests: those in which the server itself met NaN.
    """

    waiting: float = 0.0
    kv_usage: float = 0.0
    started: float | None = None
    running: float | None = None
    prompt_tokens: float | None = None
    generated_tokens: float | None = None
    born: float | None = None
    engines: tuple[str, ...] = ()
    prefix_hits: float | None = None
    broken_rows: float | None = None
    runaway_rows: float | None = None
    corrupted_requests: float | None = None

    @property
    def tokens(self) -> float | None:
        """All tokens since the process started; None where it does not tell both counts."""
        if self.prompt_tokens is None or self.generated_tokens is None:
            return None
        return self.prompt_tokens + self.generated_tokens

    @property
    def counted(self) -> Mapping[str, float]:
        """What the server has counted of its own numbers, by the names of COUNTED; empty where it counts nothing."""
        values = ((name, getattr(self, name)) for name in COUNTED)
        return {name: value for name, value in values if value is not None}

    def risen(self, earlier: "Load") -> Mapping[str, float]:
        """By how much the counts are higher than they were; from nothing on where another process counts now."""
        before = earlier.counted if self.continues(earlier) else {}
        gained = {name: value - before.get(name, 0.0) for name, value in self.counted.items()}
        return {name: more for name, more in gained.items() if more > 0}

    def continues(self, earlier: "Load") -> bool:
        """Whether one process may have given both: the same start, as far as told, and no counter has gone back."""
        if self.started is not None and earlier.started is not None and not same_start(self.started, earlier.started):
            return False
        counts = [(self.prompt_tokens, earlier.prompt_tokens), (self.generated_tokens, earlier.generated_tokens)]
        return all(now is None or before is None or now >= before for now, before in counts)


def same_start(one: float, other: float) -> bool:
    """Whether two process starts, in seconds since 1970, are one."""
    return abs(one - other) < START_TICK


def counting(target: str, *loads: Load | None) -> dict[str, Load]:
    """The latest of a target's loads that counts anything, by the target's name; nothing where none does."""
    return {target: one for target, one in ((target, one) for one in loads) if one is not None and one.counted}
