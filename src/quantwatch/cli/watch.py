"""`quantwatch watch`: a running daemon, looked at again and again until somebody has seen enough."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from quantwatch.cli.admin import STATUS, Config, board_code, daemon_at, read_answer
from quantwatch.cli.exit_codes import CANNOT_SAY, OK
from quantwatch.cli.output import Terminal
from quantwatch.cli.watch_frame import Page, frame, printable
from quantwatch.cli.watch_past import Event, Past, recorded
from quantwatch.clock import Clock, SystemClock
from quantwatch.errors import InputError, ProbeError

LONGEST_WAIT = 10.0
"""Seconds that one answer may take; a daemon that needs longer counts as silent until the next look."""

STEPS = {"j": 1, "k": -1, " ": 10}


def command(
    config: Config,
    interval: Annotated[float, typer.Option(min=0.2, max=3600, help="Seconds from one look to the next")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print one picture and end")] = False,  # noqa: FBT002, a flag
    store: Annotated[
        Path | None, typer.Option(help="The daemon's store: values of earlier runs are drawn from the beginning")
    ] = None,
) -> None:
    """Watch a running daemon: every target with its numbers against their limits, the worst first, and what changes.

    On a terminal q ends it, j and k move through the targets. Without a terminal each change is a line. A daemon that
    does not answer is waited for. Exit code 0 when it is ended; with --once as `status`, and 2 when no daemon answers.
    """
    watching = Watching(config, interval, SystemClock(), where=daemon_at(config)[1])
    for target, task_set, run, numbers in recorded(store) if store is not None else ():
        watching.past.remember(target, task_set, run=run, numbers=numbers)
    out = Terminal(highlight=False)
    if once:
        raise typer.Exit(asyncio.run(watching.one(out)))
    shows = watching.live if out.is_terminal and not out.is_dumb_terminal else watching.lines
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(shows(out))
    raise typer.Exit(OK)


@dataclass(slots=True)
class Watching:
    """A look at the daemon of a configuration, repeated. top: how many targets a person has moved past."""

    config: Path
    interval: float
    clock: Clock
    past: Past = field(default_factory=Past)
    where: str = ""
    top: int = 0
    _ended: asyncio.Event = field(default_factory=asyncio.Event)
    _nudged: asyncio.Event = field(default_factory=asyncio.Event)

    async def one(self, out: Console) -> int:
        """Print one picture; the exit code that belongs to it."""
        await self.look()
        self.print(out)
        return CANNOT_SAY if self.past.board is None else board_code(self.past.board)

    def print(self, out: Console) -> None:
        """Print a whole picture, however high it is."""
        for line in frame(self.past, self._page(out, height=None), now=self.clock.now()):
            out.print(line)

    async def live(self, out: Console) -> None:
        """Draw on a terminal until somebody ends it."""
        with (
            self._listening(),
            _keys(sys.stdin, self.press),
            Live(console=out, screen=True, auto_refresh=False) as live,
        ):
            looking = asyncio.create_task(self._look_on())
            looking.add_done_callback(lambda _: self.end())  # a fault of ours must be seen
            try:
                while not self._ended.is_set():
                    page = self._page(out, height=out.height)
                    live.update(Text("\n").join(frame(self.past, page, now=self.clock.now())), refresh=True)
                    self._nudged.clear()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._nudged.wait(), min(1.0, self.interval))
            finally:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)
        if looking.done() and not looking.cancelled():
            looking.result()

    async def lines(self, out: Console) -> None:
        """Print what changes, a line each, until somebody ends it or nobody reads any more."""
        with self._listening():
            while not self._ended.is_set() and not out.quiet:
                for one in await self.look():
                    out.print(Text(f"{one.at.astimezone():%Y-%m-%dT%H:%M:%S%z} {printable(one.said)}"), soft_wrap=True)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._ended.wait(), self.interval)

    async def look(self) -> list[Event]:
        """Ask the daemon once; what is to be told. Its silence and its refusal are told too, and never raised."""
        try:
            board = await self._asked()
        except (InputError, ProbeError) as exc:
            why = exc.reason if isinstance(exc, ProbeError) else str(exc)
            return self.past.miss(" ".join(why.split()), self.clock.now())
        return self.past.take(board, self.clock.now())

    async def _asked(self) -> dict[str, Any]:
        from quantwatch.net import Link

        # Read anew each time: address and token of a daemon that was started again may be others.
        endpoint, self.where = daemon_at(self.config)
        async with Link(endpoint) as link:
            return read_answer(await link.glance(STATUS, seconds=LONGEST_WAIT), self.where)

    async def _look_on(self) -> None:
        while True:
            await self.look()
            self._nudged.set()
            await self.clock.sleep(self.interval)

    def end(self) -> None:
        """Let it end."""
        self._ended.set()
        self._nudged.set()

    def press(self, key: str) -> None:
        """What a key does."""
        if key in ("q", "Q", "\x03"):
            self.end()
        elif key in STEPS:
            most = len(self.past.board["targets"]) - 1 if self.past.board is not None else 0
            self.top = max(0, min(most, self.top + STEPS[key]))
            self._nudged.set()

    def _page(self, out: Console, *, height: int | None) -> Page:
        plain = out.options.ascii_only
        return Page(out.width, height, self.where, self.interval, top=self.top, plain=plain)

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """End in order on Ctrl-C and SIGTERM, and draw anew when the window changes."""
        loop = asyncio.get_running_loop()
        does = {signal.SIGINT: self.end, signal.SIGTERM: self.end, signal.SIGWINCH: self._nudged.set}
        for number, action in does.items():
            loop.add_signal_handler(number, action)
        try:
            yield
        finally:
            for number in does:
                loop.remove_signal_handler(number)


@contextlib.contextmanager
def _keys(source: Any, press: Callable[[str], None]) -> Iterator[None]:
    """Hear single keys of a terminal; one that is none, as with `< /dev/null`, says nothing."""
    import os
    import termios
    import tty

    if not source.isatty():
        yield
        return
    number, loop = source.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(number)

    def heard() -> None:
        keys = os.read(number, 64).decode("ascii", "ignore")
        if not keys:
            loop.remove_reader(number)  # the terminal is gone
        for key in keys:
            press(key)

    tty.setcbreak(number)
    loop.add_reader(number, heard)
    try:
        yield
    finally:
        loop.remove_reader(number)
        termios.tcsetattr(number, termios.TCSADRAIN, before)
