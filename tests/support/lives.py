"""Lives of the daemon's parts, one after another, each in a process that is forked from one that has imported all."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from support.crashing import Life

TESTS = Path(__file__).resolve().parents[1]
KILLED = -signal.SIGKILL


class Lives:
    """Starts one life after another."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def live(self, life: Life, meanwhile: Callable[[int], None] = lambda _: None) -> int:
        """One life to its end; gives its exit status. meanwhile: hears the process id while it lives."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(life.line() + "\n")
        self._process.stdin.flush()
        meanwhile(int(self._process.stdout.readline()))
        return int(self._process.stdout.readline())


@contextmanager
def forked() -> Iterator[Lives]:
    """What lives are forked from; ends with the block."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "support.crashing"]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=environment) as process:  # noqa: S603, ours
        yield Lives(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 0
