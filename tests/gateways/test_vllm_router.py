"""vllm-router by itself: it says yes to everything, which is why the list is asked before and after."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from quantwatch.act.contract import Seen
from quantwatch.errors import GatewayRefused
from quantwatch.flow.decision import Action
from support.gateway import order
from support.routers import Bench, ask, bench, program


@pytest.fixture
async def router(benches: Callable[[str], Bench]) -> AsyncIterator[Bench]:
    one = benches("vllm_router")
    yield one
    await one.close()


@pytest.mark.parametrize("wrong", ["{}/", "{}/v1", "http://localhost:9"])
async def test_the_router_itself_says_yes_to_a_name_that_it_does_not_know(router: Bench, wrong: str) -> None:
    """If this ever fails, the router has learned to say no, and the driver's look before the call is one too many."""
    url = wrong.format(router.urls[0])
    answer = ask("POST", f"{router.router.url}/remove_worker", params={"url": url})

    assert (answer.status_code, "Successfully removed" in answer.text) == (200, True)
    assert router.router.listed() == set(router.urls)


async def test_both_lists_of_the_router_agree(router: Bench) -> None:
    node = router.urls[0]
    await router.driver().call(order(node=node))
    answer = ask("GET", f"{router.router.url}/list_workers").json()["urls"]

    assert set(answer) == router.router.listed() == set(router.urls) - {node}
    assert await router.driver().names() == tuple(sorted(answer))


async def test_a_worker_that_another_has_just_added_is_no_failure(router: Bench) -> None:
    """Between the look and the call somebody else may add it: the 400 is left to the read-back."""
    driver = router.driver()
    back = order(Action.RELEASE, node=router.urls[0])

    assert "listed already" in await driver._add(back, {})
    assert await driver.observe(back) is Seen.ROUTABLE


async def test_all_data_parallel_ranks_of_a_node_go_and_return_together(tmp_path: Path) -> None:
    if program("vllm_router") is None:
        pytest.skip("vllm_router is not installed")
    options = ("--intra-node-data-parallel-size", "2")
    with bench("vllm_router", tmp_path, count=2, options=options, ranks=2) as one:
        node, other = one.urls
        driver = one.driver()
        assert one.router.listed() == {f"{url}@{rank}" for url in one.urls for rank in range(2)}
        for action, seen in ((Action.ISOLATE, Seen.ISOLATED), (Action.RELEASE, Seen.ROUTABLE)):
            await driver.call(order(action, node=node))
            assert await driver.observe(order(action, node=node)) is seen
            left = {url for url in one.router.listed() if url.startswith(f"{other}@")}
            assert len(left) == 2
        assert len(one.router.listed()) == 4
        await one.close()


async def test_half_of_a_disaggregated_node_is_left_alone(tmp_path: Path) -> None:
    """A prefill worker that is added again would be a plain one."""
    if program("vllm_router") is None:
        pytest.skip("vllm_router is not installed")
    with bench("vllm_router", tmp_path, count=2, halves=True) as one:
        with pytest.raises(GatewayRefused, match="kind prefill, which could not be brought back"):
            await one.driver().call(order(node=one.urls[0]))
        assert one.router.listed() == set(one.urls)
        await one.close()
