"""A server that restarts while it is probed: noticed, left alone, and told from a balancer."""

from collections.abc import Callable
from dataclasses import dataclass, field

import httpx
import pytest

from quantwatch.errors import NodeFailed, NodeRestarted
from quantwatch.flow.load import Load
from quantwatch.probe.account import FIRST_REST, LONGEST_REST, Account, rest
from quantwatch.probe.budget import Budget, Gate, Told
from quantwatch.probe.strikes import Strikes
from support.builders import FakeClock, doing, link

OLD, NEW, NEWER = 1000.0, 2000.0, 3000.0


@dataclass
class Server:
    """A metrics page that a test changes."""

    started: float | None = OLD
    tokens: float | None = 10
    down: bool = False
    turns: list[float] = field(default_factory=list)
    looks: int = 0

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.looks += 1
        if self.down:
            raise httpx.ConnectError("Connection refused", request=request)
        started = self.turns.pop(0) if self.turns else self.started
        lines = ["vllm:num_requests_waiting 0"]
        lines += [] if started is None else [f"process_start_time_seconds {started}"]
        lines += [] if self.tokens is None else [f"vllm:prompt_tokens_total {self.tokens}"]
        return httpx.Response(200, text="\n".join(lines) + "\n", request=request)


@dataclass
class Scene:
    """A gate before such a server. struck: restarts under probes that were told."""

    server: Server
    clock: FakeClock
    gate: Gate
    struck: list[int]

    async def probe(self, during: Callable[[], None] = lambda: None) -> None:
        self.clock.time += 5.0
        async with self.gate.turn(1):
            during()


@pytest.fixture
def scene() -> Scene:
    server, clock, struck = Server(), FakeClock(), list[int]()
    node = link(doing(server.answer))
    gate = Gate(node, Budget(), clock, account=Account(), told=Told(restarted=lambda: struck.append(1)))
    return Scene(server, clock, gate, struck)


async def test_a_restart_between_two_requests_stops_the_second(scene: Scene) -> None:
    await scene.probe()
    scene.server.started = NEW
    with pytest.raises(NodeRestarted, match="restarted while it was probed"):
        await scene.probe()

    assert scene.struck == [1]
    assert scene.gate.account.row == 1


async def test_a_restart_is_told_once(scene: Scene) -> None:
    await scene.probe()
    scene.server.started = NEW
    with pytest.raises(NodeRestarted):
        await scene.probe()
    await scene.probe()

    assert scene.struck == [1]


async def test_counters_that_go_back_are_a_restart(scene: Scene) -> None:
    scene.server.started = None
    await scene.probe()
    scene.server.tokens = 3
    with pytest.raises(NodeRestarted):
        await scene.probe()


@pytest.mark.parametrize("tokens", [10, 11, None])
async def test_counters_that_stand_grow_or_vanish_are_none(scene: Scene, tokens: float | None) -> None:
    await scene.probe()
    scene.server.tokens = tokens
    await scene.probe()

    assert scene.gate.account.restarts == 0


async def test_a_start_time_that_is_no_longer_told_is_no_restart(scene: Scene) -> None:
    await scene.probe()
    scene.server.started = None
    await scene.probe()

    assert scene.gate.account.restarts == 0


async def test_rounding_of_the_start_time_is_no_restart(scene: Scene) -> None:
    await scene.probe()
    scene.server.started = OLD + 0.01
    await scene.probe()

    assert scene.gate.account.restarts == 0


async def test_a_server_that_breaks_off_and_comes_back_as_another_process_has_restarted(scene: Scene) -> None:
    with pytest.raises(NodeFailed):
        async with scene.gate.turn(1):
            raise NodeFailed("broke off", node="n")
    scene.server.down = True
    assert await scene.gate.look() is None
    scene.server.down, scene.server.started = False, NEW
    scene.clock.time += 3600.0
    await scene.gate.look()

    assert scene.struck == [1]


async def test_a_failed_request_is_followed_by_a_fresh_look(scene: Scene) -> None:
    with pytest.raises(NodeFailed):
        async with scene.gate.turn(1):
            raise NodeFailed("broke off", node="n")
    scene.server.started = NEW
    with pytest.raises(NodeRestarted):
        async with scene.gate.turn(1):
            pytest.fail("the gate let a request through")


async def test_a_server_that_was_away_and_is_the_same_process_has_not_restarted(scene: Scene) -> None:
    await scene.probe()
    scene.server.down = True
    assert await scene.gate.look() is None
    scene.server.down = False
    await scene.gate.look()

    assert scene.gate.account.restarts == 0


async def test_a_restart_while_nothing_was_under_way_is_nobodys_fault(scene: Scene) -> None:
    await scene.probe()
    await scene.gate.look()  # the look at the end of a run
    scene.server.started = NEW
    await scene.gate.look()

    assert scene.gate.account.restarts == 1  # a run that would go on over it still has to know
    assert scene.struck == []
    assert scene.gate.resting is None


async def test_a_request_under_way_during_a_look_is_at_risk_afterwards(scene: Scene) -> None:
    async with scene.gate.turn(1):
        await scene.gate.look()
    scene.server.started = NEW
    await scene.gate.look()

    assert scene.struck == [1]


@pytest.mark.parametrize("order", [[NEW, OLD], [NEW, NEW, OLD], [NEW, NEW, NEW, OLD]])
async def test_two_servers_behind_one_address_are_no_restart(scene: Scene, order: list[float]) -> None:
    await scene.probe()
    scene.server.turns = [*order]
    await scene.probe()
    scene.server.started = NEW
    await scene.probe()
    scene.server.started = OLD
    await scene.probe()

    assert scene.gate.account.restarts == 0
    assert scene.struck == []


async def test_an_older_process_is_another_server(scene: Scene) -> None:
    scene.server.started = NEW
    await scene.probe()
    scene.server.started = OLD
    await scene.probe()

    assert scene.gate.account.restarts == 0


async def test_a_calm_look_is_one_request(scene: Scene) -> None:
    await scene.gate.look()
    await scene.gate.look()

    assert scene.server.looks == 2


async def test_the_rest_doubles_with_every_restart_in_a_row_and_ends(scene: Scene) -> None:
    for times, started in enumerate([NEW, NEWER, 4000.0], start=1):
        await scene.probe()
        scene.server.started = started
        with pytest.raises(NodeRestarted):
            await scene.probe()
        seconds = rest(times)
        scene.clock.time += seconds - 1
        assert scene.gate.resting is not None
        scene.clock.time += 2
        assert scene.gate.resting is None


async def test_the_sentence_of_a_rest_tells_until_when_and_how_often(scene: Scene) -> None:
    await scene.probe()
    scene.server.started = NEW
    with pytest.raises(NodeRestarted):
        await scene.probe()
    assert scene.gate.resting == "left alone until 00:01 UTC: it restarted once while it was probed"
    scene.clock.time += FIRST_REST
    await scene.probe()
    scene.server.started = NEWER
    with pytest.raises(NodeRestarted):
        await scene.probe()
    assert scene.gate.resting == "left alone until 00:21 UTC: it restarted 2 times in a row while it was probed"


async def test_a_window_that_passes_ends_the_row(scene: Scene) -> None:
    await scene.probe()
    scene.server.started = NEW
    with pytest.raises(NodeRestarted):
        await scene.probe()
    scene.gate.account.passed()
    await scene.probe()
    scene.server.started = NEWER
    with pytest.raises(NodeRestarted):
        await scene.probe()

    assert scene.gate.account.row == 1


def test_the_longest_rest_is_six_hours() -> None:
    assert [rest(1), rest(2), rest(3), rest(6), rest(10_000)] == [60, 1200, 2400, 19_200, LONGEST_REST]


async def test_a_loud_line_names_the_number(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    for started in (NEW, NEWER):
        await scene.probe()
        scene.server.started = started
        with pytest.raises(NodeRestarted):
            await scene.probe()
    (_, second) = caplog.records

    assert second.levelname == "ERROR"
    assert "node restarted while it was probed, 2 in a row" in second.getMessage()


def test_a_restart_is_no_strike() -> None:
    assert not Strikes(allowed=1).failed(NodeRestarted("restarted", node="n"))


def test_loads_of_one_process_continue_each_other() -> None:
    earlier = Load(started=5.0, prompt_tokens=1, generated_tokens=1)
    assert Load(started=5.0, prompt_tokens=1, generated_tokens=2).continues(earlier)
    assert not Load(started=5.0, prompt_tokens=1, generated_tokens=0).continues(earlier)
    assert not Load(started=5.1, prompt_tokens=9, generated_tokens=9).continues(earlier)
    assert Load().continues(earlier)
