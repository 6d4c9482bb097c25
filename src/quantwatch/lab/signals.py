"""What ends a lab node while it gets ready; once it serves, its server hears the signals itself."""

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGINT)
KILLED = 130
"""Exit code of an immediate end, as shells give it for an interrupted program."""


@contextlib.contextmanager
def ends_quietly() -> Iterator[None]:
    """SIGTERM and SIGINT end the process with code 0, having put things in order; a second one at once, with 130."""
    asked = False

    def end(_: int, __: FrameType | None) -> None:
        nonlocal asked
        if asked:
            os._exit(KILLED)
        asked = True
        # Not an Exception: it must pass through whatever is being loaded.
        raise SystemExit(0)

    before = {one: signal.signal(one, end) for one in ENDING}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
