"""What is remembered of a server from one handshake to the next."""

from dataclasses import dataclass, field

from quantwatch.flow.identity import START_TICK, Identity
from quantwatch.flow.prompt import ProbeMode

MOST_STARTS = 16


@dataclass(frozen=True, slots=True)
class Known:
    """What cannot change while a process runs. identity: with tokenizer and vocabulary.

    k: the largest number of log-probabilities that was given. cap: the server's own limit where it was met. modes: in
    which the fields asked for were seen in the reply. rounds: handshakes with this process so far.
    """

    identity: Identity
    k: int
    cap: int | None = None
    modes: frozenset[ProbeMode] = frozenset()
    rounds: int = 0


@dataclass(slots=True)
class Past:
    """known: what was learned of the process that answered last. starts: process starts, the latest at the end."""

    known: Known | None = None
    starts: list[float] = field(default_factory=list)

    def meet(self, started: float | None) -> float | None:
        """Note a process start. Gives the start seen last when two processes take turns, None when all is well.

        After a plain restart there is a younger process that was never seen before. One that has been seen before, or
        that is older than the last one, shows that several servers answer.
        """
        if started is None:
            return None
        last = self.starts[-1] if self.starts else started
        again = [one for one in self.starts if _near(one, started)]
        self.starts = [*(one for one in self.starts if not _near(one, started)), started][-MOST_STARTS:]
        if _near(last, started):
            return None
        return last if again or started < last else None


def _near(one: float, other: float) -> bool:
    return abs(one - other) < START_TICK
