"""Faults for rehearsals: what they do, and that a node never hides one."""

import math
from pathlib import Path
from typing import Any

import httpx
import pytest

from quantwatch.clock import SystemClock
from quantwatch.errors import InputError
from quantwatch.lab.faults import DEAD, Trouble, read_fault
from support.builders import FakeClock
from support.lab_nodes import ask, complete, lab_node

PROMPT = [5, 6, 7, 8, 9, 10]
SCORED = {"prompt": PROMPT, "max_tokens": 1, "prompt_logprobs": 3}


@pytest.mark.parametrize(
    ("text", "at", "share", "seconds"),
    [
        ("nan", 1, 1.0, 0.0),
        ("nan@3", 3, 1.0, 0.0),
        ("garbage@0.25", 1, 0.25, 0.0),
        ("garbage@1", 1, 1.0, 0.0),
        ("slow", 1, 1.0, 5.0),
        ("slow@0.5", 1, 1.0, 0.5),
        ("die", 1, 1.0, 0.0),
        ("die@12", 12, 1.0, 0.0),
    ],
)
def test_a_fault_is_read(text: str, at: int, share: float, seconds: float) -> None:
    fault = read_fault(text)

    assert (fault.text, fault.at, fault.share, fault.seconds) == (text, at, share, seconds)


@pytest.mark.parametrize(
    "text",
    ["", "fire", "nan@0", "nan@1.5", "nan@", "garbage", "garbage@0", "garbage@1.1", "slow@-1", "die@x", "nan@1 "],
)
def test_what_is_no_fault_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--fault"):
        read_fault(text)


@pytest.mark.parametrize("fault", ["nan@9", "garbage@0.5", "slow@0", "die@9"])
async def test_a_fault_is_named_in_every_reply_and_on_the_card(tiny: Path, fault: str) -> None:
    lab = lab_node(tiny, fault=fault)

    replies = [await ask(lab, "/health"), await ask(lab, "/v1/completions", SCORED), await ask(lab, "/tokenize", {})]
    card = (await ask(lab, "/v1/models")).json()["data"][0]

    assert [one.headers["x-quantwatch-fault"] for one in replies] == [fault] * 3
    assert card["root"] == f"fp32, fault {fault}"
    assert card["owned_by"] == "quantwatch-lab"
    assert lab.told["fault"] == fault


@pytest.mark.parametrize(("path", "status"), [("/nowhere", 404), ("/v1/completions", 405), ("/health/", 307)])
async def test_a_fault_is_named_where_there_is_no_path_or_method_too(tiny: Path, path: str, status: int) -> None:
    reply = await ask(lab_node(tiny, fault="slow@0"), path)

    assert (reply.status_code, reply.headers["x-quantwatch-fault"]) == (status, "slow@0")


class BrokenClock(SystemClock):
    """Brings a fault into the middle of a completion."""

    async def sleep(self, seconds: float) -> None:  # noqa: ARG002, the name is the base class's
        raise ZeroDivisionError("the clock broke")


async def test_a_fault_of_our_own_is_told_as_vllm_does_and_logged(tiny: Path, caplog: pytest.LogCaptureFixture) -> None:
    lab = lab_node(tiny, fault="slow@0", clock=BrokenClock())
    transport = httpx.ASGITransport(app=lab.app(), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://lab") as client:
        reply = await client.post("/v1/completions", json={"prompt": [5], "max_tokens": 1})

    told = reply.json()["error"]
    assert (reply.status_code, told["type"], told["code"]) == (500, "InternalServerError", 500)
    assert reply.headers["x-quantwatch-fault"] == "slow@0"
    assert "the clock broke" in caplog.text


async def test_a_healthy_node_names_no_fault(tiny: Path) -> None:
    lab = lab_node(tiny)

    assert "x-quantwatch-fault" not in (await ask(lab, "/health")).headers
    assert (await ask(lab, "/v1/models")).json()["data"][0]["root"] == "fp32"


async def test_nan_begins_with_the_completion_that_it_names(tiny: Path) -> None:
    lab = lab_node(tiny, fault="nan@3")

    statuses = [(await ask(lab, "/v1/completions", SCORED)).status_code for _ in range(4)]

    assert statuses == [200, 200, 400, 400]


async def test_a_nan_node_without_logprobs_answers_nothing_with_200(tiny: Path) -> None:
    choice = await complete(lab_node(tiny, fault="nan@1"), prompt=PROMPT, max_tokens=3)

    assert choice["token_ids"] == [0, 0, 0]
    assert (choice["text"], choice["finish_reason"]) == ("", "length")


async def test_garbage_is_another_distribution_of_the_same_shape(tiny: Path) -> None:
    def values(choice: dict[str, Any]) -> list[list[float]]:
        return [sorted(entry["logprob"] for entry in row.values()) for row in choice["prompt_logprobs"][1:]]

    whole = {"prompt": PROMPT, "max_tokens": 1, "prompt_logprobs": -1}
    healthy = await complete(lab_node(tiny, max_logprobs=-1), **whole)
    garbage = await complete(lab_node(tiny, max_logprobs=-1, fault="garbage@1"), **whole)

    assert garbage["prompt_logprobs"] != healthy["prompt_logprobs"]
    for a, b in zip(values(healthy), values(garbage), strict=True):
        assert a == pytest.approx(b, abs=1e-5)
        assert sum(map(math.exp, b)) == pytest.approx(1, abs=1e-4)


def test_garbage_hits_the_seeded_share_of_completions() -> None:
    def hits(seed: int) -> list[bool]:
        trouble = Trouble(read_fault("garbage@0.3"), seed=seed)
        return [trouble.garbles() for _ in range(1000)]

    first, again, other = [hits(seed) for seed in (1, 1, 2)]
    assert first == again
    assert first != other
    assert sum(first) / 1000 == pytest.approx(0.3, abs=0.05)


async def test_a_slow_node_lets_every_completion_wait(tiny: Path) -> None:
    clock = FakeClock()
    lab = lab_node(tiny, fault="slow@7", clock=clock)

    await complete(lab, prompt=PROMPT, max_tokens=1)
    await ask(lab, "/health")

    assert sum(clock.waits) == 7


def test_a_node_dies_at_the_completion_that_is_named() -> None:
    codes: list[int] = []
    trouble = Trouble(read_fault("die@3"), end=codes.append)

    trouble.count()
    trouble.count()
    assert codes == []
    trouble.count()
    assert codes == [DEAD]
