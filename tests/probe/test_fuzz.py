"""20,000 damaged replies: whatever a server sends, the outcome is a sound measurement, marks, or an error of ours.

Each case is drawn from its own seed, told when it fails. QUANTWATCH_FUZZ=scoring:123 runs that one alone,
QUANTWATCH_FUZZ_TIMES=10 ten times as many.
"""

import functools
import gzip
import json
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from random import Random
from typing import Any

import httpx
import msgspec
import pytest
import torch

from quantwatch.errors import ProbeError, ReplyCorrupted
from quantwatch.flow.distribution import Distribution
from quantwatch.flow.prompt import GoldenSequence, ProbeMode
from quantwatch.measure.compare import Pair, Scope, position_values
from quantwatch.net import MEBIBYTE, Limits
from quantwatch.probe import reply, wire
from quantwatch.probe.contract import Ask
from quantwatch.probe.node_metrics import read_load
from quantwatch.probe.vllm import VllmProber
from support.builders import prober
from support.mangle import mangled
from support.recordings import DATA, K, exchange, metrics_page, scored
from support.wellformed import check_distribution, check_error, document, rows_of, same_numbers

pytestmark = pytest.mark.no_cover  # tracing takes longer than the cases themselves

CASES = {
    "scoring": 8000,
    "one_token": 3500,
    "first_token": 1500,
    "generate": 1500,
    "identify": 1500,
    "tokenize": 1500,
    "load": 1000,
    "refusal": 1500,
}
TIMES = int(os.environ.get("QUANTWATCH_FUZZ_TIMES", "1"))
ALONE = os.environ.get("QUANTWATCH_FUZZ", "")

SHORT = 10
"""Positions of the recorded replies that are kept, so that a damage hits what is read."""


def test_there_are_20000_cases() -> None:
    assert sum(CASES.values()) >= 20_000


# ------------------------------------------------------------------ a server that sends what it is told


class Server(httpx.AsyncBaseTransport):
    """Answers each path with the next bytes for it; without any, with a page of nothing."""

    def __init__(self) -> None:
        self.answers: dict[str, list[bytes]] = {}
        self.status = 200
        self.headers: dict[str, str] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        waiting = self.answers.get(request.url.path)
        body = waiting.pop(0) if waiting else b""
        return httpx.Response(self.status, content=body, headers=self.headers, request=request)


class Bench:
    """A prober and the server it asks, for one case after another."""

    def __init__(self) -> None:
        self.server = Server()
        self.prober: VllmProber = prober(self.server, limits=Limits(response_bytes=MEBIBYTE), model="smol")

    def sends(self, path: str, *bodies: bytes) -> None:
        self.server.answers = {path: list(bodies)}


Outcome = str


async def outcome(case: Callable[[Bench, Random], Awaitable[Outcome]], bench: Bench, rng: Random) -> Outcome:
    """What became of a case; every error but our own passes through."""
    try:
        return await case(bench, rng)
    except ProbeError as exc:
        check_error(exc)
        return type(exc).__name__


async def run(kind: str, case: Callable[[Bench, Random], Awaitable[Outcome]]) -> Counter[Outcome]:
    """All cases of a kind, or the one that is asked for."""
    torch.set_num_threads(1)
    bench, found = Bench(), Counter[Outcome]()
    alone = ALONE.partition(":")
    numbers = range(CASES[kind] * TIMES) if not ALONE else [int(alone[2])] if alone[0] == kind else []
    for number in numbers:
        try:
            found[await outcome(case, bench, Random(f"{kind}:{number}"))] += 1
        except Exception as exc:
            exc.add_note(f"case QUANTWATCH_FUZZ={kind}:{number}")
            raise
    return found


def seen(found: Counter[Outcome], *expected: str) -> bool:
    return bool(ALONE) or set(expected) <= set(found)


# ------------------------------------------------------------------ completions


@functools.cache
def recorded() -> list[tuple[GoldenSequence, bytes]]:
    """Scored sequences and replies, cut short: five of k = 20 and one of k = 5."""
    request, _, body = exchange("c_ids_prompt_logprobs5")
    found = [(GoldenSequence("c", tuple(request["prompt"]), 4), body), *scored("int8-w8a8-outlier")]
    return [(GoldenSequence(one.prompt_id, one.ids[:SHORT], 4), shortened(body)) for one, body in found]


def shortened(body: bytes) -> bytes:
    raw = json.loads(body)
    for name in ("prompt_logprobs", "prompt_token_ids"):
        raw["choices"][0][name] = raw["choices"][0][name][:SHORT]
    return json.dumps(raw).encode()


@functools.cache
def whole(index: int) -> Distribution:
    """What the undamaged reply says."""
    sequence, body = recorded()[index]
    asked = reply.Asked("n", 5 if index == 0 else K)
    return reply.prompt_scoring(reply.read(body, asked, choices=1)[0], sequence, asked, seconds=0.0)


async def scoring(bench: Bench, rng: Random) -> Outcome:
    index = rng.randrange(len(recorded()))
    sequence, body = recorded()[index]
    damaged = mangled(body, rng)
    bench.sends("/v1/completions", damaged)
    bench.prober.raw_proven = rng.random() < 0.5
    try:
        got = await bench.prober.distribution(sequence, Ask(ProbeMode.PROMPT_SCORING, 5 if index == 0 else K))
    except ReplyCorrupted as exc:
        raise AssertionError("a reply of 200 that was refused outright proves nothing") from exc
    choice = document(damaged)["choices"][0]
    check_distribution(got, rows_of(choice, scored=True), list(sequence.ids[1:]))
    assert all(same_numbers(got, row_by_row(damaged, sequence, got.k, bench.prober.raw_proven)))
    check_divergence(Pair(whole(index), got))
    return "marked" if got.marks else "same" if all(same_numbers(got, whole(index))) else "read"


def row_by_row(body: bytes, sequence: GoldenSequence, k: int, raw_proven: bool) -> Distribution:
    """The same choice read the careful way, which healthy replies never take."""
    asked = reply.Asked("n", k, raw_proven)
    choice = wire.Odd(**msgspec.structs.asdict(reply.read(body, asked, choices=1)[0]))
    return reply.prompt_scoring(choice, sequence, asked, seconds=0.0)


def check_divergence(pair: Pair) -> None:
    """No number that no divergence can have comes out, whatever the numbers that went in."""
    if len({mark.row for mark in pair.node.marks}) == len(pair.node):
        return
    if all(same_numbers(pair.baseline, pair.node)):
        return
    found = position_values([pair], Scope.ALL)
    assert bool((found.kl >= 0).all() and found.kl.isfinite().all())
    assert bool((found.coverage >= 0).all() and (found.coverage <= 1).all())
    assert bool(found.logprob_node[found.known].isfinite().all())


@functools.cache
def prefixes() -> tuple[GoldenSequence, list[dict[str, Any]], dict[str, Any]]:
    request, _, body = exchange("c_batch_prefixes")
    document = json.loads(body)
    return GoldenSequence("p", (*request["prompt"][-1], 7), 2), document.pop("choices"), document


async def first_tokens(bench: Bench, rng: Random, mode: ProbeMode, places: tuple[int, ...]) -> Outcome:
    sequence, choices, frame = prefixes()
    batches = [[0], range(1, len(places))] if len(places) > 1 else [[0]]
    bodies = [
        json.dumps(frame | {"choices": [choices[i] | {"index": at} for at, i in enumerate(batch)]}).encode()
        for batch in batches
    ]
    damaged = [mangled(body, rng) if rng.random() < 0.7 else body for body in bodies]
    bench.sends("/v1/completions", *damaged)
    got = await bench.prober.distribution(sequence, Ask(mode, 5, places))
    found = [one for body in damaged for one in sorted(document(body)["choices"], key=lambda one: int(one["index"]))]
    rows = [row for choice in found for row in rows_of(choice, scored=False)]
    check_distribution(got, rows, [(*sequence.ids, -2)[place] for place in places])
    check_divergence(Pair(got, got))
    return "marked" if got.marks else "read"


async def one_token(bench: Bench, rng: Random) -> Outcome:
    return await first_tokens(bench, rng, ProbeMode.ONE_TOKEN, (2, 3, 4, 5))


async def first_token(bench: Bench, rng: Random) -> Outcome:
    return await first_tokens(bench, rng, ProbeMode.FIRST_TOKEN, (2,))


async def generate(bench: Bench, rng: Random) -> Outcome:
    request, _, body = exchange("c_ids_logprobs5_tokids")
    bench.sends("/v1/completions", mangled(body, rng))
    answer = await bench.prober.generate(request["prompt"], limit=3)
    assert len(answer.ids) <= 3
    assert all(0 <= one < 2**31 for one in answer.ids)
    answer.text.encode()
    return "read"


# ------------------------------------------------------------------ everything else


async def identify(bench: Bench, rng: Random) -> Outcome:
    bodies = {"/v1/models": exchange("models").body, "/version": exchange("version").body, "/metrics": page()}
    bench.server.answers = {path: [mangled(body, rng)] for path, body in bodies.items()}
    bench.prober = prober(bench.server, limits=Limits(response_bytes=MEBIBYTE), model=rng.choice([None, "smol"]))
    identity = await bench.prober.identify()
    assert identity.model.isprintable()
    json.dumps(asdict(identity), allow_nan=False, ensure_ascii=False).encode()
    bench.sends("/tokenize", exchange("tokenize").body)
    await bench.prober.tokenize_text("x", special=True)  # the name can be sent back
    return "read"


async def tokenize(bench: Bench, rng: Random) -> Outcome:
    bench.sends("/tokenize", mangled(exchange("tokenize").body, rng))
    ids = await bench.prober.tokenize_text("x", special=True)
    assert all(type(one) is int and 0 <= one < 2**31 for one in ids)
    return "read"


@functools.cache
def page() -> bytes:
    """The lines of a recorded page that are read, and some that are not."""
    lines = metrics_page().splitlines()
    wanted = [one for one in lines if b"num_requests" in one or b"cache_usage" in one or b"process_start" in one]
    return b"\n".join([*lines[:5], *wanted, b""])


async def load(_: Bench, rng: Random) -> Outcome:
    found = read_load(mangled(page(), rng))
    if found is None:
        return "nothing"
    json.dumps(asdict(found), allow_nan=False)
    return "read"


@functools.cache
def refusals() -> list[tuple[int, bytes]]:
    names = [(node, path.stem) for node in ("healthy", "nan") for path in (DATA / "vllm-0.32" / node).glob("c_*.json")]
    found = [exchange(name, node=node) for node, name in sorted(names)]
    return [(one.status, one.body) for one in found if one.status != 200]


async def refusal(bench: Bench, rng: Random) -> Outcome:
    status, body = rng.choice(refusals())
    bench.server.status = status if rng.random() < 0.5 else rng.choice([201, 204, 301, 401, 404, 429, 500, 503, 599])
    bench.server.headers = rng.choice([{}, {}, {"content-encoding": "gzip"}, {"location": "http://x/"}])
    damaged = mangled(body, rng)
    bench.sends("/v1/completions", damaged)
    try:
        await bench.prober.generate([1, 2], limit=3)
    except ReplyCorrupted:
        if bench.server.status not in (400, 500) or b"float" not in words(damaged):
            raise AssertionError("corrupted, and nothing was said of broken numbers") from None
        raise
    finally:
        bench.server.status, bench.server.headers = 200, {}
    return "read"


def words(body: bytes) -> bytes:
    """The text of a body in any of the codings that damage puts it into, in small letters."""
    plain = gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body
    return plain.replace(b"\x00", b"").lower()


# ------------------------------------------------------------------ the cases


async def test_damaged_scoring_replies() -> None:
    found = await run("scoring", scoring)
    assert seen(found, "read", "same", "marked", "ReplyInvalid", "NodeFailed")


async def test_damaged_one_token_replies() -> None:
    found = await run("one_token", one_token)
    assert seen(found, "read", "marked", "ReplyInvalid", "NodeFailed")


async def test_damaged_first_token_replies() -> None:
    found = await run("first_token", first_token)
    assert seen(found, "read", "marked", "ReplyInvalid", "NodeFailed")


async def test_damaged_answers() -> None:
    found = await run("generate", generate)
    assert seen(found, "read", "ReplyCorrupted", "ReplyInvalid", "NodeFailed")


async def test_damaged_introductions() -> None:
    found = await run("identify", identify)
    assert seen(found, "read", "Misconfigured", "ReplyInvalid")


async def test_damaged_token_lists() -> None:
    found = await run("tokenize", tokenize)
    assert seen(found, "read", "ReplyInvalid")


async def test_damaged_metrics() -> None:
    found = await run("load", load)
    assert seen(found, "read", "nothing")


async def test_damaged_refusals_of_any_status() -> None:
    found = await run("refusal", refusal)
    assert seen(found, "ReplyCorrupted", "OverCap", "OverBudget", "Misconfigured", "NodeBusy", "NodeFailed")
