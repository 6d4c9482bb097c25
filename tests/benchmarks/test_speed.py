"""Speeds as ratios within one run, so that a slow machine changes nothing."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch

from quantwatch.config.limits import Scheme, limits_for
from quantwatch.errors import ProbeError
from quantwatch.flow.divergence import Evidence
from quantwatch.flow.observation import Observation
from quantwatch.flow.prompt import GoldenSequence
from quantwatch.flow.verdict import Quality, Verdict
from quantwatch.judge.conclude import conclude
from quantwatch.measure.bounds import sharp
from quantwatch.measure.compare import Pair, Scope, measure
from quantwatch.measure.kl import align
from quantwatch.measure.listed import listed
from quantwatch.measure.threads import one_thread
from quantwatch.net import MEBIBYTE
from quantwatch.probe import reply
from support.masses import MASSES, choices, entries
from support.recordings import K, pairs, scored

pytestmark = pytest.mark.benchmark

ROUNDS = 9


def median_seconds(action: Callable[[], object], *, rounds: int = ROUNDS) -> float:
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def test_from_replies_to_verdict_costs_hardly_more_than_json_loads() -> None:
    """Parse, checks, alignment, bound, all figures and the verdict of 16,074 positions x 20 of both servers.

    json.loads is held against it on the same bytes, each document dropped at once. Both take turns, so that a machine
    that is slow for a while is slow for both.
    """
    torch.set_num_threads(1)
    baseline, node = many("fp32"), many("int8-w8a8-outlier")
    asked = reply.Asked(node="n", k=K)
    limits = limits_for(Scheme.INT8)

    def ours() -> Verdict:
        both = []
        for (sequence, p), (_, q) in zip(baseline, node, strict=True):
            sides = [
                reply.prompt_scoring(reply.read(body, asked, choices=1)[0], sequence, asked, seconds=0.0)
                for body in (p, q)
            ]
            both.append(Pair(*sides))
        measured = measure(both, scope=Scope.ALL, evidence=Evidence.DRAW)
        return conclude(Observation(drawn=len(both), measured=len(both)), measured, limits)

    def only_json() -> None:
        for body in (body for side in (baseline, node) for _, body in side):
            json.loads(body)

    assert ours().quality is Quality.DEGRADED
    ratio = statistics.median(_timed(ours) / _timed(only_json) for _ in range(ROUNDS))
    print(f"\nreplies to verdict / json.loads = {ratio:.2f}")  # noqa: T201, the point of a benchmark

    assert ratio <= 1.2


def many(server: str) -> list[tuple[GoldenSequence, bytes]]:
    """The five recorded sequences of a server over and over, each time as another prompt: over 16,000 positions."""
    recorded = scored(server)
    found = [(replace(one, prompt_id=f"{one.prompt_id}-{i}"), body) for i in range(47) for one, body in recorded]
    assert sum(len(sequence.ids) - 1 for sequence, _ in found) >= 16_000
    return found


def test_the_sharp_bound_of_16000_positions_costs_under_half_of_json_loads() -> None:
    """Alignment and bound of the node with outliers, where caps bind everywhere; about 0.12 of both sides' replies."""
    one_thread()
    recorded = pairs("int8-w8a8-outlier")
    p, q = listed([pair.baseline for pair in recorded]), listed([pair.node for pair in recorded])
    positions = torch.arange(16_000) % len(p.ids)
    baseline, node = p.rows(positions), q.rows(positions)
    one_side = [body for _, body in scored("int8-w8a8-outlier")] * round(16_000 / len(p.ids))

    def ours() -> object:
        return sharp(baseline, node, align(baseline, node))

    def only_json() -> object:
        return [json.loads(body) for body in one_side]

    ours()
    ratio = median_seconds(ours, rounds=7) / median_seconds(only_json, rounds=3)
    print(f"\nalign and sharp / json.loads of the node's replies alone = {ratio:.2f}")  # noqa: T201, as above

    assert ratio < 0.5


def test_help_starts_in_a_fraction_of_the_time_that_torch_takes() -> None:
    def run(*arguments: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True)  # noqa: S603, ours

    shown = statistics.median(_timed(run("-m", "quantwatch", "--help")) for _ in range(3))
    heavy = statistics.median(_timed(run("-c", "import torch")) for _ in range(3))
    print(f"\nquantwatch --help / import torch = {shown / heavy:.2f}")  # noqa: T201, the point of a benchmark

    assert shown < heavy


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def test_masses_are_refused_in_less_time_than_json_loads_takes() -> None:
    """The first two before anything is built; honest limits let the others be decoded first."""
    asked, sequence = reply.Asked(node="n", k=K), GoldenSequence("s", (1, 2), 1)

    def refused(body: bytes) -> None:
        with pytest.raises(ProbeError):
            reply.prompt_scoring(reply.read(body, asked, choices=1)[0], sequence, asked, seconds=0.0)

    for name, (body, limit) in masses().items():
        ratio = _timed(partial(refused, body)) / _timed(partial(json.loads, body))
        print(f"\n{name}: refused / json.loads = {ratio:.3f}")  # noqa: T201, as above
        assert ratio <= limit, name


def masses() -> dict[str, tuple[bytes, float]]:
    """Replies by name, each with the ratio that its refusal may cost."""
    return {
        "64 MiB of nested arrays": (MASSES["nested arrays"](64 * MEBIBYTE), 0.25),
        "64 MiB of empty positions": (MASSES["positions without entries"](64 * MEBIBYTE), 0.25),
        "a million answers": (choices(1_000_000), 1.0),
        "a position of a million entries": (entries(1_000_000), 1.0),
    }
