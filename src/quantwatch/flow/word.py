"""What a person says about a target, and what was answered."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Word:
    """A person's word. seconds: for how long, None without an end. force: also where it takes the last capacity."""

    target: str
    author: str
    reason: str
    seconds: float | None = None
    force: bool = False


@dataclass(frozen=True, slots=True)
class Heard:
    """What came of a word. decision: the order that followed, None where none was needed. told: what to know of it."""

    decision: str | None = None
    told: tuple[str, ...] = ()
