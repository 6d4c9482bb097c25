"""The listener for HAProxy's agent-check: what it says to whom, and that nothing of its trouble is a word."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from quantwatch.daemon.agent import AgentListener, Bounds
from quantwatch.errors import InputError
from quantwatch.expose.exposition import exposition
from quantwatch.expose.meters import Meters
from quantwatch.flow.board import Board, TargetBoard
from quantwatch.flow.decision import PoolMode
from quantwatch.flow.state import Human, Routing
from quantwatch.flow.verdict import Quality
from support.boards import board, isolated, starting, target_board
from support.daemons import until


@asynccontextmanager
async def listening(
    whole: Callable[[], Board], meters: Meters | None = None, *, bounds: Bounds | None = None
) -> AsyncIterator[AgentListener]:
    one = AgentListener("127.0.0.1:0", whole, meters or Meters(), key="server.agent_listen", bounds=bounds)
    await one.start()
    try:
        yield one
    finally:
        await one.stop()


async def said(port: int, asked: bytes, *, ends: bool = False) -> bytes:
    """Everything that is answered. ends: we say no more after that."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(asked)
    if ends:
        writer.write_eof()
    try:
        return await reader.read()
    finally:
        writer.close()


OUT = [
    isolated("node-b"),
    isolated("node-b", routing=Routing.LEAVING),
    isolated("node-b", left=True, pool="gone"),
    isolated("node-b", human=Human.FORCED_OUT),
]


@pytest.mark.parametrize("target", OUT)
async def test_a_target_that_we_took_out_loses_its_weight(target: TargetBoard) -> None:
    async with listening(lambda: board(target)) as one:
        assert await said(one.port, b"node-b\n") == b"0%\n"


IN = {
    "in traffic": board(target_board("node-b")),
    "degraded but in traffic": board(target_board("node-b", quality=Quality.DEGRADED)),
    "returning": board(isolated("node-b", routing=Routing.RETURNING)),
    "contradicted": board(isolated("node-b", routing=Routing.CONTRADICTED)),
    "taken out by somebody else": board(isolated("node-b", owner=None)),
    "only observed": board(isolated("node-b"), mode=PoolMode.OBSERVE),
    "forced in": board(isolated("node-b", human=Human.FORCED_IN)),
}


@pytest.mark.parametrize("why", IN)
async def test_any_other_target_has_its_whole_weight(why: str) -> None:
    async with listening(lambda: IN[why]) as one:
        assert await said(one.port, b"node-b\n") == b"100%\n"


NOTHING = {
    "unknown": (board(isolated("node-b")), b"node-c\n"),
    "no name": (board(isolated("node-b")), b"\n"),
    "no UTF-8": (board(isolated("node-b")), b"\xff\xfe\n"),
    "starting": (starting(board(isolated("node-b"))), b"node-b\n"),
}


@pytest.mark.parametrize("why", NOTHING)
async def test_what_we_do_not_know_is_answered_with_an_empty_line(why: str) -> None:
    whole, asked = NOTHING[why]
    async with listening(lambda: whole) as one:
        assert await said(one.port, asked) == b"\n"


@pytest.mark.parametrize(("asked", "ends"), [(b"node-b\r\n", False), (b"  node-b  \n", False), (b"node-b", True)])
async def test_a_name_ends_with_the_line_or_with_the_connection(asked: bytes, ends: bool) -> None:
    async with listening(lambda: board(isolated("node-b"))) as one:
        assert await said(one.port, asked, ends=ends) == b"0%\n"


async def test_a_line_without_end_is_hung_up_on_without_a_word() -> None:
    async with listening(lambda: board(isolated("node-b"))) as one:
        with contextlib.suppress(ConnectionError):  # hung up on in the middle of the line
            assert await said(one.port, b"node-b" * 10_000) == b""
        assert await said(one.port, b"node-b\n") == b"0%\n"


async def test_who_says_nothing_is_hung_up_on_without_a_word() -> None:
    async with listening(lambda: board(isolated("node-b")), bounds=Bounds(seconds=0.05)) as one:
        assert await said(one.port, b"node-b") == b""


async def test_a_fault_of_ours_is_no_word_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Board:
        raise RuntimeError("no board")

    async with listening(broken) as one:
        assert await said(one.port, b"node-b\n") == b""
        await until(lambda: "no board" in caplog.text)


async def test_too_many_at_once_are_hung_up_on_and_the_others_are_answered() -> None:
    async with listening(lambda: board(isolated("node-b")), bounds=Bounds(at_once=2)) as one:
        waiting = [await asyncio.open_connection("127.0.0.1", one.port) for _ in range(2)]
        assert await said(one.port, b"", ends=True) == b""
        for reader, writer in waiting:
            writer.write(b"node-b\n")
            assert await reader.read() == b"0%\n"
            writer.close()
        assert await said(one.port, b"node-b\n") == b"0%\n"


async def test_a_stop_ends_who_waits() -> None:
    async with listening(lambda: board(isolated("node-b"))) as one:
        reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
        await asyncio.sleep(0)
    assert await reader.read() == b""
    writer.close()


async def test_an_unknown_name_is_told_once_and_counted_each_time(caplog: pytest.LogCaptureFixture) -> None:
    meters = Meters()
    with caplog.at_level(logging.WARNING):
        async with listening(lambda: board(isolated("node-b")), meters) as one:
            for name in (b"node-b", b"x", b"x", b"", b"node-b"):
                await said(one.port, name + b"\n")
    assert caplog.text.count("asks for 'x', which is no target") == 1
    assert caplog.text.count("let agent-send give one") == 1
    page = exposition(board(), meters)[0].decode()
    assert 'quantwatch_verdict_requests_total{target="node-b"} 2.0' in page
    assert "quantwatch_verdict_unknown_requests_total 3.0" in page


async def test_a_port_in_use_is_told_at_once_with_its_key() -> None:
    async with listening(board) as one:
        with pytest.raises(InputError, match=r"server\.agent_listen: cannot listen on 127\.0\.0\.1"):
            AgentListener(f"127.0.0.1:{one.port}", board, Meters(), key="server.agent_listen")
