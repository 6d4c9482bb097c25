"""A configuration file -> frozen Settings, or every problem in it at once."""

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from quantwatch.config.access import token_faults
from quantwatch.config.gateway import GatewaySettings
from quantwatch.config.haproxy import servers_of
from quantwatch.config.kubernetes import pod_of
from quantwatch.config.ladder import ladders, share_a_server
from quantwatch.config.problems import known_names, validated
from quantwatch.config.schema import ListenSettings, Settings
from quantwatch.config.source import Path_, Source, dotted, read_yaml
from quantwatch.config.upstreams import member_of
from quantwatch.errors import ConfigError, Problem
from quantwatch.flow.decision import PoolMode

ACTING = (PoolMode.APPROVE, PoolMode.ENFORCE)
MakeProblem = Callable[[Path_, str], Problem]


def load_settings(path: Path, *, shipped: Mapping[str, Path]) -> Settings:
    """Read and check a configuration file. Raises ConfigError with all problems.

    shipped: the task sets that come with the installation, by name. Relative prompts files are looked for beside the
    configuration file.
    """
    source = read_yaml(path)
    settings = validated(Settings, source)
    problems = list(_dangling(settings, source, path.parent, shipped))
    if problems:
        raise ConfigError(sorted(problems, key=lambda problem: problem.line or 0))
    return settings


def load_listen(path: Path) -> ListenSettings:
    """The section `server` alone: who looks for a running daemon is not held up by a fault elsewhere in the file.

    Raises ConfigError.
    """
    source = read_yaml(path)
    section = source.data.get("server", {}) if isinstance(source.data, dict) else source.data
    lines = {where[1:]: line for where, line in source.lines.items() if where[:1] == ("server",)}
    return validated(ListenSettings, Source(source.file, section, lines))


def prompts_file(settings: Settings, name: str, *, folder: Path, shipped: Mapping[str, Path]) -> Path:
    """The golden prompts file of a configured task set. folder: where the configuration file is."""
    given = settings.task_sets[name].prompts
    return folder / given if given is not None else shipped[name]


def store_file(settings: Settings, *, folder: Path) -> Path:
    """Where the store is; a relative path starts at the configuration file's folder."""
    return folder / settings.store.path


def references_folder(settings: Settings, *, folder: Path) -> Path:
    """Where references are; a relative path starts at the store's folder."""
    return store_file(settings, folder=folder).parent / settings.references.path


def _dangling(settings: Settings, source: Source, folder: Path, shipped: Mapping[str, Path]) -> Iterator[Problem]:
    def problem(path: Path_, message: str) -> Problem:
        return Problem(source.file, source.line(path), dotted(path), message)

    yield from _targets(settings, problem)
    yield from _pools(settings, problem)
    yield from (problem(*one) for one in ladders(settings))
    yield from _gateway(settings, folder, problem)
    yield from _channels(settings, problem)
    yield from _windows(settings, problem)
    yield from (problem(*one) for one in token_faults(settings.server))
    for name, task_set in settings.task_sets.items():
        if task_set.prompts is None and name not in shipped:
            message = f"no shipped task set {name}; {known_names(name, list(shipped))}; or name a file under prompts"
            yield problem(("task_sets", name), message)
        elif task_set.prompts is not None and not (folder / task_set.prompts).is_file():
            yield problem(("task_sets", name, "prompts"), f"no such prompts file: {folder / task_set.prompts}")


def _targets(settings: Settings, problem: MakeProblem) -> Iterator[Problem]:
    names: dict[str, int] = {}
    urls: dict[tuple[str, str | None], list[int]] = {}
    for i, target in enumerate(settings.targets):
        if target.name in names:
            yield problem(("targets", i, "name"), f"{target.name} is the name of targets[{names[target.name]}] already")
        names.setdefault(target.name, i)
        if target.pool not in settings.pools:
            known = known_names(target.pool, list(settings.pools))
            yield problem(("targets", i, "pool"), f"no pool {target.pool}; {known}")
        url = target.url.rstrip("/")
        for j in urls.get((url, target.model), ()):
            objection = share_a_server(target, settings.targets[j], settings)
            if objection is not None:
                yield problem(("targets", i, "url"), f"targets[{j}] {objection}")
                break
        urls.setdefault((url, target.model), []).append(i)
        if url == settings.baseline.url.rstrip("/"):
            yield problem(("targets", i, "url"), "this is the baseline's URL; a server cannot be held against itself")


def _pools(settings: Settings, problem: MakeProblem) -> Iterator[Problem]:
    pools = {target.name: target.pool for target in settings.targets}
    for name, pool in settings.pools.items():
        path = ("pools", name, "fallback")
        others = ["baseline", *(target for target, home in pools.items() if home != name)]
        if name not in pools.values():
            yield problem(("pools", name), "no target belongs to this pool")
        if pool.fallback is not None and pool.fallback not in others:
            yield problem(path, f"no fallback {pool.fallback}; {known_names(pool.fallback, others)}")
        size = list(pools.values()).count(name)
        if pool.variants is not None:
            continue
        if pool.mode in ACTING and size > 1 and 0 < pool.max_isolated * size < 1:
            least = f"{math.ceil(100 / size)}%"
            said = f"{pool.max_isolated:.0%} of {size} targets is less than one, so nothing could ever be isolated"
            yield problem((*path[:2], "max_isolated"), f"{said}; the least is {least}")
        if pool.fallback is None and pool.mode in ACTING and size == 1:
            yield problem(
                ("pools", name), "a pool of one that may act needs a fallback, or it can never isolate its node"
            )


def _gateway(settings: Settings, folder: Path, problem: MakeProblem) -> Iterator[Problem]:
    gateway = settings.gateway
    if gateway.driver in NAMED:
        yield from _named(settings, problem)
    if gateway.template is not None and not (folder / gateway.template).is_file():
        yield problem(("gateway", "template"), f"no such template: {folder / gateway.template}")


def _named(settings: Settings, problem: MakeProblem) -> Iterator[Problem]:
    """Every target that may be acted upon has a name of its own at the gateway, or several."""
    wanted, names_of = NAMED[settings.gateway.driver]
    taken: dict[str, int] = {}
    for i, target in enumerate(settings.targets):
        path = ("targets", i, "gateway_name")
        pool = settings.pools.get(target.pool)
        if target.gateway_name is None:
            if pool is not None and pool.mode in ACTING:
                said = f"driver {settings.gateway.driver} needs a gateway_name: {wanted} there"
                yield problem(("targets", i), said)
            continue
        try:
            names = names_of(target.gateway_name, settings.gateway)
        except ValueError as exc:
            yield problem(path, str(exc))
            continue
        for name in names:
            if name in taken:
                yield problem(path, f"{name} belongs to targets[{taken[name]}] already")
            taken.setdefault(name, i)


def _member(name: str, gateway: GatewaySettings) -> tuple[str, ...]:
    return ("/".join(member_of(name, gateway.upstream)),)


NamesOf = Callable[[str, GatewaySettings], tuple[str, ...]]
NAMED: Mapping[str, tuple[str, NamesOf]] = {
    "haproxy": ("its SERVER or BACKEND/SERVER", lambda name, gateway: servers_of(name, gateway.backend)),
    "litellm": ("the deployment's id", lambda name, _: (name,)),
    "kubernetes": ("its POD or SERVICE:POD", lambda name, gateway: (":".join(pod_of(name, gateway.service)),)),
    "apisix": ("its HOST:PORT or UPSTREAM/HOST:PORT", _member),
    "kong": ("its HOST:PORT or UPSTREAM/HOST:PORT", _member),
}
"""Gateways that know a node by no URL: what they call it, and the names in a gateway_name."""


def _channels(settings: Settings, problem: MakeProblem) -> Iterator[Problem]:
    yield from _twice("notifications", [one.name for one in settings.notifications], problem)
    for i, channel in enumerate(settings.notifications):
        for j, pool in enumerate(channel.pools or ()):
            if pool not in settings.pools:
                known = known_names(pool, list(settings.pools))
                yield problem(("notifications", i, "pools", j), f"no pool {pool}; {known}")


def _windows(settings: Settings, problem: MakeProblem) -> Iterator[Problem]:
    yield from _twice("windows", [one.name for one in settings.windows], problem)
    known = {"pool": list(settings.pools), "target": [one.name for one in settings.targets]}
    for i, window in enumerate(settings.windows):
        kind, _, name = window.scope.partition(":")
        if name and name not in known[kind]:
            yield problem(("windows", i, "scope"), f"no {kind} {name}; {known_names(name, known[kind])}")


def _twice(block: str, names: list[str], problem: MakeProblem) -> Iterator[Problem]:
    for i, name in enumerate(names):
        if name in names[:i]:
            yield problem((block, i, "name"), f"{name} is the name of {block}[{names.index(name)}] already")
