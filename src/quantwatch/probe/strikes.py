"""Gives up on a server that keeps failing: a canary without back-off becomes the outage."""

from dataclasses import dataclass

from quantwatch.errors import NodeFailed, NodeTimeout, NodeUnreachable, ProbeError


@dataclass(slots=True)
class Strikes:
    """Counts network and server failures in a row; any answer at all clears the count."""

    allowed: int = 3
    count: int = 0

    def failed(self, error: ProbeError) -> bool:
        """Note a failure; True when it was one too many."""
        counts = isinstance(error, NodeUnreachable | NodeTimeout | NodeFailed)
        self.count = self.count + 1 if counts else 0
        return self.count >= self.allowed

    def answered(self) -> None:
        """Note that the server answered."""
        self.count = 0
