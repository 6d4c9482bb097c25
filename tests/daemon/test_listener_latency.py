"""Answers leave at once."""

import socket

from quantwatch.daemon.listeners import Listener


async def test_small_answers_are_not_held_back() -> None:
    """asyncio turns Nagle's algorithm off only for sockets that know they speak TCP; with it an answer takes 40 ms."""
    listener = Listener("127.0.0.1:0", key="server.listen")
    known = listener._socket.proto
    await listener.stop()
    assert known == socket.IPPROTO_TCP
