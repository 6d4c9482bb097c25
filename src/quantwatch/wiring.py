"""Settings -> objects that live as long as a run; the only file that sees every room."""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import httpx
import platformdirs
import torch

from quantwatch.clock import Clock, SystemClock
from quantwatch.config.schema import ProbeSettings
from quantwatch.flows.compare import Comparison
from quantwatch.flows.plan import Plan, Progress
from quantwatch.net import Endpoint, Limits, Link
from quantwatch.probe.budget import Budget, Gate
from quantwatch.probe.vllm import VllmProber


def cache_folder() -> Path:
    """Where the baseline's answers are kept between runs of one user."""
    return Path(platformdirs.user_cache_dir("quantwatch", appauthor=False)) / "continuations"


def limits(probe: ProbeSettings) -> Limits:
    """Network limits out of the probe settings."""
    return Limits(
        connect_seconds=probe.connect_timeout,
        total_seconds=probe.timeout,
        response_bytes=probe.max_response_size,
    )


def budget(probe: ProbeSettings) -> Budget:
    """Probe budget out of the probe settings."""
    return Budget(
        scored_tokens=probe.max_scored_tokens,
        scored_entries=probe.max_scored_entries,
        prompt_tokens=probe.max_prompt_tokens,
        prefixes=probe.prefixes_per_request,
        in_flight=probe.in_flight,
        max_waiting=probe.max_waiting,
        max_kv_usage=probe.max_kv_usage,
        patience_seconds=probe.patience,
    )


@contextlib.asynccontextmanager
async def comparison(
    baseline: tuple[Endpoint, str | None],
    nodes: Sequence[tuple[Endpoint, str | None]],
    plan: Plan,
    *,
    probe: ProbeSettings,
    cache: Path,
    tell: Callable[[Progress], None],
    clock: Clock | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> AsyncIterator[Comparison]:
    """Connect everything for one comparison. Each server comes with its model name, None for its only model."""
    torch.set_num_threads(1)
    time = clock or SystemClock()
    async with contextlib.AsyncExitStack() as stack:

        async def prober(endpoint: Endpoint, model: str | None) -> VllmProber:
            link = await stack.enter_async_context(Link(endpoint, limits(probe), transport=transport))
            return VllmProber(link, budget=budget(probe), gate=Gate(link, budget(probe), time), model=model)

        servers = [await prober(endpoint, model) for endpoint, model in [baseline, *nodes]]
        yield Comparison(servers[0], servers[1:], plan, cache=cache, tell=tell)
