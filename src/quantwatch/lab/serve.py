"""A lab node on a socket: served by uvicorn until told to stop, and then without losing a request."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Generator
from types import FrameType

import uvicorn

from quantwatch.lab.app import Node
from quantwatch.lab.signals import ENDING, KILLED
from quantwatch.lab.sockets import url_of
from quantwatch.log import logger

log = logger("quantwatch.lab")

KEEP_ALIVE_SECONDS = 65
"""Longer than clients keep idle connections, so that it is they who close them."""

SETTLE_SECONDS = 0.3
"""How long connections may still bring requests once the node no longer takes new connections."""


class _Server(uvicorn.Server):
    """Ends with exit code 0 on SIGTERM or SIGINT; a second one ends at once, with 130."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Handle signals while serving, and do not raise them again afterwards."""
        before = {one: signal.signal(one, self.handle_exit) for one in ENDING}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002, the library's signature
        """Stop in order; at the second time at once."""
        if self.should_exit:
            os._exit(KILLED)
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no new connections, answer what the open ones still bring as their last, then close."""
        log.info("stopping", connections=len(self.server_state.connections))
        for server in self.servers:
            server.close()
        self.server_state.default_headers = [*self.server_state.default_headers, (b"connection", b"close")]
        await asyncio.sleep(SETTLE_SECONDS)
        await super().shutdown(sockets)


def serve(node: Node, taken: socket.socket) -> None:
    """Serve a node until SIGTERM or SIGINT."""
    config = uvicorn.Config(
        node.app(),
        log_config=None,
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
    )
    url = url_of(taken)
    asyncio.run(_Server(config, lambda: log.info("listening", url=url, **node.told)).serve(sockets=[taken]))
    node.close()
    log.info("stopped")
