"""Both routers, run for real: isolate, read back, restore; what is wrong is refused; nobody's request fails."""

import asyncio
import contextlib
import shlex
import subprocess
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from quantwatch.act.carry_out import Attempt, carry_out
from quantwatch.act.contract import Seen, Unanswered
from quantwatch.act.router import Router
from quantwatch.clock import SystemClock
from quantwatch.errors import GatewayRefused
from quantwatch.flow.decision import Action, Intent, Outcome, Result
from support.daemons import PATIENCE
from support.gateway import MemoryLedger, order
from support.routers import DRIVERS, Bench, traffic


@pytest.fixture(params=DRIVERS)
async def bench(request: pytest.FixtureRequest, benches: Callable[[str], Bench]) -> AsyncIterator[Bench]:
    one = benches(request.param)
    yield one
    await one.close()


async def carried(
    driver: Router, node: str, action: Action = Action.ISOLATE, *, attempts: int = 0, give_up: float = 60
) -> Outcome:
    """An order carried out as the daemon does it. attempts: calls that an earlier life has begun."""
    told: list[Attempt] = []
    clock = SystemClock()
    intent = Intent(order(action, node=node, driver=driver.name), clock.now(), attempts)
    return await carry_out(
        intent,
        driver,
        MemoryLedger(attempts=attempts),
        clock,
        give_up_seconds=give_up,
        wanted=lambda: None,
        tell=told.append,
    )


async def test_who_is_there_is_told_letter_for_letter(bench: Bench) -> None:
    node, *others = bench.urls
    driver = bench.driver()
    assert await driver.present([*bench.urls, f"{node}/", "http://127.0.0.1:9"]) == set(bench.urls)
    await carried(driver, node)
    assert await driver.present(bench.urls) == set(others)


async def test_a_node_goes_out_is_read_back_and_returns(bench: Bench) -> None:
    node, *others = bench.urls
    driver = bench.driver()
    before = await driver.observe(order(node=node))
    out = await carried(driver, node)

    assert (before, out.result, out.attempts) == (Seen.ROUTABLE, Result.VERIFIED, 1)
    assert bench.router.listed() == set(others)
    assert {bench.router.complete().json()["choices"][0]["text"] for _ in range(8)} == set(others)

    back = await carried(driver, node, Action.RELEASE)

    assert (back.result, back.attempts) == (Result.VERIFIED, 1)
    assert bench.router.healthy() == set(bench.urls)
    assert {bench.router.complete().json()["choices"][0]["text"] for _ in range(12)} == set(bench.urls)


@pytest.mark.parametrize(
    "wrong", ["{}/", "{}/v1", "{}:1", "http://localhost:9"], ids=["slash", "v1", "digit", "stranger"]
)
@pytest.mark.parametrize("attempts", [0, 1])
async def test_a_name_that_the_router_does_not_list_is_never_isolated(bench: Bench, wrong: str, attempts: int) -> None:
    """attempts 1: the process was killed after it had written down that it would call."""
    node = bench.urls[0]
    outcome = await carried(bench.driver(), wrong.format(node), attempts=attempts)

    assert outcome.result is Result.REFUSED
    assert node in outcome.detail
    assert "gateway_name" in outcome.detail
    assert bench.router.listed() == set(bench.urls)


@pytest.mark.parametrize("wrong", ["{}/", "{}/v1"])
async def test_another_spelling_is_not_added_beside_the_listed_one(bench: Bench, wrong: str) -> None:
    outcome = await carried(bench.driver(), wrong.format(bench.urls[0]), Action.RELEASE)

    assert outcome.result is Result.REFUSED
    assert f"Give the target gateway_name: {bench.urls[0]}" in outcome.detail
    assert bench.router.listed() == set(bench.urls)


async def test_the_last_one_stays(bench: Bench) -> None:
    first, second, last = bench.urls
    driver = bench.driver()
    assert (await carried(driver, first)).result is Result.VERIFIED
    assert (await carried(driver, second)).result is Result.VERIFIED
    outcome = await carried(driver, last)

    assert outcome.result is Result.REFUSED
    assert "the last healthy worker" in outcome.detail
    assert bench.router.listed() == {last}
    assert bench.router.complete().status_code == 200


async def test_an_order_that_took_effect_in_an_earlier_life_is_verified_and_not_sent_again(bench: Bench) -> None:
    node = bench.urls[0]
    said = await bench.driver().call(order(node=node))  # and then the process is killed, before it could note the end
    async with asyncio.timeout(PATIENCE):  # a router tells of a worker's end a moment after its answer
        while node in bench.router.listed():  # noqa: ASYNC110, the router has no event for it
            await asyncio.sleep(0.01)
    outcome = await carried(bench.driver(), node, attempts=1)

    assert "answered" in said
    assert (outcome.result, outcome.attempts) == (Result.VERIFIED, 1)
    assert node not in bench.router.listed()


async def test_another_order_for_an_absent_node_is_refused(bench: Bench) -> None:
    """What is absent by an earlier decision may stand in traffic under another name by now."""
    node = bench.urls[0]
    assert (await carried(bench.driver(), node)).result is Result.VERIFIED
    later = order(node=node, decision="d-20260202-000000-222222")

    with pytest.raises(GatewayRefused, match="does not list"):
        await bench.driver().call(later)
    assert await bench.driver().observe(later) is Seen.UNKNOWN


async def test_a_repeat_of_either_order_changes_nothing(bench: Bench) -> None:
    node = bench.urls[0]
    driver = bench.driver()
    for action, listed in ((Action.ISOLATE, False), (Action.RELEASE, True)):
        for _ in range(2):
            assert (await carried(driver, node, action)).result is Result.VERIFIED
            assert (node in bench.router.listed()) is listed
    assert len(bench.router.entries()) == len(bench.urls)


async def test_a_router_that_restarts_forgets_and_the_driver_says_so(bench: Bench) -> None:
    node = bench.urls[0]
    driver = bench.driver()
    assert (await carried(driver, node)).result is Result.VERIFIED

    bench.router.stop()
    assert await driver.observe(order(node=node)) is Seen.UNKNOWN
    bench.router.start()

    assert await driver.observe(order(node=node)) is Seen.ROUTABLE


@pytest.mark.parametrize("fields", [{}, {"stream": True}], ids=["slow", "streaming"])
async def test_a_request_under_way_is_answered_to_its_end(bench: Bench, fields: dict[str, Any]) -> None:
    """The node that is asked is the one that goes out while it answers."""
    answers = []
    client = threading.Thread(target=lambda: answers.append(bench.router.complete(user="3", **fields)))
    client.start()
    while not any(one.begun.wait(0.02) for one in bench.workers):
        pass
    asked = next(one for one in bench.workers if one.begun.is_set())
    outcome = await carried(bench.driver(), asked.url)
    still_answering = client.is_alive()
    client.join(PATIENCE)

    assert outcome.result is Result.VERIFIED
    assert still_answering
    assert [one.status_code for one in answers] == [200]
    assert "[DONE]" in answers[0].text if fields else asked.url in answers[0].text


async def test_constant_traffic_sees_no_failure_on_the_way_out_and_back(bench: Bench) -> None:
    node = bench.urls[0]
    driver = bench.driver()
    with traffic(bench.router) as seen:
        for action in (Action.ISOLATE, Action.RELEASE):
            before = len(seen.answered)
            assert (await carried(driver, node, action)).result is Result.VERIFIED
            clock = SystemClock()
            while len(seen.answered) < before + 60:
                await clock.sleep(0.05)
            assert (node in seen.answered[-30:]) is (action is Action.RELEASE)

    assert seen.failed == []
    assert len(seen.answered) >= 120


async def test_a_node_that_is_down_does_not_count_as_returned(bench: Bench) -> None:
    """The routers only take in what answers; nothing of ours says verified before."""
    server = bench.workers[0]
    driver = bench.driver(timeout=1.0)
    assert (await carried(driver, server.url)).result is Result.VERIFIED
    server.healthy = False
    back = order(Action.RELEASE, node=server.url)
    early = await _tried(driver, back)

    assert early is not Seen.ROUTABLE
    server.healthy = True
    outcome = await carried(bench.driver(), server.url, Action.RELEASE, attempts=1)
    assert outcome.result is Result.VERIFIED
    assert server.url in bench.router.healthy()


async def _tried(driver: Router, wanted: Any) -> Seen:
    """A call that may get no answer in time, and how the node stands then."""
    with contextlib.suppress(Unanswered):  # one router queues, the other waits for the node until we give up
        await driver.call(wanted)
    return await driver.observe(wanted)


async def test_what_a_person_types_brings_the_node_back(bench: Bench) -> None:
    node = bench.urls[0]
    driver = bench.driver()
    assert (await carried(driver, node)).result is Result.VERIFIED
    line = await driver.by_hand(order(Action.RELEASE, node=node))
    done = subprocess.run([*shlex.split(line), "--silent", "--fail"], check=False, timeout=30)  # noqa: S603, ASYNC221

    assert done.returncode == 0, line
    bench.router.until(lambda: node in bench.router.healthy(), "took the node back")


async def test_the_wrong_kind_of_driver_is_refused_and_sees_nothing(bench: Bench) -> None:
    """A node of ours is no router: it answers 404 where the list should be."""
    driver = bench.driver(url=bench.urls[0])

    with pytest.raises(GatewayRefused, match=r"answered 404\. Look at gateway\.url and gateway\.driver"):
        await driver.call(order(node=bench.urls[1]))
    assert await driver.observe(order(node=bench.urls[1])) is Seen.UNKNOWN
