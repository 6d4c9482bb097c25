"""What can be wrong with a ladder of variants, and with a server that stands in several pools by its task sets."""

from collections.abc import Iterator, Mapping, Sequence

from quantwatch.config.gateway import BY_WEIGHT, NO_STANDBY
from quantwatch.config.problems import known_names
from quantwatch.config.schema import PoolSettings, Settings, TargetSettings
from quantwatch.config.source import Path_
from quantwatch.flow.decision import PoolMode

BASELINE = "baseline"
ACTING = (PoolMode.APPROVE, PoolMode.ENFORCE)
Fault = tuple[Path_, str]


def ladders(settings: Settings) -> Iterator[Fault]:
    """What is wrong with the ladders, and with the task sets of pools: where, and a sentence."""
    for name, pool in settings.pools.items():
        path = ("pools", name)
        for i, task_set in enumerate(pool.task_sets or ()):
            if task_set not in settings.task_sets:
                known = known_names(task_set, list(settings.task_sets))
                yield (*path, "task_sets", i), f"no task set {task_set}; {known}"
        if pool.variants is None:
            if pool.shift:
                yield (*path, "shift"), "only a ladder shifts; list the rungs under variants"
            continue
        yield from _rungs(path, pool.variants, [one for one in settings.targets if one.pool == name])
        yield from _fallback(path, pool)
        yield from _shift(path, pool, settings)
    yield from _unasked(settings)


def _rungs(path: Path_, variants: Sequence[str], targets: Sequence[TargetSettings]) -> Iterator[Fault]:
    schemes = list(dict.fromkeys(one.scheme.value for one in targets))
    for i, rung in enumerate(variants):
        here = (*path, "variants", i)
        if rung in variants[:i]:
            yield here, f"{rung} is a rung already, and traffic that climbs must not come by twice"
        elif rung == BASELINE and i < len(variants) - 1:
            yield here, "the baseline is the most faithful of all, so it can only be the last rung"
        elif rung != BASELINE and rung not in schemes:
            have = f"its targets are {' and '.join(schemes)}" if schemes else "it has no target at all"
            yield here, f"no target of this pool has the scheme {rung}; {have}"
    for scheme in schemes:
        if scheme not in variants:
            names = ", ".join(one.name for one in targets if one.scheme.value == scheme)
            yield (*path, "variants"), f"{names}: {scheme} is no rung here; list it, or move the target to another pool"


def _fallback(path: Path_, pool: PoolSettings) -> Iterator[Fault]:
    last = pool.variants[-1] if pool.variants else None
    if pool.fallback is not None and pool.fallback != last:
        cure = "remove fallback" if last == BASELINE else "remove fallback, or end the ladder with baseline"
        said = f"on a ladder the next sound rung stands in, and {pool.fallback} is not its end"
        yield (*path, "fallback"), f"{said}; {cure}"


def _shift(path: Path_, pool: PoolSettings, settings: Settings) -> Iterator[Fault]:
    driver = settings.gateway.driver
    if pool.mode in ACTING and driver in NO_STANDBY:
        said = f"driver {driver} sends traffic to every server that is in, so no rung can stand by"
        yield (*path, "variants"), f"{said}; a ladder needs another driver"
    if not pool.shift:
        return
    if driver not in (*BY_WEIGHT, "dry_run"):
        known = " and ".join(BY_WEIGHT)
        yield (*path, "shift"), f"driver {driver} has no weights, so traffic comes back at once; {known} can weigh"
    if (
        driver in BY_WEIGHT
        and pool.variants
        and pool.variants[-1] == BASELINE
        and settings.baseline.gateway_name is None
    ):
        yield (
            ("baseline",),
            f"the ladder of {path[1]} shifts weights, so the baseline needs a gateway_name: its server there",
        )
    if settings.server.agent_listen is not None:
        said = "HAProxy would set every server that asks server.agent_listen back to its whole weight within seconds"
        yield (*path, "shift"), f"{said}; remove one of the two"
    if pool.shift != sorted(set(pool.shift)):
        yield (*path, "shift"), "each share must be larger than the one before"


def _unasked(settings: Settings) -> Iterator[Fault]:
    """Task sets that no pool asks for would never run."""
    if any(pool.task_sets is None for pool in settings.pools.values()):
        return
    asked = {one for pool in settings.pools.values() for one in pool.task_sets or ()}
    for name in settings.task_sets:
        if name not in asked:
            yield ("task_sets", name), "no pool names it under task_sets, so it would never run"


def share_a_server(one: TargetSettings, other: TargetSettings, settings: Settings) -> str | None:
    """Why two targets must not be one server, None where they may.

    They may in two pools which the gateway tells apart by names of its own, and whose task sets differ: the server is
    then asked about each set once.
    """
    if one.pool == other.pool or None in (one.gateway_name, other.gateway_name):
        return "has this URL and model already; one server stands in several pools by a gateway_name in each"
    if one.gateway_name == other.gateway_name:
        return f"has this URL, model and gateway_name {one.gateway_name} already, and the gateway must tell them apart"
    both = sorted(_asked(one, settings.pools, settings) & _asked(other, settings.pools, settings))
    if both:
        said = f"has this URL and model already, and would be asked about {', '.join(both)} twice"
        return f"{said}; give both pools task_sets that differ"
    return None


def _asked(target: TargetSettings, pools: Mapping[str, PoolSettings], settings: Settings) -> set[str]:
    pool = pools.get(target.pool)
    return set(settings.task_sets) if pool is None or pool.task_sets is None else set(pool.task_sets)
