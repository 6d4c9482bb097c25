"""What is looked at when it is found out what people want to know: memory and configuration at one moment."""

from dataclasses import dataclass
from datetime import datetime

from quantwatch.flow.state import TargetState
from quantwatch.flow.verdict import BREACHES
from quantwatch.flows.memory import Memory
from quantwatch.flows.watched import Watched, Watchlist


@dataclass(frozen=True, slots=True)
class View:
    """What is looked at, and when."""

    memory: Memory
    watchlist: Watchlist
    now: datetime

    def state(self, target: Watched) -> TargetState:
        """Where a target is routed."""
        return self.memory.target_state(target.name, target.pool)

    def breaches(self, target: str) -> bool:
        """Whether a task set of a target breaches by its last word."""
        return any(one.quality in BREACHES for (name, _), one in self.memory.sets.items() if name == target)
