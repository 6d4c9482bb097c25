"""Measures a node as `quantwatch compare` does, for the limits."""

from collections.abc import Callable, Mapping
from pathlib import Path

from quantwatch.config.limits import Scheme, limits_for
from quantwatch.config.schema import ProbeSettings
from quantwatch.demo.children import DemoFailed
from quantwatch.demo.limits import Written, limits_from
from quantwatch.demo.plan import BASELINE, NODE, TOKENS_PER_MINUTE, Addresses, Size
from quantwatch.flow.prompt import PromptSet
from quantwatch.flow.report import Report, SetReport
from quantwatch.flows.plan import Plan, Progress, planned_draw
from quantwatch.flows.report import report
from quantwatch.net import Endpoint
from quantwatch.wiring import comparison


async def measured(
    pools: Mapping[str, PromptSet],
    size: Size,
    at: Addresses,
    *,
    seed: int,
    cache: Path,
    tell: Callable[[Progress], None],
) -> dict[str, SetReport]:
    """A report on each task set, judged by the shipped INT8 limits. Raises DemoFailed where a number is missing."""
    plan = Plan(
        sets=tuple(planned_draw(pool, size=size.draw, seed=seed, mode=None) for pool in pools.values()),
        limits=limits_for(Scheme.INT8),
        seed=seed,
        continuation_tokens=size.continuation_tokens,
    )
    servers = Endpoint(BASELINE, at.baseline), Endpoint(NODE, at.node)
    probe = ProbeSettings(tokens_per_minute=TOKENS_PER_MINUTE)
    async with comparison((servers[0], None), [(servers[1], None)], plan, probe=probe, cache=cache, tell=tell) as run:
        await run.run()
        return _complete(report(run))


def _complete(result: Report) -> dict[str, SetReport]:
    (node,) = result.targets
    found = {one.name: one for one in node.task_sets}
    missing = [name for name, one in found.items() if one.divergence is None or one.observation.missing]
    if missing or not found:
        why = result.trouble or "; ".join(node.reasons) or "nothing was measured"
        raise DemoFailed(f"the healthy node could not be measured on {', '.join(missing) or 'any task set'}: {why}")
    return found


def limits_of(healthy: dict[str, SetReport]) -> dict[str, Written]:
    """Limits for each task set."""
    return {name: limits_from(one.divergence) for name, one in healthy.items() if one.divergence is not None}
