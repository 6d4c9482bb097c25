"""Runs a command of the configuration to its end: without a shell, and for so long at most."""

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TAIL = 400
"""Bytes of what a command said last that go into a message."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a command did not succeed. late: it was ended because it took too long."""

    said: str
    late: bool = False


def run(command: Sequence[str], *, folder: Path, seconds: float) -> Failure | None:
    """Run a command in a folder and wait for its end; None when it succeeded."""
    # A file, not a pipe: what the command leaves behind may keep a pipe open for ever.
    with tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(  # noqa: S603, the operator's own command
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
            )
        except OSError as exc:
            return Failure(f"{command[0]} cannot be run: {exc.strerror}")
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return Failure(f"{command[0]} did not end within {seconds:g} s", late=True)
        if code == 0:
            return None
        said.seek(max(0, said.seek(0, os.SEEK_END) - TAIL))
        words = " ".join(said.read().decode("utf-8", "replace").split())
        return Failure(f"{command[0]} ended with {code}{': ' if words else ''}{words}")
