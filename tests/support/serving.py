"""`quantwatch serve` as a process."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


class Serving:
    """A running node."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[dict[str, Any]] = []

    def ready(self) -> str:
        """Wait until it listens; gives its URL."""
        return str(self.until("listening")["url"])

    def until(self, event: str) -> dict[str, Any]:
        """Wait until it says something that begins so; gives the line."""
        output: IO[str] = self.process.stdout  # type: ignore[assignment]  # it was started with a pipe
        for line in output:
            self.said.append(json.loads(line))
            if self.said[-1]["event"].startswith(event):
                return self.said[-1]
        raise AssertionError(f"it ended before it said {event}: {self.said}")

    def errors(self) -> str:
        """All that it wrote to standard error, once it has ended; it must have been started with a pipe for that."""
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def stop(self) -> int:
        """SIGTERM; gives the exit code."""
        self.process.terminate()
        return self.process.wait(60)


@contextmanager
def serving(folder: Path, *arguments: str, fds: Sequence[int] = (), stderr: int | None = None) -> Iterator[Serving]:
    """Serve the model in a folder; the node is killed at the end if it still runs."""
    command = [sys.executable, "-m", "quantwatch", "serve", "--model", str(folder), "--threads", "1", *arguments]
    with subprocess.Popen(  # noqa: S603, ours
        command, stdout=subprocess.PIPE, stderr=stderr, text=True, pass_fds=fds
    ) as process:
        try:
            yield Serving(process)
        finally:
            process.kill()
