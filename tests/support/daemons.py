"""A daemon as a user runs it: a configuration on disk, free ports, a real process that is always killed at the end."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from quantwatch.clock import Clock
from quantwatch.config.load import load_settings
from quantwatch.config.schema import Settings
from quantwatch.daemon.process import Daemon
from quantwatch.daemon.systemd import Notifier
from support.runs import TEXTS

PATIENCE = 60.0
"""Seconds that a test waits at most for what must come."""


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def write_prompts(folder: Path, name: str = "letters", *, texts: tuple[str, ...] = TEXTS) -> Path:
    """A small task set in a file of its own."""
    entries = [
        {"id": f"{name}-{i}", "language": "en", "length": "short", "tags": ["x"], "prompt": text}
        for i, text in enumerate(texts)
    ]
    path = folder / f"{name}.yaml"
    content = {"schema": 1, "name": name, "description": "d", "license": "Apache-2.0", "prompts": entries}
    path.write_text(yaml.safe_dump(content))
    return path


@dataclass(slots=True)
class Site:
    """A configuration file with all that belongs to it, in one folder. content: the file, to be changed and written."""

    folder: Path
    content: dict[str, Any] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        """The configuration file."""
        return self.folder / "quantwatch.yaml"

    @property
    def cache(self) -> Path:
        """Where the baseline's answers are kept."""
        return self.folder / "cache"

    @property
    def store(self) -> Path:
        """The store."""
        return self.folder / "quantwatch.db"

    @property
    def public(self) -> str:
        """URL of the public listener."""
        return f"http://{self.content['server']['listen']}"

    @property
    def admin(self) -> str:
        """URL of the admin listener."""
        return f"http://{self.content['server']['admin_listen']}"

    def write(self) -> "Site":
        """Put the content on disk."""
        self.file.write_text(yaml.safe_dump(self.content, sort_keys=False))
        return self

    def settings(self) -> Settings:
        """The file as the daemon reads it."""
        return load_settings(self.file, shipped={})


def site(folder: Path, baseline: str, targets: Mapping[str, str], **sections: Any) -> Site:
    """A site with one small task set that runs once an hour, and one pool; `sections` are laid over it."""
    write_prompts(folder)
    content: dict[str, Any] = {
        "schema": 1,
        "baseline": {"url": baseline},
        "targets": [{"name": name, "url": url, "scheme": "int8", "pool": "chat"} for name, url in targets.items()],
        "pools": {"chat": {}},
        "task_sets": {
            "letters": {
                "prompts": "letters.yaml",
                "schedule": {"every": "1h"},
                "k": 10,
                "draw": 40,  # of six prompts: every draw has at least five of them
                "continuation_tokens": 12,
            }
        },
        "probe": {"patience": "1ms", "timeout": "30s"},
        "store": {"path": "quantwatch.db"},
        "server": {"listen": f"127.0.0.1:{free_port()}", "admin_listen": f"127.0.0.1:{free_port()}"},
    }
    for key, value in sections.items():
        content[key] = {**content.get(key, {}), **value} if isinstance(value, dict) else value
    return Site(folder, content).write()


async def until(met: Callable[[], object]) -> None:
    """Let the loop turn until something holds."""
    async with asyncio.timeout(PATIENCE):
        while not met():  # noqa: ASYNC110, what is waited for has no event
            await asyncio.sleep(0.01)


@dataclass(slots=True)
class Running:
    """A process of `quantwatch run`. Its log goes to a file, one JSON document a line."""

    process: subprocess.Popen[bytes]
    site: Site
    out: Path
    err: Path

    def log(self) -> list[dict[str, Any]]:
        """What it has said so far; every line is JSON."""
        whole, _, _ = self.out.read_text().rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def events(self) -> list[str]:
        """The sentences of its log."""
        return [one["event"] for one in self.log()]

    def errors(self) -> str:
        """Its standard error."""
        return self.err.read_text()

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def end(self) -> int:
        """Wait for its exit code."""
        return self.process.wait(PATIENCE)

    def until(self, event: str, *, times: int = 1) -> Any:
        """Wait for a sentence in its log; gives that line."""

        def found() -> dict[str, Any] | None:
            lines = [one for one in self.log() if event in one["event"]]
            return lines[times - 1] if len(lines) >= times else None

        return self.wait(found, f"said {event!r}")

    def ready(self) -> "Running":
        """Wait for /-/ready."""
        self.wait(lambda: _status(f"{self.site.public}/-/ready") == 200, "became ready")
        return self

    def wait(self, met: Callable[[], Any], what: str) -> Any:
        """Wait for something that must come; a process that ends meanwhile fails the test with its last words."""
        late = time.monotonic() + PATIENCE
        while time.monotonic() < late:
            if result := met():
                return result
            if self.process.poll() is not None:
                if result := met():
                    return result
                break
            time.sleep(0.02)
        raise AssertionError(f"never {what}\n{self.out.read_text()}\n{self.errors()}")


def _status(url: str) -> int | None:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(url, timeout=5).status_code
    return None


@contextmanager
def started(where: Site, *, name: str = "daemon", **environment: str) -> Iterator[Running]:
    """Start `quantwatch run`; killed at the end, if it lives then."""
    out, err = where.folder / f"{name}.out", where.folder / f"{name}.err"
    command = [sys.executable, "-m", "quantwatch", "run", "--config", str(where.file), "--cache", str(where.cache)]
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(  # noqa: S603, our own command
            command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=os.environ | environment
        )
    try:
        yield Running(process, where, out, err)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE)


@asynccontextmanager
async def inside(where: Site, *, notifier: Notifier | None = None, clock: Clock | None = None) -> AsyncIterator[Daemon]:
    """A daemon that watches, on the test's own loop; told to end at the end."""
    daemon = Daemon(where.file, where.settings(), cache=where.cache, clock=clock, notifier=notifier or Notifier({}))
    running = asyncio.create_task(daemon.run())
    try:
        await until(lambda: daemon.ready.is_set() or running.done())
        if not running.done():
            yield daemon
    finally:
        daemon._signals.stop.set()
        await running
