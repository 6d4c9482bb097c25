"""What is remembered of a server for as long as quantwatch runs: tokens of the last minute, its process, its rest.

It outlives reloads and is shared by everything that asks the server, so no configuration change fills it up again.
"""

import asyncio
from collections import deque

from quantwatch.flow.load import Load, same_start

WINDOW_SECONDS = 60.0
"""The minute in which tokens are counted; it slides."""

SHORTEST_WAIT = 0.05
"""Seconds; rounding must not make a wait of nothing."""

FIRST_REST = 60.0
"""Seconds that a server is left alone after it restarted under a probe once: a deployment looks no different, and what
was deployed wants to be measured soon."""

SECOND_REST = 1200.0
"""After the second restart in a row; over the default period, so a run falls out: the probe is the suspect now."""

LONGEST_REST = 6 * 3600.0
"""Each further restart in a row doubles the rest up to this."""

MOST_STARTS = 16


class Account:
    """One server. queue: whoever may send next holds it. restarts: times another process was met, of any cause.

    row: restarts in a row that came while probes were sent. rest_until: on the monotonic clock, None without a rest.
    """

    def __init__(self) -> None:
        self.queue = asyncio.Lock()
        self.restarts = 0
        self.row = 0
        self.rest_until: float | None = None
        self._spent: deque[tuple[float, int]] = deque()
        self._seen: Load | None = None
        self._starts: deque[float] = deque(maxlen=MOST_STARTS)
        self._at_risk = False

    def seconds_until(self, tokens: int, *, most: int, now: float) -> float:
        """How long until so many tokens fit into a minute of `most`; 0 when they fit now. tokens: at most `most`."""
        while self._spent and now - self._spent[0][0] >= WINDOW_SECONDS:
            self._spent.popleft()
        excess = sum(spent for _, spent in self._spent) + tokens - most
        wait = 0.0
        for at, spent in self._spent:
            if excess <= 0:
                break
            excess -= spent
            wait = max(at + WINDOW_SECONDS - now, SHORTEST_WAIT)
        return wait

    def charge(self, tokens: int, *, now: float) -> None:
        """Count tokens that are sent now."""
        self._spent.append((now, tokens))
        self.at_risk()

    def at_risk(self) -> None:
        """Note that a probe is or was under way, so that another process at the next look may be its doing."""
        self._at_risk = True

    def suspicious(self, load: Load) -> bool:
        """Whether a look shows another, younger process than the one before, so that a restart is likely."""
        seen = self._seen
        if seen is None or load.continues(seen):
            return False
        moved = load.started is not None and seen.started is not None and not same_start(load.started, seen.started)
        return not (moved and self._met(load.started))

    def turns_with(self, load: Load) -> bool:
        """Whether a further look shows the process of before again: then several servers answer, and none restarted."""
        return self._seen is not None and load.continues(self._seen)

    def see(self, load: Load, *, now: float, several: bool = False) -> bool:
        """Take a look in; True when the server restarted under a probe, which gives it a rest.

        several: the process of before still answers as well.
        """
        restarted = not several and self.suspicious(load)
        struck = restarted and self._at_risk
        self._seen, self._at_risk = load, False
        if load.started is not None and not self._met(load.started):
            self._starts.append(load.started)
        self.restarts += restarted
        if struck:
            self.row += 1
            self.rest_until = now + rest(self.row)
        return struck

    def passed(self) -> None:
        """Note that a whole window of probes has passed without a restart."""
        self.row = 0

    def resting(self, now: float) -> float:
        """Seconds for which the server is still left alone; 0 when it may be asked."""
        return 0.0 if self.rest_until is None else max(self.rest_until - now, 0.0)

    def _met(self, started: float | None) -> bool:
        """Whether this process was met before, or is older than the last: a balancer's doing, no restart's."""
        if started is None or not self._starts:
            return False
        return started < self._starts[-1] or any(same_start(started, one) for one in self._starts)


def rest(row: int) -> float:
    """Seconds of rest after so many restarts in a row."""
    return FIRST_REST if row < 2 else float(min(SECOND_REST * 2.0 ** (min(row, 32) - 2), LONGEST_REST))


class Accounts:
    """The accounts of all servers, by address: one address is one server, whatever names it goes by."""

    def __init__(self) -> None:
        self._by_url: dict[str, Account] = {}

    def of(self, url: str) -> Account:
        """The account of a server, the same each time."""
        return self._by_url.setdefault(url, Account())
