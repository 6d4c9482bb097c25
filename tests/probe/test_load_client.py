"""The client of the release gate's load: what it sends, how it times, what it calls a failure."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from quantwatch.flow.acceptance import OURS, Footprint, Timed
from quantwatch.net import Limits
from quantwatch.probe.budget import Budget, Gate
from quantwatch.probe.load import KINDS, LoadClient
from quantwatch.probe.node_metrics import read_footprint
from support.builders import FakeClock, answering, doing, link
from support.tiny_node import Network, TinyNode

DATA = Path(__file__).resolve().parents[1] / "data" / "vllm-0.32" / "healthy"
ONCE = Limits(connect_seconds=1, total_seconds=2, attempts=1)


def client(transport: httpx.AsyncBaseTransport, clock: FakeClock | None = None, length: int = 3) -> LoadClient:
    connected, clock = link(transport, limits=ONCE), clock or FakeClock()
    gate = Gate(connected, Budget(patience_seconds=0.0), clock)
    found = LoadClient(connected, gate=gate, output_tokens=length, metric="process_resident_memory_bytes", clock=clock)
    found.model = "tiny"
    return found


def reply(ids: list[int] | None) -> bytes:
    return json.dumps({"choices": [{"index": 0, "text": "", "token_ids": ids}]}).encode()


async def test_the_time_is_that_of_the_whole_request() -> None:
    clock = FakeClock()

    def slow(request: httpx.Request) -> httpx.Response:
        clock.time += 0.75
        return httpx.Response(200, content=reply([1, 2, 3]), request=request)

    assert await client(doing(slow), clock).complete([5, 6]) == Timed(0.75)


async def test_every_node_is_asked_for_the_same_work() -> None:
    node = TinyNode()
    assert (await client(Network(node=node)).complete([256, 72, 105])).error is None
    (body,) = node.completions()
    assert (body["max_tokens"], body["min_tokens"], body["ignore_eos"]) == (3, 3, True)
    assert (body["temperature"], body["top_p"], body["repetition_penalty"]) == (0, 1, 1)
    assert body["prompt"] == [256, 72, 105]
    assert not {"logprobs", "prompt_logprobs"} & body.keys()


FAILURES: dict[str, tuple[int, bytes]] = {
    "failed": (500, b'{"error": {"message": "boom"}}'),
    "busy": (503, b"{}"),
    "misconfigured": (404, b'{"error": {"message": "no such model"}}'),
    "refused": (400, b'{"error": {"message": "too long", "param": "input_tokens"}}'),
    "invalid": (200, b'{"choices": []}'),
    "short": (200, reply([1, 2])),
}


@pytest.mark.parametrize(("kind", "answer"), FAILURES.items(), ids=FAILURES.keys())
async def test_a_failure_has_its_kind(kind: str, answer: tuple[int, bytes]) -> None:
    assert (await client(answering(*answer)).complete([5])).error == kind


BROKEN = {"unreachable": httpx.ConnectError, "timeout": httpx.ReadTimeout, "failed": httpx.ReadError}


@pytest.mark.parametrize(("kind", "error"), BROKEN.items(), ids=BROKEN.keys())
async def test_a_failure_of_the_connection_has_its_kind_and_is_not_tried_again(
    kind: str, error: type[httpx.TransportError]
) -> None:
    tries = []

    def fail(request: httpx.Request) -> httpx.Response:
        tries.append(request)
        raise error("no", request=request)

    assert (await client(doing(fail)).complete([5])).error == kind
    assert len(tries) == 1


async def test_a_reply_without_ids_is_short() -> None:
    assert (await client(answering(body=reply(None))).complete([5])).error == "short"


async def test_broken_numbers_count_as_a_failure_of_the_node() -> None:
    body = b'{"error": {"message": "Out of range float values are not JSON compliant"}}'
    assert (await client(answering(400, body)).complete([5])).error == "failed"


def test_every_kind_that_is_not_the_nodes_is_a_kind() -> None:
    assert {kind for _, kind in KINDS} >= OURS


@pytest.mark.parametrize(("waiting", "calm"), [(0, True), (3, False)])
async def test_a_node_with_waiting_users_is_not_calm(waiting: int, calm: bool) -> None:
    assert await client(Network(node=TinyNode(waiting=waiting))).calm() is calm


PAGES: dict[str, tuple[str, Footprint]] = {
    "both": (
        'process_resident_memory_bytes 5e8\nvllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1\n',
        Footprint(5e8, 1600),
    ),
    "two engines": (
        'vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100"} 1\n'
        'vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="50"} 1\n',
        Footprint(None, 2400),
    ),
    "blocks unknown": ('vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1\n', Footprint()),
    "no number": ("process_resident_memory_bytes NaN\n", Footprint()),
    "another metric": ("process_resident_memory_bytes_total 3\n", Footprint()),
    "a web page": ("<html>", Footprint()),
    "torn": ('process_resident_memory_bytes{x="', Footprint()),
}


@pytest.mark.parametrize(("page", "found"), PAGES.values(), ids=PAGES.keys())
def test_memory_and_capacity_are_read_where_they_are_told(page: str, found: Footprint) -> None:
    assert read_footprint(page.encode(), "process_resident_memory_bytes") == found


def test_a_real_vllm_page_tells_both() -> None:
    found = read_footprint((DATA / "metrics.txt").read_bytes(), "process_resident_memory_bytes")
    assert found == Footprint(771_457_024.0, 182 * 128)


def test_another_metric_can_be_asked_for_and_its_samples_are_added() -> None:
    page = b'gpu_bytes{card="0"} 3\ngpu_bytes{card="1"} 4\n'
    assert read_footprint(page, "gpu_bytes").size == 7


@pytest.mark.parametrize("status", [404, 500])
async def test_a_node_without_metrics_tells_nothing(status: int) -> None:
    assert await client(answering(status, b"process_resident_memory_bytes 5")).footprint() == Footprint()


async def test_a_node_that_is_down_tells_nothing() -> None:
    def down(request: httpx.Request) -> Any:
        raise httpx.ConnectError("no", request=request)

    assert await client(doing(down)).footprint() == Footprint()
