"""What must hold before a rehearsal: nobody else acts meanwhile, and whoever is out by decision stays out."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from quantwatch.cli.admin import asked
from quantwatch.errors import InputError, StoreError

if TYPE_CHECKING:
    from quantwatch.config.schema import Settings
    from quantwatch.flows.rehearse import Part

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def refuse_idle_driver(driver: str) -> None:
    """Raises InputError for a driver that calls nothing."""
    from quantwatch.act.known import abilities_of

    if not abilities_of(driver, state_url=False).calls:
        raise InputError(f"driver {driver} calls no gateway, so there is nothing to rehearse")


@contextlib.contextmanager
def guarded(config: Path, settings: "Settings", parts: "Sequence[Part]") -> Iterator[None]:
    """Keep a daemon from acting meanwhile. Raises InputError where one could, or where a target is out by decision.

    The store's lock is held, so that no daemon can start. One that runs already may go on if it only observes.
    """
    from quantwatch.config.load import store_file
    from quantwatch.record.place import only_writer

    path = store_file(settings, folder=config.parent)
    if not path.with_name(f"{path.name}.lock").exists():
        yield  # no daemon has ever run here; and a lock of ours could be one that its user may not open
        return
    lock = only_writer(path)
    try:
        lock.__enter__()
    except StoreError as exc:
        _refuse_unless_it_observes(config, parts, str(exc))
        yield
        return
    try:
        _refuse_isolated(path, parts)
        yield
    finally:
        lock.__exit__(None, None, None)


def _refuse_unless_it_observes(config: Path, parts: "Sequence[Part]", held: str) -> None:
    """A daemon that only observes a pool neither acts on its targets nor looks at them at the gateway."""
    board = asked(config, lambda link: link.get("/api/v1/status"))
    modes = {one["pool"]: one["mode"] for one in board["pools"]}
    routings = {one["target"]: one["routing"] for one in board["targets"]}
    for part in parts:
        if modes.get(part.pool) != "observe":
            raise InputError(
                f"{held}. A rehearsal would look to it like a fault of the gateway: stop the daemon, or set pool "
                f"{part.pool} to mode observe and `quantwatch reload`"
            )
        _refuse_out(part, routings.get(part.target, "in"))


def _refuse_isolated(path: Path, parts: "Sequence[Part]") -> None:
    from quantwatch.record.archive import Archive

    if not path.exists():
        return
    with Archive.open(path) as archive:
        for part in parts:
            state = archive.standing(part.target)
            _refuse_out(part, "in" if state is None else state.routing.value)


def _refuse_out(part: "Part", routing: str) -> None:
    if routing != "in":
        raise InputError(
            f"by the record {part.target} is {routing}, and a rehearsal would bring it back; `quantwatch release` does "
            "that on purpose"
        )


@contextlib.contextmanager
def broken_off(tell: Callable[[str], None]) -> Iterator[asyncio.Event]:
    """An event that Ctrl-C, SIGTERM and SIGHUP set in the running loop, instead of ending the process at once."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def heard() -> None:
        tell("still bringing it back; please wait" if stop.is_set() else "interrupted; what is out comes back first")
        stop.set()

    for one in SIGNALS:
        loop.add_signal_handler(one, heard)
    try:
        yield stop
    finally:
        for one in SIGNALS:
            loop.remove_signal_handler(one)
