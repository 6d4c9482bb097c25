"""Are the two ends comparable? Asked before any number is computed; a mismatch is never the node's quality."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from quantwatch.errors import OverCap, ReplyCorrupted, ReplyInvalid
from quantwatch.flow.identity import Identity
from quantwatch.flow.prompt import GoldenSequence, ProbeMode
from quantwatch.probe.contract import Ask, Prober

AWKWARD = (
    "Crème brûlée, naïve façade, Ærøskøbing, Straße",
    "请写出 C++ 实现：∫₀¹ x² dx = 1/3，谢谢！",
    "👩‍🔬 measured 3.14159e-07 mol 🇩🇰 at 23:59:60",
    "  two  leading spaces,\ttabs\n\n\n  and blank lines  ",
    "1234567890 12,345.678 0x7fffffff -0.0",
    "<|im_start|>user <s>[INST] </s> {{template}} <|endoftext|>",
    "ᠮᠣᠩᠭᠣᠯ ไทย עברית العربية हिन्दी 한국어 にほんご",
    "def f(x):\n\treturn {'a': [1, 2, *x]}  # \\u2028 ok;\r\n",
    "The same sentence over and over shows whether a tokenizer cuts long texts. " * 160,
)
"""Texts on which tokenizers differ first; the last is over 2,048 tokens, where a saved truncation setting bites."""

START_TICK = 0.011
"""Process start times are whole hundredths of a second; closer than this is the same process."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A reason why two servers cannot be compared, and what to do."""

    reason: str
    advice: str

    def __str__(self) -> str:
        return f"{self.reason}. {self.advice}"


@dataclass(frozen=True, slots=True)
class Introduction:
    """A server that has introduced itself. k: how many logprobs it gives, at most what was asked for."""

    identity: Identity
    k: int


async def introduce(prober: Prober, *, k: int) -> Introduction:
    """Ask a server who it is, how it tokenizes awkward texts, and how many raw log-probabilities it gives.

    Raises a ProbeError; ReplyCorrupted when the first log-probabilities are already broken numbers.
    """
    identity = await prober.identify()
    tokens = [await prober.tokenize_text(text, special=True) for text in AWKWARD]
    digest = hashlib.sha256(json.dumps(tokens).encode()).hexdigest()
    return Introduction(replace(identity, tokenizer=digest), await _effective_k(prober, tokens[0], k))


async def _effective_k(prober: Prober, ids: Sequence[int], k: int) -> int:
    """The k that the server accepts, found by asking for one token's list, which also proves raw mode."""
    sequence = GoldenSequence("handshake", tuple(ids), len(ids))
    try:
        first = await prober.distribution(sequence, Ask(ProbeMode.FIRST_TOKEN, k, (len(ids),)))
    except OverCap as exc:
        if not exc.allowed or exc.allowed >= k:
            raise ReplyInvalid(exc.reason, node=exc.node, advice=exc.advice) from exc
        return await _effective_k(prober, ids, exc.allowed)
    if first.marks:
        raise ReplyCorrupted(f"the first reply is corrupted: {first.marks[0].detail}", node=prober.name)
    prober.raw_proven = True
    return k


def obstacles(baseline: Identity, node: Identity) -> list[Obstacle]:
    """Why these two cannot be compared; an empty list when they can."""
    found = []
    if _same_server(baseline, node):
        found.append(
            Obstacle(
                "same server: baseline and node are one process",
                "Give two addresses; comparing a server with itself always looks healthy",
            )
        )
    if baseline.tokenizer != node.tokenizer:
        found.append(
            Obstacle(
                "the tokenizers differ on awkward texts",
                "Serve both models with the same tokenizer files; other ids make every number meaningless",
            )
        )
    return found


def _same_server(a: Identity, b: Identity) -> bool:
    if a.url == b.url:
        return True
    if a.started is None or b.started is None:
        return False
    return abs(a.started - b.started) < START_TICK and (a.root, a.version) == (b.root, b.version)
