"""How busy a lab node says it is, and what becomes of requests that nobody waits for."""

import asyncio
import json
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from quantwatch.clock import SystemClock
from quantwatch.lab.app import Node
from quantwatch.lab.worker import Size, Worker
from quantwatch.probe.node_metrics import read_load
from support.lab_nodes import ask, complete, lab_node


def counting(seen: list[int], *, steps: int) -> Generator[None, None, str]:
    for step in range(steps):
        seen.append(step)
        yield
    return "done"


async def test_requests_beyond_the_slots_wait() -> None:
    loads: list[tuple[int, int, int]] = []
    worker = Worker(lambda *load: loads.append(load), at_once=2)

    done = await asyncio.gather(*(worker.do(counting([], steps=3), Size(2, 10)) for _ in range(5)))

    assert done == ["done"] * 5
    assert max(running for running, _, _ in loads) == 4
    assert max(waiting for _, waiting, _ in loads) >= 6
    assert max(tokens for _, _, tokens in loads) == 20
    assert loads[-1] == (0, 0, 0)


async def test_a_request_that_nobody_waits_for_stops() -> None:
    loads: list[tuple[int, ...]] = []
    begun = asyncio.Event()

    def moved(*load: int) -> None:
        loads.append(load)
        begun.set()

    worker, seen = Worker(moved), list[int]()
    task = asyncio.create_task(worker.do(counting(seen, steps=1_000_000), Size(1, 1)))
    async with asyncio.timeout(60):
        await begun.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    worker.close()

    assert len(seen) < 1_000_000
    assert loads[-1] == (0, 0, 0)


async def test_a_waiting_request_that_gives_up_leaves_the_running_one_counted() -> None:
    """Also one of the very same size."""
    loads: list[tuple[int, ...]] = []
    worker = Worker(lambda *load: loads.append(load), at_once=1)
    held = asyncio.Event()

    async def hold() -> None:
        await held.wait()

    running = asyncio.create_task(worker.do(counting([], steps=3), Size(1, 100), delay=hold))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(worker.do(counting([], steps=3), Size(1, 100)))
    await asyncio.sleep(0)
    assert loads[-1] == (1, 1, 100)

    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert loads[-1] == (1, 0, 100)
    held.set()
    assert await running == "done"
    assert loads[-1] == (0, 0, 0)


async def test_a_fault_inside_a_step_reaches_the_one_who_asked() -> None:
    def breaking() -> Generator[None, None, None]:
        yield
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await Worker().do(breaking(), Size(1, 1))


class HeldClock(SystemClock):
    """Sleeps until it is let go, and says when it has begun to."""

    def __init__(self) -> None:
        self.asleep, self.awake = asyncio.Event(), asyncio.Event()

    async def sleep(self, seconds: float) -> None:  # noqa: ARG002, the name is the base class's
        self.asleep.set()
        await self.awake.wait()


async def test_a_slow_request_counts_as_running_and_a_lost_one_as_aborted(tiny: Path) -> None:
    clock = HeldClock()
    lab = lab_node(tiny, fault="slow@30", clock=clock)
    body = {"prompt": [[5, 6], [7]], "max_tokens": 1}
    work = asyncio.create_task(Hangup(lab).post("/v1/completions", body, gone=clock.asleep))
    await clock.asleep.wait()
    during = (await ask(lab, "/metrics")).text
    await work

    after = (await ask(lab, "/metrics")).text

    running = 'vllm:num_requests_running{engine="0",model_name="lab"}'
    aborted = 'vllm:request_success_total{engine="0",finished_reason="abort",model_name="lab"}'
    assert (f"{running} 2.0" in during, f"{aborted} 0.0" in during) == (True, True)
    assert (f"{running} 0.0" in after, f"{aborted} 2.0" in after) == (True, True)


class Hangup:
    """A client that hangs up before it has its answer."""

    def __init__(self, lab: Node) -> None:
        self._app = lab.app()

    async def post(self, path: str, body: dict[str, Any], *, gone: asyncio.Event) -> None:
        """Send a request; gone: set when the client hangs up. Returns when the node is done with it."""
        raw, told = json.dumps(body).encode(), iter([True])

        async def receive() -> dict[str, Any]:
            if next(told, False):
                return {"type": "http.request", "body": raw, "more_body": False}
            await gone.wait()
            await asyncio.sleep(0)
            return {"type": "http.disconnect"}

        async def send(_: Any) -> None:
            pass

        head = {"method": "POST", "path": path, "query_string": b"", "headers": [], "http_version": "1.1"}
        await self._app({"type": "http", "scheme": "http", "server": ("lab", 80), **head}, receive, send)


async def test_tokens_and_requests_are_counted(tiny: Path) -> None:
    lab = lab_node(tiny)
    await ask(lab, "/v1/completions", {"prompt": [[5, 6, 7], [8, 9]], "max_tokens": 2, "ignore_eos": True})

    page = (await ask(lab, "/metrics")).text

    labels = '{engine="0",model_name="lab"}'
    assert f"vllm:prompt_tokens_total{labels} 5.0" in page
    assert f"vllm:generation_tokens_total{labels} 4.0" in page
    assert 'vllm:request_success_total{engine="0",finished_reason="length",model_name="lab"} 2.0' in page


async def test_a_running_request_is_seen_in_the_metrics(tiny: Path) -> None:
    lab = lab_node(tiny)
    work = asyncio.create_task(complete(lab, prompt=[5, 6], max_tokens=400, ignore_eos=True))
    page = ""
    end = time.monotonic() + 60
    while 'vllm:num_requests_running{engine="0",model_name="lab"} 1.0' not in page:
        assert not work.done(), "it was done before it was seen running"
        assert time.monotonic() < end, "after a minute the request was still not seen running"
        await asyncio.sleep(0)
        page = (await ask(lab, "/metrics")).text

    load = read_load(page.encode())
    await work

    assert load is not None
    assert load.waiting == 0
    assert load.kv_usage > 0
