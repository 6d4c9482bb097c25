"""Speeds as ratios within one run, so that a slow machine changes nothing."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
import torch

from quantwatch.flow.divergence import Evidence
from quantwatch.measure.compare import Pair, Scope, measure
from quantwatch.probe import reply
from support.recordings import K, scored

pytestmark = pytest.mark.benchmark

ROUNDS = 15


def median_seconds(action: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def test_reading_and_measuring_replies_costs_at_most_twice_json_loads() -> None:
    """Parse, checks, alignment, KL and all figures of 342 positions x 20 of both servers; 1.1 to 1.4 seen."""
    torch.set_num_threads(1)
    baseline, node = scored("fp32"), scored("int8-w8a8-outlier")
    asked = reply.Asked(node="n", k=K)

    def ours() -> object:
        pairs = []
        for (sequence, p), (_, q) in zip(baseline, node, strict=True):
            sides = [
                reply.prompt_scoring(reply.read(body, asked, choices=1)[0], sequence, asked, seconds=0.0)
                for body in (p, q)
            ]
            pairs.append(Pair(*sides))
        return measure(pairs, scope=Scope.ALL, evidence=Evidence.CENSUS)

    def only_json() -> object:
        return [json.loads(body) for side in (baseline, node) for _, body in side]

    ours()
    ratio = median_seconds(ours) / median_seconds(only_json)
    print(f"\nread and measure / json.loads = {ratio:.2f}")  # noqa: T201, the point of a benchmark

    assert ratio <= 2.0


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
