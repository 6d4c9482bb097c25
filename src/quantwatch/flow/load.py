"""How busy a server is, and how much it has done since its process started."""

from dataclasses import dataclass

from quantwatch.flow.identity import START_TICK


@dataclass(frozen=True, slots=True)
class Load:
    """A server at one moment, by its own metrics.

    waiting, running: requests. kv_usage: share of the KV cache in use, 0 to 1 (the fullest engine's). started: process
    start in seconds since 1970. prompt_tokens, generated_tokens, prefix_hits (prompt tokens found in the prefix cache):
    since the process started, over all engines. None where the server does not tell. born: when its counters were made,
    to the microsecond. engines: names of the engines behind the URL, one a data-parallel rank.
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

    @property
    def tokens(self) -> float | None:
        """All tokens since the process started; None where it does not tell both counts."""
        if self.prompt_tokens is None or self.generated_tokens is None:
            return None
        return self.prompt_tokens + self.generated_tokens

    def continues(self, earlier: "Load") -> bool:
        """Whether one process may have given both: the same start, as far as told, and no counter has gone back."""
        if self.started is not None and earlier.started is not None and not same_start(self.started, earlier.started):
            return False
        counts = [(self.prompt_tokens, earlier.prompt_tokens), (self.generated_tokens, earlier.generated_tokens)]
        return all(now is None or before is None or now >= before for now, before in counts)


def same_start(one: float, other: float) -> bool:
    """Whether two process starts, in seconds since 1970, are one."""
    return abs(one - other) < START_TICK
