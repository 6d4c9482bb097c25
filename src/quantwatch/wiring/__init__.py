"""Settings -> objects that live as long as a run or a configuration; the only file that sees every room."""

import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import httpx
import platformdirs

from quantwatch.clock import SystemClock
from quantwatch.config.limits import LimitSettings, limits_for
from quantwatch.config.load import prompts_file
from quantwatch.config.schedule import longest_gap
from quantwatch.config.schema import ProbeSettings, ScheduleSettings, Settings, TargetSettings, TaskSetSettings
from quantwatch.config.secrets import SecretRef
from quantwatch.config.server import ServerSettings
from quantwatch.flow.prompt import ProbeMode, PromptSet
from quantwatch.flow.verdict import Limit, Metric
from quantwatch.flows.compare import Comparison
from quantwatch.flows.cycle import Turn
from quantwatch.flows.generation import Generation
from quantwatch.flows.library import Library
from quantwatch.flows.plan import Plan, Progress
from quantwatch.flows.pools import BASELINE, pools_of
from quantwatch.flows.watched import Watched, WatchedSet, Watchlist
from quantwatch.flows.yardstick import Yardstick
from quantwatch.judge.confidence import critical_limits, draw_sizes, interval_level
from quantwatch.measure.threads import one_thread
from quantwatch.net import Endpoint, Limits, Link
from quantwatch.probe.account import Accounts
from quantwatch.probe.budget import Budget, Gate, Told
from quantwatch.probe.vllm import VllmProber
from quantwatch.prompts.load import load_set
from quantwatch.wiring.channels import subscribers
from quantwatch.wiring.drivers import driver, traffic_probe
from quantwatch.wiring.tools import Tools, certificates


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
        tokens_per_minute=probe.tokens_per_minute,
        in_flight=probe.in_flight,
        max_waiting=probe.max_waiting,
        max_kv_usage=probe.max_kv_usage,
        patience_seconds=probe.patience,
    )


async def prober(
    stack: contextlib.AsyncExitStack,
    endpoint: Endpoint,
    model: str | None,
    *,
    probe: ProbeSettings,
    tools: Tools,
    ranks: int = 1,
) -> VllmProber:
    """A prober whose connection lives as long as the stack. ranks: data-parallel ranks behind the URL."""
    role = BASELINE if endpoint.name == BASELINE else "target"

    def heard(seconds: float, failure: str | None) -> None:
        tools.heard(role, endpoint.name, seconds, failure)

    link = await stack.enter_async_context(Link(endpoint, limits(probe), transport=tools.transport, heard=heard))
    told = Told(
        spent=lambda tokens: tools.spent(role, endpoint.name, tokens),
        restarted=lambda: tools.restarted(role, endpoint.name),
    )
    gate = Gate(link, budget(probe), tools.clock, account=tools.accounts.of(link.url), told=told)
    return VllmProber(link, budget=budget(probe), gate=gate, model=model, ranks=ranks)


@contextlib.asynccontextmanager
async def comparison(
    baseline: tuple[Endpoint, str | None],
    nodes: Sequence[tuple[Endpoint, str | None]],
    plan: Plan,
    *,
    probe: ProbeSettings,
    cache: Path,
    tell: Callable[[Progress], None],
    transport: httpx.AsyncBaseTransport | None = None,
    accounts: Accounts | None = None,
) -> AsyncIterator[Comparison]:
    """Connect everything for one comparison. Each server comes with its model name, None for its only model.

    accounts: what several comparisons one after another share.
    """
    one_thread()
    known = accounts or Accounts()
    tools = Tools(SystemClock(), Random(), transport, accounts=known)  # noqa: S311, nothing secret is drawn
    async with contextlib.AsyncExitStack() as stack:
        servers = [
            await prober(stack, endpoint, model, probe=probe, tools=tools) for endpoint, model in [baseline, *nodes]
        ]
        yield Comparison(servers[0], servers[1:], plan, cache=cache, tell=tell)


def endpoint(name: str, server: ServerSettings) -> Endpoint:
    """A server's address with its secrets fetched. Raises InputError, naming a secret's place, never its value."""
    return Endpoint(
        name=name,
        url=server.url,
        api_key=server.api_key.resolve() if server.api_key is not None else None,
        headers={
            key: value.resolve() if isinstance(value, SecretRef) else value for key, value in server.headers.items()
        },
        **certificates(server.tls),
    )


def period_of(schedule: ScheduleSettings) -> float:
    """The longest time between two runs, in seconds."""
    return longest_gap(schedule.cron) if schedule.cron is not None else float(schedule.every or 0.0)


def sets_of(settings: Settings, target: TargetSettings, pools: Mapping[str, PromptSet]) -> dict[str, WatchedSet]:
    """Every task set that judges a target's pool, as the target is asked about it, with the limits of its scheme."""
    by_scheme = settings.limits.get(target.scheme, LimitSettings())
    chosen = settings.pools[target.pool].task_sets
    sets = [
        _set(name, one, pools[name], limits_for(target.scheme, by_scheme, one.limits))
        for name, one in settings.task_sets.items()
        if chosen is None or name in chosen
    ]
    tests = sum(critical_limits(limits) for one in sets for limits in (one.limits, *one.parts.values()))
    confidence = settings.judge.confidence
    levels = [interval_level(confidence, tests=tests, looks=len(one.sizes)) for one in sets]
    margin = settings.pools[target.pool].release_margin
    return {one.name: replace(one, level=level, release_margin=margin) for one, level in zip(sets, levels, strict=True)}


def _set(name: str, one: TaskSetSettings, prompts: PromptSet, limits: Mapping[Metric, Limit]) -> WatchedSet:
    mode = one.mode or prompts.mode
    second = ProbeMode.ONE_TOKEN if mode is ProbeMode.PROMPT_SCORING else mode
    return WatchedSet(
        name=name,
        prompts=prompts,
        mode=mode,
        k=one.k,
        draw=one.draw,
        continuation_tokens=one.continuation_tokens,
        positions=one.positions,
        confirm_cycles=one.confirm_cycles,
        period_seconds=period_of(one.schedule),
        act_on=frozenset(one.act_on),
        limits=limits,
        parts=one.slices.values(),
        sizes=draw_sizes(one.draw, one.draw_at_most),
        confirm_mode=one.confirm_mode or second,
    )


def prompt_sets(settings: Settings, *, folder: Path, shipped: Mapping[str, Path]) -> dict[str, PromptSet]:
    """The golden prompts of every configured task set. Raises ConfigError for a file that cannot be used."""
    return {name: load_set(prompts_file(settings, name, folder=folder, shipped=shipped)) for name in settings.task_sets}


async def watchlist(
    settings: Settings, prompts: Mapping[str, PromptSet], stack: contextlib.AsyncExitStack, tools: Tools
) -> Watchlist:
    """A configuration with its connections, which live as long as the stack. Raises InputError for a missing secret."""

    async def connected(name: str, server: ServerSettings, ranks: int = 1) -> VllmProber:
        at = endpoint(name, server)
        return await prober(stack, at, server.model, probe=settings.probe, tools=tools, ranks=ranks)

    targets = {
        one.name: Watched(
            name=one.name,
            scheme=one.scheme.value,
            pool=one.pool,
            gateway_name=one.gateway_name or one.url,
            prober=await connected(one.name, one, one.data_parallel_size),
            sets=sets_of(settings, one, prompts),
        )
        for one in settings.targets
    }
    return Watchlist(
        baseline=await connected(BASELINE, settings.baseline),
        targets=targets,
        pools=pools_of(settings),
        digest=digest(settings),
    )


def digest(settings: Settings) -> str:
    """Twelve hex digits that change with any setting; secrets are named there, never held."""
    return hashlib.sha256(settings.model_dump_json().encode()).hexdigest()[:12]


async def generation(
    settings: Settings,
    prompts: Mapping[str, PromptSet],
    *,
    tools: Tools,
    yardstick: Yardstick,
    cache: Path,
    isolated: Callable[[str], bool],
    library: Library | None = None,
    folder: Path = Path(),
) -> Generation:
    """Build everything that a configuration needs. Raises InputError; nothing stays open then.

    library: the baseline's enrolled answers; without one the live baseline is always asked. folder: where the
    configuration file is.
    """
    one_thread()
    async with contextlib.AsyncExitStack() as stack:
        watched = await watchlist(settings, prompts, stack, tools)
        gateway = await driver(settings, stack, tools, isolated=isolated, folder=folder)
        traffic = await traffic_probe(settings, stack, tools)
        told = await subscribers(settings.notifications, stack, tools)
        turn = Turn(
            baseline=watched.baseline,
            yardstick=yardstick,
            cache=cache,
            clock=tools.clock,
            random=tools.random,
            timeout_seconds=settings.probe.run_timeout,
            library=library,
            shown=settings.expose.prompts,
        )
        kept = stack.pop_all()
        return Generation(
            watched,
            gateway,
            settings.gateway.give_up_after,
            turn,
            close=kept.aclose,
            channels=told,
            windows=settings.windows,
            traffic=traffic,
        )
