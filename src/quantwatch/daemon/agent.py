"""The listener that answers HAProxy's `agent-check`: one line in, the target's name; one line out; closed.

Whatever is wrong here changes nothing at HAProxy: a line without a word leaves a server as it is, and so does an agent
that does not answer (HAProxy's configuration manual, agent-check). So trouble of any kind ends without a word.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from quantwatch.daemon.listeners import bound
from quantwatch.expose.meters import Meters
from quantwatch.expose.verdict import agent_words
from quantwatch.flow.board import Board
from quantwatch.log import logger

log = logger()

MOST_STRANGERS = 50
"""Unknown names that are logged, once each; anybody can ask for any."""

TURNS = 5
"""Turns of the loop within which a connection that was being accepted has been, and is hung up on."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one listener puts up with. at_once: exchanges under way; who comes beyond is hung up on.

    line: bytes of a question; a target's name has 80 letters at most. seconds: how long an exchange may take; HAProxy
    itself gives up after agent-inter, 2 s by default.
    """

    line: int = 256
    seconds: float = 5.0
    at_once: int = 128


class AgentListener:
    """One address. Bound at once, so that a port in use is told before anything runs."""

    def __init__(
        self, address: str, board: Callable[[], Board], meters: Meters, *, key: str, bounds: Bounds | None = None
    ) -> None:
        host, _, port = address.rpartition(":")
        self._socket = bound(host.strip("[]"), int(port), key=key)
        self.host, self.port = self._socket.getsockname()[:2]
        self._board = board
        self._meters = meters
        self._bounds = bounds or Bounds()
        self._server: asyncio.Server | None = None
        self._ends = False
        self._under_way: set[asyncio.Task[None]] = set()
        self._strangers: set[str] = set()

    async def start(self) -> None:
        """Answer from now on."""
        self._server = await asyncio.start_server(self._met, sock=self._socket, limit=self._bounds.line)

    async def stop(self) -> None:
        """Close; who waits for an answer gets none."""
        self._ends = True
        server, self._server = self._server, None
        if server is not None:
            # A server that is closed while it accepts forgets that connection open, so it stops listening first.
            asyncio.get_running_loop().remove_reader(self._socket)
            for _ in range(TURNS):
                await asyncio.sleep(0)
            server.close()
        for one in list(self._under_way):
            one.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        await asyncio.sleep(0)
        self._socket.close()

    def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._ends or len(self._under_way) >= self._bounds.at_once:
            writer.close()
            return
        task = asyncio.create_task(self._exchange(reader, writer), name="agent check")
        self._under_way.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Forget it. A fault of ours is told; HAProxy got no word, so nothing has changed there."""
        self._under_way.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            log.error("an agent check broke off by a fault in quantwatch", fault=repr(fault))

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # ValueError: the line is too long
            with contextlib.suppress(OSError, TimeoutError, ValueError):
                async with asyncio.timeout(self._bounds.seconds):
                    asked = await reader.readline()
                    writer.write(f"{self._words(_name(asked))}\n".encode("ascii"))
                    await writer.drain()
        finally:
            writer.close()

    def _words(self, name: str) -> str:
        board = self._board()
        known = board.target(name) is not None
        if board.own.restored:
            self._meters.verdict_asked(name, known=known)
            self._note(name, known=known)
        return agent_words(board, name)

    def _note(self, name: str, *, known: bool) -> None:
        if known or name in self._strangers or len(self._strangers) >= MOST_STRANGERS:
            return
        self._strangers.add(name)
        said = f"for {name!r}, which is no target" if name else "without a name; let agent-send give one"
        log.warning(f"an agent check asks {said}; it is answered with nothing, and the server stays as it is")


def _name(asked: bytes) -> str:
    return asked.decode("utf-8", "replace").strip()
