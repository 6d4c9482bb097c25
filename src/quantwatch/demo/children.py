"""The processes of the demo: each a command as a user would type it, its output in a file of its own."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from quantwatch.errors import QuantwatchError

START_SECONDS = 240.0
"""How long a process may take until it is ready; loading a model on a busy small machine takes its time."""

STOP_SECONDS = 15.0
"""How long an orderly end may take."""

LAST_LINES = 12


class DemoFailed(QuantwatchError):
    """The demo cannot go on; the message says at what, and where to look."""


@dataclass(frozen=True, slots=True)
class Place:
    """An address that stays while the node behind it changes: its socket listens in this process from the start.

    A request that comes while nobody answers waits in the socket's queue and is not refused, so one node can take over
    from another without a client noticing.
    """

    socket: socket.socket

    @classmethod
    def open(cls) -> "Place":
        """Listen on a free loopback port."""
        bound = socket.create_server(("127.0.0.1", 0), backlog=128)
        bound.set_inheritable(True)
        return cls(bound)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.socket.getsockname()[1]}"

    @property
    def fd(self) -> int:
        """What a child inherits."""
        return self.socket.fileno()

    def close(self) -> None:
        """Listen no more."""
        self.socket.close()


@dataclass(slots=True)
class Child:
    """One process. output: where what it says goes."""

    name: str
    process: asyncio.subprocess.Process
    output: Path

    @property
    def said(self) -> str:
        """Everything it has said so far."""
        return self.output.read_text(encoding="utf-8", errors="replace")

    @property
    def ended(self) -> bool:
        """Whether it is no more."""
        return self.process.returncode is not None

    async def until(self, ready: Callable[[str], bool], *, seconds: float = START_SECONDS) -> None:
        """Wait until its output shows that it is ready. Raises DemoFailed with its last words where it never is."""
        try:
            async with asyncio.timeout(seconds):
                while not ready(self.said):
                    self.check()
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise DemoFailed(self._last_words(f"was not ready within {seconds:g} s")) from None

    def check(self) -> None:
        """Raise DemoFailed when the process has ended though nobody told it to."""
        if self.ended:
            raise DemoFailed(self._last_words(f"ended with code {self.process.returncode}"))

    async def stop(self) -> int:
        """End it in order, or at once where it does not listen; its exit code."""
        if not self.ended:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await self.process.wait()
            except TimeoutError:
                self.process.kill()
        return await self.process.wait()

    def kill(self) -> None:
        """End it at once, also where no loop runs any more."""
        if not self.ended:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGKILL)

    def _last_words(self, what: str) -> str:
        lines = "\n".join(f"  {line}" for line in self.said.splitlines()[-LAST_LINES:])
        return f"{self.name} {what}; all that it said is in {self.output}:\n{lines}"


def peak_mib(pid: int) -> float | None:
    """The most memory that a process has held so far, in MiB; None where the system does not tell."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    peaks = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return round(int(peaks[0]) / 1024, 1) if peaks else None


async def start(name: str, arguments: Sequence[str], *, folder: Path, place: Place | None = None) -> Child:
    """Start `quantwatch ARGUMENTS` as a process of its own.

    It stays in our process group: Ctrl-C and a terminal that closes reach it too, so that it never outlives us.
    """
    output = folder / f"{name}.log"
    inherited = (place.fd,) if place is not None else ()
    with output.open("wb") as stream:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "quantwatch",
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stream,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=inherited,
            env={**os.environ, "NO_COLOR": "1", "PYTHONUNBUFFERED": "1", "OMP_WAIT_POLICY": "PASSIVE"},
        )
    return Child(name, process, output)
