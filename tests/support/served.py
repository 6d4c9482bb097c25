"""Tiny nodes, and other applications, on real loopback sockets."""

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import uvicorn
from starlette.applications import Starlette

from support.tiny_node import TinyNode


def served(node: TinyNode) -> AbstractContextManager[str]:
    """Serve a node on a free port; gives its URL."""
    return app_served(node.app())


@contextmanager
def app_served(app: Starlette) -> Iterator[str]:
    """Serve an application on a free port; gives its URL."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)
