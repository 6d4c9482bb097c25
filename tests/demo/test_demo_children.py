"""The demo's processes: ready, gone too early, ended in order, and an address that outlives the process behind it."""

import asyncio
import socket
from pathlib import Path

import pytest

from quantwatch.demo.children import DemoFailed, Place, start


async def test_a_process_is_ready_when_its_output_says_so(tmp_path: Path) -> None:
    child = await start("version", ["version"], folder=tmp_path)

    await child.until(lambda said: "0." in said)

    assert child.output == tmp_path / "version.log"
    assert await child.process.wait() == 0
    assert await child.stop() == 0


async def test_a_process_that_ends_too_early_is_told_with_its_last_words(tmp_path: Path) -> None:
    child = await start("daemon", ["run", "--config", str(tmp_path / "none.yaml")], folder=tmp_path)

    with pytest.raises(DemoFailed) as caught:
        await child.until(lambda said: "never" in said)

    told = str(caught.value)
    assert "daemon ended with code 3" in told
    assert "none.yaml" in told
    assert str(tmp_path / "daemon.log") in told


async def test_a_process_that_takes_too_long_is_told(tmp_path: Path) -> None:
    child = await start("version", ["version"], folder=tmp_path)

    with pytest.raises(DemoFailed, match="was not ready within 0 s"):
        await child.until(lambda said: "never said" in said, seconds=0)

    await child.stop()


async def test_a_place_keeps_who_comes_while_nobody_answers() -> None:
    place = Place.open()
    host, port = place.socket.getsockname()
    assert place.url == f"http://{host}:{port}"

    with socket.create_connection((host, port), timeout=5) as early:
        served = asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readexactly(2))
            await writer.drain()
            writer.close()
            served.set()

        early.sendall(b"hi")
        server = await asyncio.start_server(answer, sock=place.socket.dup())
        await asyncio.wait_for(served.wait(), 5)
        assert early.recv(2) == b"hi"
        server.close()
    place.close()
    assert place.socket.fileno() == -1
