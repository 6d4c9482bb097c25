"""HTTP servers inside the daemon's own loop, which leave its signals alone."""

import asyncio
import contextlib
import socket
from collections.abc import Generator

import uvicorn
from starlette.types import ASGIApp

from quantwatch.errors import InputError

SHUTDOWN_SECONDS = 2
"""How long answers under way may take once the daemon ends."""


class _Server(uvicorn.Server):
    """A server without signal handlers: the daemon has its own, and knows what to finish first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture none."""
        yield


class Listener:
    """One address. Bound at once, so that a port in use is told before anything runs."""

    def __init__(self, address: str, *, key: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = bound(host.strip("[]"), int(port), key=key)
        self.host, self.port = self._socket.getsockname()[:2]
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self, app: ASGIApp) -> None:
        """Answer from now on."""
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        self._server = _Server(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]), name=f"listener {self.port}")
        while not self._server.started and not self._task.done():  # noqa: ASYNC110, the library has no event for it
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        """Finish what is under way and close."""
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await self._task
        self._socket.close()


def bound(host: str, port: int, *, key: str) -> socket.socket:
    """A listening socket. key: what the address is called in the configuration. Raises InputError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family, backlog=128, reuse_port=False)
    except OSError as exc:
        raise InputError(f"{key}: cannot listen on {host}:{port}: {exc.strerror or exc}") from exc
    # Taken up again, the socket knows that it speaks TCP, and asyncio then sends without Nagle's 40 ms of delay.
    return socket.socket(fileno=bound.detach())
