"""Windows of the configuration as pauses: while one is open it holds as a pause that a person made."""

from collections.abc import Iterable
from datetime import datetime

from quantwatch.config.windows import WindowSettings
from quantwatch.flow.state import ROLLOUT, WINDOW, Pause


def open_windows(windows: Iterable[WindowSettings], now: datetime) -> list[Pause]:
    """A pause for each window that is open now, named as its author."""
    found = ((one, one.open_at(now)) for one in windows)
    return [_pause(one, *times) for one, times in found if times is not None]


def _pause(one: WindowSettings, since: datetime, until: datetime) -> Pause:
    scope = f"{ROLLOUT}{one.scope}" if one.kind == "rollout" else one.scope
    return Pause(f"{WINDOW}{one.name}", scope, one.reason, f"window {one.name}", since, until)
