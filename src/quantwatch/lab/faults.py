"""Faults for rehearsals. A node that plays one says so in its log, its model card and every reply."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from quantwatch.errors import InputError

SLOW_SECONDS = 5.0
DEAD = 70
"""Exit code of a node that dies as told."""


class FaultKind(StrEnum):
    """What goes wrong."""

    NAN = "nan"
    GARBAGE = "garbage"
    SLOW = "slow"
    DIE = "die"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault and its size. at: the completion, counted from 1, with which it begins; share: 0 to 1; seconds: delay."""

    kind: FaultKind
    text: str
    at: int = 1
    share: float = 1.0
    seconds: float = 0.0


_WRITTEN = re.compile(r"(nan|garbage|slow|die)(?:@([0-9]+(?:\.[0-9]+)?))?")


def read_fault(text: str) -> Fault:
    """Read nan@N, garbage@P, slow, slow@SECONDS, die or die@N. Raises InputError."""
    match = _WRITTEN.fullmatch(text)
    problem = InputError(f"--fault {text}: one of nan@N, garbage@P, slow, slow@SECONDS, die, die@N is wanted")
    if match is None:
        raise problem
    kind, given = FaultKind(match[1]), match[2]
    number = float(given) if given else None
    if kind is FaultKind.SLOW:
        return Fault(kind, text, seconds=SLOW_SECONDS if number is None else number)
    if kind is FaultKind.GARBAGE:
        if number is None or not 0 < number <= 1:
            raise InputError(f"--fault {text}: the share is a number over 0 and up to 1, as in garbage@0.3")
        return Fault(kind, text, share=number)
    if number is not None and (number < 1 or number != int(number)):
        raise InputError(f"--fault {text}: completions are counted from 1, as in {kind}@3")
    return Fault(kind, text, at=int(number or 1))


class Trouble:
    """Lets a fault happen. completions are counted here; seed decides which of them get garbage."""

    def __init__(
        self,
        planned: Fault | None = None,
        *,
        seed: int = 0,
        poison: Callable[[], None] = lambda: None,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self.planned = planned
        self._random = Random(seed)  # noqa: S311, a rehearsal that can be repeated
        self._poison = poison
        self._end = end
        self._completions = 0

    def count(self) -> None:
        """Count a completion; with the one that the fault names, it happens."""
        self._completions += 1
        if self.planned is None or self._completions < self.planned.at:
            return
        if self.planned.kind is FaultKind.DIE:
            self._end(DEAD)
        if self.planned.kind is FaultKind.NAN:
            self._poison()

    @property
    def delay(self) -> float:
        """Seconds that every completion waits."""
        return self.planned.seconds if self.planned is not None else 0.0

    def garbles(self) -> bool:
        """Whether the next completion is to be garbage."""
        if self.planned is None or self.planned.kind is not FaultKind.GARBAGE:
            return False
        return self._random.random() < self.planned.share
