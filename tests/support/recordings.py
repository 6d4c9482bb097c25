"""Replies of real vLLM 0.32 servers, recorded; see tests/data/README.md."""

import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from quantwatch.flow.distribution import Distribution
from quantwatch.flow.prompt import GoldenSequence
from quantwatch.measure.compare import Pair
from quantwatch.probe import reply

DATA = Path(__file__).resolve().parents[1] / "data"
K = 20


class Exchange(NamedTuple):
    """One recorded request and its reply."""

    request: dict[str, Any]
    status: int
    body: bytes


def exchange(name: str, *, node: str = "healthy") -> Exchange:
    """A single call recorded from a healthy or a NaN node."""
    raw = json.loads((DATA / "vllm-0.32" / node / f"{name}.json").read_bytes())
    return Exchange(raw["request"]["body"] or {}, raw["status"], json.dumps(raw["response"]).encode())


def metrics_page() -> bytes:
    """A whole /metrics page of a vLLM 0.32 server."""
    return (DATA / "vllm-0.32" / "healthy" / "metrics.txt").read_bytes()


def scored(node: str) -> list[tuple[GoldenSequence, bytes]]:
    """The five golden sequences and the bytes of a node's prompt-scoring replies."""
    raw = json.loads(gzip.decompress((DATA / "pair" / f"{node}.prompt_logprobs20.json.gz").read_bytes()))
    return [
        (GoldenSequence(f"pair-{i}", tuple(one["request"]["prompt"]), one["prompt_len"]), _bytes(one["response"]))
        for i, one in enumerate(raw)
    ]


def _bytes(response: Any) -> bytes:
    return json.dumps(response).encode()


def distributions(node: str) -> list[Distribution]:
    """A node's five distributions, read by the product's own code."""
    asked = reply.Asked(node=node, k=K)
    return [
        reply.prompt_scoring(reply.read(body, asked, choices=1)[0], sequence, asked, seconds=0.1)
        for sequence, body in scored(node)
    ]


def pairs(node: str) -> list[Pair]:
    """The baseline's and a node's distributions of the five sequences."""
    sequences = [sequence.ids for sequence, _ in scored(node)]
    both = zip(distributions("fp32"), distributions(node), sequences, strict=True)
    return [Pair(p, q, sequence=ids) for p, q, ids in both]


def truth() -> dict[str, Any]:
    """Full-vocabulary KL of fp32 against the W8A8 node with outliers at 78 positions of sequences 1 and 3."""
    loaded: dict[str, Any] = json.loads((DATA / "pair" / "truth.fp32-vs-int8-w8a8-outlier.json").read_bytes())
    return loaded


def at_truth() -> tuple[list[Pair], Tensor, Tensor]:
    """The recorded pairs, where in the batch of all positions the truth is known, and the truth itself."""
    known = truth()
    recorded = pairs("int8-w8a8-outlier")
    starts = [0]
    for pair in recorded:
        starts.append(starts[-1] + len(pair.baseline))
    rows = [starts[s] + position - 1 for s, position in zip(known["sequence_index"], known["position"], strict=True)]
    return recorded, torch.tensor(rows), torch.tensor(known["kl_p_q_nats"], dtype=torch.float64)
