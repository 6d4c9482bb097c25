"""Memory over many runs of parse, measure and verdict."""

import gc

import psutil
import pytest
import torch

from quantwatch.config.limits import Scheme, limits_for
from quantwatch.flow.divergence import Evidence
from quantwatch.flow.observation import Observation
from quantwatch.flow.verdict import Quality
from quantwatch.judge.conclude import conclude
from quantwatch.measure.compare import Pair, Scope, measure
from quantwatch.probe import reply
from support.recordings import K, scored

pytestmark = pytest.mark.benchmark

RUNS = 1000
WARM = 20
"""Runs before the first look: the allocator's pools fill, and torch sets up what it keeps."""

MEBIBYTE = 1024 * 1024


def resident() -> float:
    """Resident memory of this process in MiB."""
    gc.collect()
    return float(psutil.Process().memory_info().rss) / MEBIBYTE


def test_memory_stays_flat_over_1000_runs() -> None:
    """Replies of both servers to 342 positions x 20 a run; every tenth run a reply goes the tolerant way."""
    torch.set_num_threads(1)
    baseline, node = scored("fp32"), scored("int8-w8a8-outlier")
    asked = reply.Asked(node="n", k=K)
    limits = limits_for(Scheme.INT8)

    def run(number: int) -> None:
        pairs = []
        for (sequence, p), (_, q) in zip(baseline, node, strict=True):
            odd = q.replace(b'"prompt_logprobs": [null', b'"prompt_logprobs": [NaN', number % 10 == 0)
            sides = [
                reply.prompt_scoring(reply.read(body, asked, choices=1)[0], sequence, asked, seconds=0.0)
                for body in (p, odd)
            ]
            pairs.append(Pair(*sides))
        measured = measure(pairs, scope=Scope.ALL, evidence=Evidence.CENSUS)
        observed = Observation(drawn=len(pairs), measured=len(pairs))
        assert conclude(observed, measured, limits).quality is Quality.DEGRADED

    seen = {}
    for number in range(WARM + RUNS + 1):
        if number in (WARM, WARM + RUNS // 10, WARM + RUNS):
            seen[number - WARM] = resident()
        run(number)
    told = ", ".join(f"{size:.1f} MiB after {runs} runs" for runs, size in seen.items())
    print(f"\n{told}")  # noqa: T201, the point of a benchmark

    assert seen[RUNS] - seen[RUNS // 10] < 4
