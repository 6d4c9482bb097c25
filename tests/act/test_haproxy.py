"""The haproxy driver against a played runtime socket: names, half-done orders, and replies that tell nothing.

What the real program does stands in tests/gateways.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from quantwatch.act.contract import Seen, Unanswered
from quantwatch.act.haproxy import LONGEST_REPLY, HaproxyDriver, Runtime, Server, serving, states
from quantwatch.config.gateway import Leave
from quantwatch.errors import GatewayRefused
from quantwatch.flow.decision import Action
from support.gateway import order
from support.runtime_socket import HEAD, RuntimeSocket, runtime_socket

ISOLATE, RELEASE = order(node="a"), order(Action.RELEASE, node="a")
BOTH = order(node="llm/a,llm/b")
ROW = "3 llm 1 a 127.0.0.1 2 8 1 1 0 1 0 2 0 0 0 0 - 18081 - 0 0 - - 0"


@pytest.fixture
async def haproxy(tmp_path: Path) -> AsyncIterator[RuntimeSocket]:
    async with runtime_socket(tmp_path, a=0, b=0) as played:
        yield played


def driver_of(haproxy: RuntimeSocket, *, leave: Leave = Leave.DRAIN, timeout: float = 5.0) -> HaproxyDriver:
    return HaproxyDriver(Runtime(str(haproxy.path), timeout), backend="llm", leave=leave)


@pytest.mark.parametrize("leave", Leave)
async def test_a_server_leaves_by_the_state_that_is_chosen_and_comes_back(haproxy: RuntimeSocket, leave: Leave) -> None:
    driver = driver_of(haproxy, leave=leave)

    assert await driver.call(ISOLATE) == f"haproxy set llm/a to {leave.value}"
    assert await driver.observe(ISOLATE) is Seen.ISOLATED
    assert await driver.observe(order(node="b")) is Seen.ROUTABLE
    await driver.call(RELEASE)
    assert await driver.observe(RELEASE) is Seen.ROUTABLE

    assert haproxy.changes == [f"set server llm/a state {leave.value}", "set server llm/a state ready"]


async def test_a_name_with_a_backend_goes_before_the_gateway_s_own(haproxy: RuntimeSocket) -> None:
    haproxy.states["chat/a"] = 0

    await driver_of(haproxy).call(order(node="chat/a"))

    assert haproxy.states == {"llm/a": 0, "llm/b": 0, "chat/a": 8}


NO_NAMES = [
    "a; shutdown sessions server llm/b",
    "a\nset server llm/b state maint",
    "a state ready",
    "a\r",
    "a\x00",
    "llm a",
    "ä",
    "",
    "a,",
    "/a",
    "llm/",
    "llm/a/b",
    "http://node-a:8000",
]


@pytest.mark.parametrize("name", NO_NAMES)
async def test_a_name_that_could_carry_a_command_is_never_sent(haproxy: RuntimeSocket, name: str) -> None:
    driver = driver_of(haproxy)

    with pytest.raises(GatewayRefused, match="gateway_name"):
        await driver.call(order(node=name))
    assert await driver.observe(order(node=name)) is Seen.UNKNOWN

    assert haproxy.commands == []


REFUSALS = [
    (b"No such server.\n\n", "haproxy says of llm/a: No such server. Look at the target's gateway_name"),
    (b"No such backend.\n\n", "No such backend. Look at gateway.backend"),
    (b"Permission denied\n\n", "Permission denied. Give the line `stats socket` of HAProxy `level admin`"),
    (b"Unknown command. Please enter one of\n  help\n\n", "gateway.socket is no runtime socket of a worker"),
    (b"Something new.\n\n", "Something new. Look at its log"),
]


@pytest.mark.parametrize(("reply", "said"), REFUSALS)
async def test_every_text_but_the_empty_line_is_a_refusal_with_its_cure(
    haproxy: RuntimeSocket, reply: bytes, said: str
) -> None:
    haproxy.replies = [reply]

    with pytest.raises(GatewayRefused) as caught:
        await driver_of(haproxy).call(ISOLATE)

    assert said in str(caught.value)
    assert haproxy.states["llm/a"] == 0


async def test_a_socket_that_nobody_serves_got_nothing(tmp_path: Path) -> None:
    driver = HaproxyDriver(Runtime(str(tmp_path / "none.sock"), 5.0), backend="llm")

    with pytest.raises(Unanswered, match="cannot connect") as caught:
        await driver.call(ISOLATE)

    assert caught.value.arrived is False
    assert await driver.observe(ISOLATE) is Seen.UNKNOWN


async def test_a_port_that_nobody_serves_got_nothing() -> None:
    driver = HaproxyDriver(Runtime("127.0.0.1:1", 5.0), backend="llm")

    with pytest.raises(Unanswered, match="cannot connect") as caught:
        await driver.call(ISOLATE)

    assert caught.value.arrived is False


async def test_a_silence_ends_and_may_hide_a_done_order(haproxy: RuntimeSocket) -> None:
    haproxy.hangs = True
    driver = driver_of(haproxy, timeout=0.2)

    with pytest.raises(Unanswered, match=r"no complete answer within 0\.2 s") as caught:
        await driver.call(ISOLATE)

    assert caught.value.arrived is True
    assert await driver.observe(ISOLATE) is Seen.UNKNOWN


@pytest.mark.parametrize("reply", [b"", b"No such ser", b"x" * (LONGEST_REPLY + 1)], ids=["nothing", "cut", "endless"])
async def test_a_reply_that_is_no_reply_may_hide_a_done_order(haproxy: RuntimeSocket, reply: bytes) -> None:
    haproxy.replies = [reply, reply]
    driver = driver_of(haproxy)

    with pytest.raises(Unanswered) as caught:
        await driver.call(ISOLATE)

    assert caught.value.arrived is True
    assert await driver.observe(ISOLATE) is Seen.UNKNOWN


ODD = [
    b"\n",
    b"2\n" + f"{HEAD}\n{ROW}\n\n".encode(),
    f"1\n{HEAD}\n\n".encode(),
    f"1\n{ROW}\n\n".encode(),
    f"1\n{HEAD}\n{ROW} 1\n\n".encode(),
    f"1\n{HEAD}\n{ROW.replace('2 8 1', '2 x 1')}\n\n".encode(),
    f"1\n{HEAD}\n{ROW.replace('2 8 1', '2 -8 1')}\n\n".encode(),
    f"1\n{HEAD.replace('srv_admin_state', 'state')}\n{ROW}\n\n".encode(),
    f"1\n{HEAD}\n{ROW.replace(' a ', ' c ')}\n\n".encode(),
    b"Can't find backend.\n\n",
    b"Permission denied\n\n",
    b"\xff\xfe\n\n",
]


@pytest.mark.parametrize("reply", ODD)
async def test_whatever_is_no_plain_state_is_unknown(haproxy: RuntimeSocket, reply: bytes) -> None:
    haproxy.replies = [reply]

    assert await driver_of(haproxy).observe(ISOLATE) is Seen.UNKNOWN


def test_columns_are_found_by_their_names() -> None:
    head = "# srv_name new srv_admin_state be_name srv_iweight srv_uweight"
    assert states(f"1\n{head}\na 7 9 llm 100 10\n") == {"llm/a": Server(9, 10, 100)}


@pytest.mark.parametrize(
    ("configured", "asked", "weight", "told"),
    [(100, 10, 10, 10), (100, 100, 100, 100), (100, 0, 1, 0), (256, 10, 25, 10), (20, 10, 2, 14), (256, 50, 128, 50)],
)
async def test_a_share_of_the_weight_is_set_and_read_back(
    haproxy: RuntimeSocket, configured: int, asked: int, weight: int, told: int
) -> None:
    haproxy.configured = configured
    driver = driver_of(haproxy)
    assert await driver.weight("a") == 100

    await driver.weigh("a", asked)

    assert haproxy.weights == {"llm/a": weight}
    assert await driver.weight("a") == told
    assert await driver.weight("a,b") == told  # of several servers the least
    assert await driver.weight("c") is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"configured": 1}, "too coarse for shares; write `weight 100`"),
        ({"configured": 15}, "too coarse"),
        ({"backups": {"a"}}, "backup server, which gets everything or nothing"),
        ({"static": True}, "Shares need `balance roundrobin`"),
    ],
)
async def test_a_server_that_cannot_have_a_share_is_refused(
    haproxy: RuntimeSocket, given: dict[str, Any], said: str
) -> None:
    for name, value in given.items():
        setattr(haproxy, name, value)

    with pytest.raises(GatewayRefused, match=said):
        await driver_of(haproxy).weigh("a", 10)

    assert haproxy.weights == {}


SEEN = [
    (0, Leave.DRAIN, Seen.ROUTABLE, Seen.ROUTABLE),
    (8, Leave.DRAIN, Seen.ISOLATED, Seen.ISOLATED),
    (1, Leave.DRAIN, Seen.ISOLATED, Seen.ISOLATED),
    (1, Leave.MAINT, Seen.ISOLATED, Seen.ISOLATED),
    (8, Leave.MAINT, Seen.ROUTABLE, Seen.ISOLATED),  # sticky clients still reach it, and it is not back either
    (2, Leave.DRAIN, Seen.ROUTABLE, Seen.ROUTABLE),  # a tracked server is out; nobody set this one
    (16, Leave.DRAIN, Seen.ROUTABLE, Seen.ROUTABLE),
    (32, Leave.DRAIN, Seen.ROUTABLE, Seen.ROUTABLE),  # its name does not resolve
    (24, Leave.DRAIN, Seen.ISOLATED, Seen.ISOLATED),
]


@pytest.mark.parametrize(("bits", "leave", "isolating", "releasing"), SEEN)
async def test_only_what_was_set_by_command_counts(
    haproxy: RuntimeSocket, bits: int, leave: Leave, isolating: Seen, releasing: Seen
) -> None:
    haproxy.states["llm/a"] = bits
    driver = driver_of(haproxy, leave=leave)

    assert await driver.observe(ISOLATE) is isolating
    assert await driver.observe(RELEASE) is releasing


async def test_a_node_in_several_backends_is_out_when_it_is_out_everywhere(haproxy: RuntimeSocket) -> None:
    driver = driver_of(haproxy)

    await driver.call(BOTH)
    all_out = await driver.observe(BOTH)
    haproxy.states["llm/b"] = 0

    assert all_out is Seen.ISOLATED
    assert await driver.observe(BOTH) is Seen.ROUTABLE
    assert await driver.observe(order(Action.RELEASE, node="llm/a,llm/b")) is Seen.ISOLATED


async def test_where_one_of_several_does_not_exist_none_is_touched(haproxy: RuntimeSocket) -> None:
    with pytest.raises(GatewayRefused, match="llm/c: No such server"):
        await driver_of(haproxy).call(order(node="a, c"))

    assert haproxy.changes == []


async def test_what_broke_off_before_anything_was_set_has_not_arrived(haproxy: RuntimeSocket) -> None:
    haproxy.replies = [b""]

    with pytest.raises(Unanswered) as caught:
        await driver_of(haproxy).call(BOTH)

    assert caught.value.arrived is False
    assert haproxy.changes == []


@pytest.mark.parametrize("second", [b"No such server.\n\n", b""])
async def test_what_is_half_done_is_tried_again(haproxy: RuntimeSocket, second: bytes) -> None:
    haproxy.replies = [None, None, second]
    driver = driver_of(haproxy)

    with pytest.raises(Unanswered) as caught:
        await driver.call(BOTH)
    await driver.call(BOTH)

    assert caught.value.arrived is True
    assert haproxy.states == {"llm/a": 8, "llm/b": 8}


async def test_a_socket_that_goes_between_two_servers_of_a_node_leaves_a_doubt(haproxy: RuntimeSocket) -> None:
    """The call that could not be sent never arrived, and the one before it has changed something."""

    class Going(Runtime):
        async def ask(self, command: str) -> str:
            if command.startswith("set server llm/b"):
                haproxy.path.unlink()
            return await super().ask(command)

    with pytest.raises(Unanswered) as caught:
        await HaproxyDriver(Going(str(haproxy.path), 5.0), backend="llm").call(BOTH)

    assert caught.value.arrived is True
    assert haproxy.states == {"llm/a": 8, "llm/b": 0}


async def test_orders_of_two_nodes_at_once_are_both_done(haproxy: RuntimeSocket) -> None:
    driver = driver_of(haproxy)

    await asyncio.gather(driver.call(ISOLATE), driver.call(order(node="b")))

    assert haproxy.states == {"llm/a": 8, "llm/b": 8}


# ------------------------------------------------------------------ who is there


async def test_a_server_is_there_while_nothing_is_set_against_it(haproxy: RuntimeSocket) -> None:
    driver = driver_of(haproxy)
    assert await driver.present(["a", "llm/b", "llm/a,llm/b", "c"]) == {"a", "llm/b", "llm/a,llm/b"}
    haproxy.states["llm/b"] = 8
    assert await driver.present(["a", "llm/b", "llm/a,llm/b"]) == {"a"}
    assert haproxy.changes == []


@pytest.mark.parametrize("name", ["elsewhere/a", "llm/nobody", *NO_NAMES])
async def test_a_name_that_haproxy_does_not_have_is_not_there_and_hides_nobody(
    haproxy: RuntimeSocket, name: str
) -> None:
    assert await driver_of(haproxy).present([name, "a"]) == {"a"}


@pytest.mark.parametrize(
    ("up", "admin", "serves"),
    [(2, 0, True), (1, 0, True), (0, 0, False), (3, 0, False), *((2, bit, False) for bit in (1, 2, 4, 8, 16, 32, 64))],
)
def test_a_server_serves_while_it_is_up_and_nobody_has_set_anything(up: int, admin: int, serves: bool) -> None:
    row = ROW.replace("127.0.0.1 2 8", f"127.0.0.1 {up} {admin}")
    assert serving(f"1\n{HEAD}\n{row}\n") == ({"llm/a"} if serves else set())


def test_a_server_without_any_weight_serves_nobody() -> None:
    assert serving(f"1\n{HEAD}\n{ROW.replace('2 8 1 1', '2 0 0 1')}\n") == set()
    assert serving(f"1\n{HEAD}\n{ROW.replace('2 8 1 1', '2 0 1 1')}\n") == {"llm/a"}


@pytest.mark.parametrize("reply", [b"Permission denied\n", b"Unknown command.\n", b"2\n# be_id\n", b"\n"])
async def test_an_answer_that_is_no_list_tells_nobody_s_presence(haproxy: RuntimeSocket, reply: bytes) -> None:
    haproxy.replies = [reply]
    with pytest.raises(GatewayRefused):
        await driver_of(haproxy).present(["a"])


async def test_a_silent_socket_tells_nobody_s_presence(haproxy: RuntimeSocket) -> None:
    haproxy.hangs = True
    with pytest.raises(Unanswered):
        await driver_of(haproxy, timeout=0.05).present(["a"])
