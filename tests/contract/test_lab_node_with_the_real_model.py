"""The lab node with the model of the recordings (marker `model`): the same requests, the same replies."""

import json
import math
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from quantwatch.flow.prompt import ProbeMode
from quantwatch.lab.app import Node
from quantwatch.net import Limits
from quantwatch.probe.contract import Ask
from quantwatch.toolkit.source import model_folder
from quantwatch.wiring import cache_folder
from support.builders import prober
from support.lab_nodes import ask, lab_node
from support.recordings import DATA, distributions, scored

pytestmark = pytest.mark.model

PATIENT = Limits(connect_seconds=5, total_seconds=600, response_bytes=10_000_000, attempts=1)
CALLS = sorted(file.stem for file in (DATA / "vllm-0.32" / "healthy").glob("c_*.json"))
OWN = {"id", "created", "system_fingerprint"}
"""Fields in which no two replies are alike."""


@pytest.fixture(scope="module")
def folder() -> Path:
    cache = os.environ.get("QUANTWATCH_LAB_CACHE")
    return model_folder("smollm2", cache=Path(cache) if cache else cache_folder().parent, tell=lambda _: None)


@pytest.fixture(scope="module")
def smol(folder: Path) -> Node:
    return lab_node(folder, name="smol", max_logprobs=100)


def differences(recorded: Any, got: Any, place: str = "") -> list[str]:
    """Where two replies differ; log-probabilities may by a thousandth of a nat."""
    if isinstance(recorded, dict) and isinstance(got, dict):
        missing = [f"{place}: {sorted(recorded.keys() ^ got.keys())}"] if recorded.keys() != got.keys() else []
        both = sorted((recorded.keys() & got.keys()) - OWN)
        return missing + [one for key in both for one in differences(recorded[key], got[key], f"{place}.{key}")]
    if isinstance(recorded, list) and isinstance(got, list) and len(recorded) == len(got):
        pairs = enumerate(zip(recorded, got, strict=True))
        return [one for i, (a, b) in pairs for one in differences(a, b, f"{place}[{i}]")]
    if isinstance(recorded, float) and isinstance(got, float):
        return [] if math.isclose(recorded, got, abs_tol=1e-3, rel_tol=0) else [f"{place}: {recorded} != {got}"]
    return [] if recorded == got else [f"{place}: {recorded!r} != {got!r}"]


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_gets_the_recorded_reply(smol: Node, call: str) -> None:
    """Also ranks, texts of half characters, offsets and refusals."""
    raw = json.loads((DATA / "vllm-0.32" / "healthy" / f"{call}.json").read_bytes())

    answer = await ask(smol, raw["request"]["path"], raw["request"]["body"])

    assert answer.status_code == raw["status"]
    assert differences(raw["response"], answer.json()) == []


async def test_tokens_are_the_recorded_ones(smol: Node) -> None:
    raw = json.loads((DATA / "vllm-0.32" / "healthy" / "tokenize.json").read_bytes())

    answer = await ask(smol, "/tokenize", raw["request"]["body"])

    assert answer.json() == raw["response"]


@pytest.mark.parametrize("place", range(5))
async def test_golden_sequences_score_as_recorded(smol: Node, place: int) -> None:
    sequence, _ = scored("fp32")[place]
    recorded = distributions("fp32")[place]

    probe = prober(httpx.ASGITransport(app=smol.app()), model="smol", limits=PATIENT)
    got = await probe.distribution(sequence, Ask(ProbeMode.PROMPT_SCORING, 20))

    assert list(got.actual) == pytest.approx(list(recorded.actual), abs=1e-3)
    assert list(got.logprobs) == pytest.approx(list(recorded.logprobs), abs=1e-3, nan_ok=True)


async def test_paris(smol: Node) -> None:
    answer = await ask(
        smol, "/v1/completions", {"prompt": "The capital of France is", "max_tokens": 1, "temperature": 0}
    )

    assert answer.json()["choices"][0]["text"] == " Paris"
