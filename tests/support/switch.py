"""One address behind which the server can be exchanged, as a node is when it is repaired."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

CHUNK = 65_536


class Switch:
    """A TCP relay to one server at a time. A change cuts the connections to the old one, as its end would."""

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._open = threading.Event()

    @property
    def url(self) -> str:
        """The address that stays the same."""
        return f"http://127.0.0.1:{self.port}"

    def to(self, upstream: str) -> None:
        """Put another server behind the address."""
        self.upstream = upstream
        self._loop.call_soon_threadsafe(self._cut)

    def _cut(self) -> None:
        for writer in list(self._writers):
            writer.close()

    def run(self) -> None:
        """Relay until stopped; for a thread of its own."""
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    def wait(self) -> None:
        """Wait until the address is open."""
        self._open.wait(10)

    def stop(self) -> None:
        """End the relay."""
        self._loop.call_soon_threadsafe(self._stop.set)

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._open.set()
        await self._stop.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = urlsplit(self.upstream)
        try:
            back, forth = await asyncio.open_connection(there.hostname, there.port)
        except OSError:
            writer.close()
            return
        both = {forth, writer}
        self._writers |= both
        try:
            await asyncio.gather(_copy(reader, forth), _copy(back, writer))
        finally:
            self._writers -= both


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await source.read(CHUNK):
            sink.write(chunk)
            await sink.drain()
    sink.close()


@contextmanager
def switch(upstream: str) -> Iterator[Switch]:
    """A relay that runs in a thread."""
    relay = Switch(upstream)
    thread = threading.Thread(target=relay.run, daemon=True)
    thread.start()
    relay.wait()
    try:
        yield relay
    finally:
        relay.stop()
        thread.join(10)
