"""Pool settings -> the pools that are watched, with their rules."""

from collections.abc import Mapping

from quantwatch.config.schema import PoolSettings, Settings
from quantwatch.flow.fleet import PoolRules
from quantwatch.flows.watched import WatchedPool

BASELINE = "baseline"
"""How a fallback, a message or a metric names the baseline."""


def pools_of(settings: Settings) -> dict[str, WatchedPool]:
    """The pools with their rules; a fallback under the name that the gateway knows."""
    names = {target.name: target.gateway_name or target.url for target in settings.targets}
    names[BASELINE] = settings.baseline.gateway_name or settings.baseline.url
    return {name: _pool(name, pool, names) for name, pool in settings.pools.items()}


def _pool(name: str, pool: PoolSettings, names: Mapping[str, str]) -> WatchedPool:
    return WatchedPool(
        name=name,
        rules=PoolRules(
            mode=pool.mode,
            max_isolated=pool.max_isolated,
            actions_per_hour=pool.actions_per_hour,
            storm_share=pool.storm_share,
            storm_cooldown_seconds=pool.storm_cooldown,
            fallback_max_waiting=pool.fallback_max_waiting,
            fallback_max_kv_usage=pool.fallback_max_kv_usage,
        ),
        release_after=pool.release_after,
        minimum_hold_seconds=pool.minimum_hold,
        hold_jitter=pool.hold_jitter,
        probation_seconds=pool.probation,
        forgive_after_seconds=pool.forgive_after,
        fallback=pool.fallback,
        fallback_name=names[pool.fallback] if pool.fallback is not None else None,
        approval_seconds=pool.approval_expires,
    )
