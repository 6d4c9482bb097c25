"""What was seen before any number was computed: are target and baseline comparable?"""

from dataclasses import dataclass
from enum import StrEnum


class Point(StrEnum):
    """What a handshake looks at."""

    MODEL = "model"
    VERSION = "version"
    LENGTH = "length"
    ONE_SERVER = "one_server"
    TOKENIZER = "tokenizer"
    VOCABULARY = "vocabulary"
    TOP_K = "top_k"
    LOGPROBS_MODE = "logprobs_mode"
    FIELDS = "fields"
    RANKS = "ranks"
    TWO_SERVERS = "two_servers"
    BASELINE = "baseline"


@dataclass(frozen=True, slots=True)
class Seen:
    """One point. ok: None where it could not be told. detail: what was seen. advice: what to do about it."""

    point: Point
    ok: bool | None
    detail: str
    advice: str = ""

    def joined(self, other: "Seen") -> "Seen":
        """Both looks at a point as one; a mismatch counts over what could not be told, and that over the rest."""
        ok = False if False in (self.ok, other.ok) else None if None in (self.ok, other.ok) else True
        advice = " ".join(filter(None, (self.advice, other.advice)))
        return Seen(self.point, ok, f"{self.detail}; {other.detail}", advice)


@dataclass(frozen=True, slots=True)
class Handshake:
    """All that was seen of one server, for a target also against its baseline.

    complete: whether it came to its end. tokens: what it cost the server's model, prompt and answer together.
    """

    server: str
    seen: tuple[Seen, ...]
    complete: bool
    tokens: int = 0

    @property
    def ok(self) -> bool | None:
        """Whether the server can be compared; None where the handshake broke off without a mismatch."""
        if any(one.ok is False for one in self.seen):
            return False
        return True if self.complete else None

    @property
    def notes(self) -> tuple[str, ...]:
        """What hinders nothing and a person should know all the same."""
        told = [one for one in self.seen if self.complete and one.ok is None and one.advice]
        return tuple(f"{one.detail}. {one.advice}" for one in told)
