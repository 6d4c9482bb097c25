"""sglang-router by itself: ids that change, queued calls, keys, and what comes back with a worker."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from quantwatch.act.contract import Seen, Unanswered
from quantwatch.errors import GatewayRefused, StoreError
from quantwatch.flow.decision import Action
from support.gateway import order
from support.routers import Bench, ask, bench, program

OF_A_WORKER = {"priority": 77, "cost": 2.5, "labels": {"tier": "gold"}, "model_id": "tiny-int8"}


@pytest.fixture
async def router(benches: Callable[[str], Bench]) -> AsyncIterator[Bench]:
    one = benches("sglang_router")
    yield one
    await one.close()


def entry(one: Bench, url: str) -> dict[str, Any]:
    """What the router lists of a worker."""
    return next(each for each in one.router.entries() if each["url"] == url)


def added(one: Bench, url: str, **fields: Any) -> None:
    """Put a worker in anew, with fields, as an administrator does."""
    assert ask("DELETE", f"{one.router.url}/workers/{entry(one, url)['id']}").status_code == 202
    one.router.until(lambda: url not in one.router.listed(), "dropped the worker")
    assert ask("POST", f"{one.router.url}/workers", json={"url": url, **fields}).status_code == 202
    one.router.until(lambda: url in one.router.healthy(), "took the worker")


async def test_a_yes_is_only_a_promise_and_the_id_is_another_afterwards(router: Bench) -> None:
    node = router.urls[0]
    first = entry(router, node)["id"]
    driver = router.driver()
    out = await driver.call(order(node=node))
    router.router.until(lambda: node not in router.router.listed(), "dropped the worker")
    back = await driver.call(order(Action.RELEASE, node=node))
    router.router.until(lambda: node in router.router.healthy(), "took the worker")

    assert (out, back) == ("router answered 202", "router answered 202")
    assert entry(router, node)["id"] != first


@pytest.fixture
def with_fields(tmp_path: Path) -> Any:
    """A router whose first worker carries fields of its own, beside another of its model."""
    if program("sglang_router") is None:
        pytest.skip("sglang_router is not installed")
    with bench("sglang_router", tmp_path, count=2) as one:
        for url in one.urls:
            added(one, url, **OF_A_WORKER)
        yield one


async def test_a_worker_comes_back_as_it_was_also_in_another_life(with_fields: Bench) -> None:
    node = with_fields.urls[0]
    before = entry(with_fields, node)
    await with_fields.driver().call(order(node=node))
    with_fields.router.until(lambda: node not in with_fields.router.listed(), "dropped the worker")
    another_life = with_fields.driver()
    line = await another_life.by_hand(order(Action.RELEASE, node=node))
    await another_life.call(order(Action.RELEASE, node=node))
    with_fields.router.until(lambda: node in with_fields.router.healthy(), "took the worker")
    after = entry(with_fields, node)
    await with_fields.close()

    assert {**after, "id": None} == {**before, "id": None}
    assert (after["model_id"], after["priority"], after["cost"]) == ("tiny-int8", 77, 2.5)
    assert after["metadata"]["tier"] == "gold"
    assert '"labels": {"tier": "gold"}' in line


async def test_the_last_of_a_model_stays_though_others_are_listed(router: Bench) -> None:
    node = router.urls[0]
    added(router, node, model_id="another")
    with pytest.raises(GatewayRefused, match="the last healthy worker of its model"):
        await router.driver().call(order(node=node))
    assert node in router.router.listed()
    router.router.stop()  # the next test wants a plain list again
    router.router.start()


async def test_an_unhealthy_neighbour_is_no_backend(tmp_path: Path) -> None:
    if program("sglang_router") is None:
        pytest.skip("sglang_router is not installed")
    checks = ("--health-check-interval-secs", "1", "--health-failure-threshold", "1")
    with bench("sglang_router", tmp_path, count=2, options=checks) as one:
        node, other = one.workers
        other.healthy = False
        one.router.until(lambda: one.router.healthy() == {node.url}, "noticed that a worker is ill")
        with pytest.raises(GatewayRefused, match=r"last healthy worker .*1 more are listed as unhealthy"):
            await one.driver().call(order(node=node.url))
        await one.close()


async def test_a_worker_that_went_meanwhile_is_done(router: Bench) -> None:
    driver = router.driver()
    node = router.urls[0]
    listed = await driver._listed()
    await driver.call(order(node=node))
    router.router.until(lambda: node not in router.router.listed(), "dropped the worker")
    again = await driver._remove(order(node=node), [one for one in listed if one.url == node])

    assert again == f"router says that {node} has gone already"


async def test_keys_are_asked_for_and_never_told(tmp_path: Path) -> None:
    if program("sglang_router") is None:
        pytest.skip("sglang_router is not installed")
    keys = ("--control-plane-api-keys", "a:ops:admin:key-of-admin", "u:reader:user:key-of-user")
    with bench("sglang_router", tmp_path, count=2, options=keys, key="key-of-admin") as one:
        node = one.urls[0]
        for key, status in (("wrong-key", 401), ("key-of-user", 403)):
            driver = one.driver(key=key)
            with pytest.raises(GatewayRefused, match=rf"router answered {status}\. Look at gateway\.api_key") as caught:
                await driver.call(order(node=node))
            assert key not in str(caught.value)
            assert await driver.observe(order(node=node)) is Seen.UNKNOWN
        await one.driver().call(order(node=node))
        one.router.until(lambda: node not in one.router.listed(), "dropped the worker")
        line = await one.driver().by_hand(order(Action.RELEASE, node=node))
        await one.close()

    assert "Bearer ..." in line
    assert "key-of-admin" not in line


class FullDisk:
    """Notes that cannot be written."""

    async def keep(self, key: str, text: str) -> None:  # noqa: ARG002, the contract's signature
        raise StoreError("the disk is full")

    async def kept(self, key: str) -> str | None:  # noqa: ARG002, the contract's signature
        raise StoreError("the disk is full")


async def test_nothing_is_taken_out_that_could_not_be_written_down(router: Bench) -> None:
    router.notes = FullDisk()
    driver = router.driver()
    with pytest.raises(Unanswered, match=r"nothing was sent.*the disk is full") as caught:
        await driver.call(order(node=router.urls[0]))

    assert caught.value.arrived is False
    assert await driver.observe(order(node=router.urls[0])) is Seen.UNKNOWN
    assert router.router.listed() == set(router.urls)
    assert await driver.names() == tuple(sorted(router.urls))
