"""The parts of a support bundle: what is gathered, and from where."""

import asyncio
import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quantwatch import __version__
from quantwatch.cli.admin import STATUS, daemon_at, here
from quantwatch.cli.bundle import Bundle
from quantwatch.cli.config import checked
from quantwatch.errors import InputError

if TYPE_CHECKING:
    from quantwatch.net import Endpoint
    from quantwatch.record.archive import Archive

MOST_LOG = 5 * 1024 * 1024
"""Bytes of a log, its end."""

MOST_LINES = 20_000
LONGEST_WAIT = 10.0
JOURNAL_SECONDS = 60.0


def add_system(bundle: Bundle, folders: Callable[[], list[Path]]) -> None:
    """Versions of everything, and room on the disks."""
    bundle.document("system/versions.json", versions)
    bundle.document("system/disk.json", lambda: [_disk(one) for one in folders()])


def add_configuration(bundle: Bundle, file: Path) -> None:
    """The file, and what is wrong with it or worth a warning."""
    bundle.configuration("config/quantwatch.yaml", lambda: file.read_text(encoding="utf-8", errors="replace"))
    bundle.document("config/check-config.json", lambda: checked(file))


def add_daemon(bundle: Bundle, file: Path) -> None:
    """What the running daemon shows, if there is one."""
    bundle.text("daemon/metrics.txt", lambda: _asked(_public(file), "/metrics"))
    bundle.document("daemon/status.json", lambda: json.loads(_asked(daemon_at(file)[0], STATUS)))


def add_store(bundle: Bundle, store: Callable[[], Path], limit: int) -> None:
    """The latest of everything, and the store's own health; damage of one table leaves the others."""
    from quantwatch.clock import SystemClock
    from quantwatch.record.as_json import changes_json, decision_json
    from quantwatch.record.care import check, moved_aside

    def care() -> dict[str, Any]:
        path = store()
        files = {one.name: one.stat().st_size for one in sorted(path.parent.glob(f"{path.name}*")) if one.is_file()}
        faults = check(path, now=SystemClock().now())
        return {"store": str(path), "bytes": files, "faults": faults, "moved_aside": list(map(str, moved_aside(path)))}

    def orders(archive: "Archive") -> list[dict[str, Any]]:
        made = [decision_json(one) for one in archive.decisions(limit=limit) if one.intent is not None]
        wanted = ("id", "order", "opened", "attempts", "outcome")
        return [{name: one[name] for name in wanted} for one in made]

    gathered: dict[str, Callable[[Archive], Any]] = {
        "runs": lambda archive: [dict(one.document) for one in archive.history(limit=limit)],
        "decisions": lambda archive: [decision_json(one) for one in archive.decisions(limit=limit)],
        "transitions": lambda archive: changes_json(archive.timeline(limit=limit)),
        "intents": orders,
    }
    bundle.document("store/check.json", care)
    for name, rows in gathered.items():
        bundle.document(f"store/{name}.json", lambda rows=rows: _read(store(), rows))  # type: ignore[misc]


def add_logs(bundle: Bundle, logs: list[Path], unit: str | None) -> None:
    """The ends of log files, and of a unit's journal."""
    for i, path in enumerate(logs, start=1):
        bundle.text(f"logs/{i}-{path.name}", lambda path=path: end_of(path))  # type: ignore[misc]
    if unit is not None:
        bundle.text("logs/journal.log", lambda: _journal(unit))


def versions() -> dict[str, Any]:
    """quantwatch, Python, the platform, and every package that quantwatch builds on, however far down."""
    return {
        "quantwatch": __version__,
        "python": sys.version,
        "executable": sys.executable,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "packages": dict(sorted(_packages().items())),
    }


def _packages() -> dict[str, str]:
    """Versions by name; packages that no part of quantwatch asks for are nobody's business."""
    found: dict[str, str] = {}
    waiting = ["quantwatch"]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        try:
            found[name] = metadata.version(name)
            wanted = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue  # an extra that is not installed
        names = ("".join(c if c.isalnum() or c in "._-" else " " for c in one).split(" ")[0] for one in wanted)
        waiting += [one.lower().replace("_", "-") for one in names if one]
    return found


def _disk(folder: Path) -> dict[str, Any]:
    usage = shutil.disk_usage(folder)
    return {"folder": str(folder), "total": usage.total, "used": usage.used, "free": usage.free}


def _read(store: Path, rows: "Callable[[Archive], Any]") -> Any:
    from quantwatch.record.archive import Archive

    with Archive.open(store) as archive:
        return rows(archive)


def _public(file: Path) -> "Endpoint":
    from quantwatch.config.load import load_listen
    from quantwatch.net import Endpoint

    return Endpoint("quantwatch", here(load_listen(file).listen))


def _asked(endpoint: "Endpoint", path: str) -> str:
    """A page of the daemon. Raises ProbeError without an answer, InputError for another than a good one."""
    from quantwatch.net import Link

    async def ask() -> str:
        async with Link(endpoint) as link:
            answer = await link.glance(path, seconds=LONGEST_WAIT)
        if answer.status != 200:
            raise InputError(f"the daemon answers HTTP {answer.status}")
        return answer.body.decode("utf-8", "replace")

    return asyncio.run(ask())


def end_of(path: Path, most: int = MOST_LOG) -> str:
    """The last bytes of a file, from the beginning of a line on."""
    with path.open("rb") as log:
        size = log.seek(0, 2)
        log.seek(max(0, size - most))
        if size > most:
            log.readline()
        return log.read().decode("utf-8", "replace")


def _journal(unit: str) -> str:
    program = shutil.which("journalctl")
    if program is None:
        raise InputError("there is no journalctl on this machine")
    command = [program, "--no-pager", "-o", "short-iso", "-n", str(MOST_LINES), f"--unit={unit}"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=JOURNAL_SECONDS)  # noqa: S603, no shell
    if done.returncode != 0:
        raise InputError(f"journalctl ended with {done.returncode}: {done.stderr.decode('utf-8', 'replace')[-2000:]}")
    return end_of_lines(done.stdout).decode("utf-8", "replace")


def end_of_lines(content: bytes, most: int = MOST_LOG) -> bytes:
    """The last bytes of lines, from the beginning of one on: half a line hides from whoever looks for secrets."""
    return content if len(content) <= most else content[-most:].partition(b"\n")[2]
