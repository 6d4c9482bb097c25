"""Tiny nodes on real loopback sockets."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from support.tiny_node import TinyNode


@contextmanager
def served(node: TinyNode) -> Iterator[str]:
    """Serve a node on a free port; gives its URL."""
    config = uvicorn.Config(node.app(), host="127.0.0.1", port=0, log_level="critical", lifespan="off")
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
