"""A board on a real socket, as the admin listener serves it, that a test can change, hide and bring back."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
import yaml

from quantwatch.daemon.desk import Desk
from quantwatch.expose.access import Access
from quantwatch.expose.admin import admin_app
from quantwatch.expose.calls import Reloaded
from quantwatch.expose.sessions import key
from quantwatch.flow.access import ADMIN_TOKEN, Caller, Role
from quantwatch.flow.board import Board
from support.boards import board
from support.daemons import free_port


async def _refuse() -> Reloaded:
    return Reloaded(ok=False, message="there is nothing behind this board", changes=())


@dataclass(slots=True)
class WatchedBoard:
    """An admin listener that shows this board. content: its configuration file, as far as commands read it."""

    folder: Path
    shown: Board = field(default_factory=board)
    token: str | None = None
    port: int = field(default_factory=free_port)
    _server: uvicorn.Server | None = None
    _thread: threading.Thread | None = None

    @property
    def file(self) -> Path:
        """A configuration file that names the listener."""
        path = self.folder / "quantwatch.yaml"
        server: dict[str, Any] = {"listen": "127.0.0.1:1", "admin_listen": f"127.0.0.1:{self.port}"}
        if self.token is not None:
            (self.folder / "token").write_text(self.token)
            server["admin_token"] = f"file:{self.folder / 'token'}"
        path.write_text(yaml.safe_dump({"schema": 1, "server": server}))
        return path

    def start(self) -> None:
        """Listen."""
        keys = () if self.token is None else [key(Caller(ADMIN_TOKEN, Role.ADMIN), self.token)]
        app = admin_app(lambda: self.shown, Desk(_refuse), access=Access(keys))
        config = uvicorn.Config(app, host="127.0.0.1", port=self.port, log_level="critical", lifespan="off")
        self._server = server = uvicorn.Server(config)
        self._thread = threading.Thread(target=server.run, daemon=True)
        self._thread.start()
        while not server.started:
            time.sleep(0.01)

    def stop(self) -> None:
        """Listen no more."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(10)
        self._server = self._thread = None


@contextmanager
def watched_board(folder: Path, **given: Any) -> Iterator[WatchedBoard]:
    """A board that listens until the end."""
    one = WatchedBoard(folder, **given)
    one.start()
    try:
        yield one
    finally:
        one.stop()
