"""The three servers that the contract is held against: the lab node, recorded replies, and a real vLLM."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from quantwatch.lab.app import Node
from support.lab_nodes import lab_node
from support.recordings import DATA

PLAIN: Mapping[str, Any] = {
    "n": 1,
    "min_tokens": 0,
    "ignore_eos": False,
    "echo": False,
    "temperature": 0,
    "top_p": 1,
    "top_k": 0,
    "min_p": 0,
    "repetition_penalty": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "stream": False,
    "add_special_tokens": True,
    "return_token_strs": True,
}
"""What may be said or left out without a change of the numbers; `model` is the server's own."""


@dataclass(frozen=True, slots=True)
class Server:
    """One end of the contract. real: whether it speaks of the recorded model."""

    url: str
    transport: httpx.AsyncBaseTransport
    real: bool = True

    async def get(self, path: str) -> httpx.Response:
        """Ask."""
        async with httpx.AsyncClient(transport=self.transport, base_url=self.url, timeout=120) as client:
            return await client.get(path)

    async def post(self, path: str, **body: Any) -> httpx.Response:
        """Ask with a body, whose model is the server's own unless it names one."""
        async with httpx.AsyncClient(transport=self.transport, base_url=self.url, timeout=120) as client:
            name = (await client.get("/v1/models")).json()["data"][0]["id"]
            return await client.post(path, json={"model": name, **body})


class Recorded(httpx.AsyncBaseTransport):
    """Gives recorded replies. A test that asks anything else is skipped, and the reason names the request."""

    def __init__(self, node: str = "healthy") -> None:
        files = [*sorted((DATA / "vllm-0.32" / node).glob("*.json")), DATA / "vllm-0.32/healthy/models.json"]
        exchanges = [json.loads(file.read_bytes()) for file in files]
        self._replies = {
            _key(one["request"]["path"], one["request"]["body"]): (one["status"], one["response"]) for one in exchanges
        }

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Find the reply to the same request."""
        path = request.url.path
        if path == "/metrics":
            return httpx.Response(200, content=(DATA / "vllm-0.32/healthy/metrics.txt").read_bytes())
        content = await request.aread()
        key = _key(path, json.loads(content) if content else None)
        if key not in self._replies:
            pytest.skip(f"not recorded: {path} {key[1][:80]}")
        status, response = self._replies[key]
        return httpx.Response(status, content=response.encode() if response == "" else json.dumps(response).encode())


def _key(path: str, body: dict[str, Any] | None) -> tuple[str, str]:
    """A request without what changes nothing."""
    asked = {name: value for name, value in (body or {}).items() if PLAIN.get(name, ...) != value}
    return path, json.dumps(asked, sort_keys=True)


def lab_server(node: Node, *, real: bool = False) -> Server:
    """A lab node in this process."""
    return Server("http://lab", httpx.ASGITransport(app=node.app()), real)


def contract_server(kind: str, tiny: Path) -> Server:
    """The healthy server of a kind: lab, recorded or vllm."""
    if kind == "lab":
        return lab_server(lab_node(tiny, name="tiny", max_logprobs=100))
    return Server("http://recorded", Recorded()) if kind == "recorded" else _vllm("BASELINE")


def broken_server(kind: str, tiny: Path) -> Server:
    """A server of a kind whose model has a NaN weight."""
    if kind == "lab":
        return lab_server(lab_node(tiny, name="tiny", max_logprobs=100, fault="nan@1"))
    return Server("http://recorded", Recorded("nan")) if kind == "recorded" else _vllm("NAN")


def _vllm(name: str) -> Server:
    url = os.environ.get(f"QUANTWATCH_LAB_{name}")
    if not url:
        pytest.skip(f"QUANTWATCH_LAB_{name} is not set")
    return Server(url, httpx.AsyncHTTPTransport())
