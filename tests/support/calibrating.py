"""Tiny nodes to calibrate, and a configuration over them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from support.tiny_node import TinyModel, TinyNode

WORDS = ("sea", "sky", "ice", "fog", "lamp", "rope", "sail", "wind", "tide", "reef")
TEXTS = tuple(f"{word} {i}:" for i, word in enumerate(WORDS))
"""Short, so that a cycle costs a test little."""


@dataclass(slots=True)
class CachingNode(TinyNode):
    """A node that counts prefix-cache hits as vLLM does: by whole prompts, one entry a salt."""

    seen: set[str] = field(default_factory=set)
    hits: float = 0.0

    async def _completions(self, request: Request) -> Response:
        body = await request.json()
        key = json.dumps([body.get("cache_salt"), body["prompt"]])
        self.hits += 16.0 * (key in self.seen)
        self.seen.add(key)
        return await TinyNode._completions(self, request)

    async def _metrics(self, request: Request) -> Response:
        page = await TinyNode._metrics(self, request)
        return PlainTextResponse(
            bytes(page.body).decode() + f'vllm:prefix_cache_hits_total{{engine="0"}} {self.hits}\n'
        )


def healthy(damage: float = 0.2, *, started: float = 1_700_000_500.0, **options: Any) -> TinyNode:
    """A quantized node: another process than the baseline."""
    return TinyNode(model=TinyModel(damage=damage), started=started, **options)


def unstable() -> TinyNode:
    """A node that answers every other request from worse weights, so it is as far from itself as from its baseline."""
    node = healthy(0.1)

    def swap(reply: dict[str, Any]) -> dict[str, Any]:
        node.model.damage = 0.9 if node.model.damage == 0.1 else 0.1
        return reply

    node.edit = swap
    return node


def prompts_file(folder: Path, texts: Sequence[str] = TEXTS) -> Path:
    """A task set of short prompts."""
    path = folder / "letters.yaml"
    entries = "".join(
        f"  - id: letters-{i}\n    language: en\n    length: short\n    tags: [x]\n    prompt: {json.dumps(text)}\n"
        for i, text in enumerate(texts)
    )
    path.write_text(f"schema: 1\nname: letters\ndescription: d\nlicense: Apache-2.0\nprompts:\n{entries}")
    return path


def configuration(folder: Path, baseline: str, targets: dict[str, tuple[str, str]], *, limits: str = "") -> Path:
    """A configuration over targets, each with its URL and scheme. limits: a block to be added."""
    prompts_file(folder)
    listed = "".join(
        f"  - {{name: {name}, url: {url}, scheme: {scheme}, pool: p}}\n" for name, (url, scheme) in targets.items()
    )
    path = folder / "quantwatch.yaml"
    path.write_text(
        f"schema: 1\nbaseline: {{url: {baseline}}}\ntargets:\n{listed}pools: {{p: {{}}}}\n"
        "probe: {patience: 1ms}\nstore: {path: q.db}\nserver: {listen: 127.0.0.1:9469}\n"
        f"{limits or SETS}"
    )
    return path


SETS = "task_sets:\n  letters: {prompts: letters.yaml, draw: 12, k: 5, continuation_tokens: 16}\n"
