"""A configuration file -> frozen Settings, or every problem in it at once."""

import difflib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from quantwatch.config.problems import validated
from quantwatch.config.schema import PoolMode, Settings
from quantwatch.config.source import Path_, Source, dotted, read_yaml
from quantwatch.errors import ConfigError, Problem

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


def prompts_file(settings: Settings, name: str, *, folder: Path, shipped: Mapping[str, Path]) -> Path:
    """The golden prompts file of a configured task set. folder: where the configuration file is."""
    given = settings.task_sets[name].prompts
    return folder / given if given is not None else shipped[name]


def _dangling(settings: Settings, source: Source, folder: Path, shipped: Mapping[str, Path]) -> Iterator[Problem]:
    def problem(path: Path_, message: str) -> Problem:
        return Problem(source.file, source.line(path), dotted(path), message)

    yield from _targets(settings, problem)
    yield from _pools(settings, problem)
    for name, task_set in settings.task_sets.items():
        if task_set.prompts is None and name not in shipped:
            message = f"no shipped task set {name}; {_known(name, list(shipped))}; or name a file under prompts"
            yield problem(("task_sets", name), message)
        elif task_set.prompts is not None and not (folder / task_set.prompts).is_file():
            yield problem(("task_sets", name, "prompts"), f"no such prompts file: {folder / task_set.prompts}")


def _targets(settings: Settings, problem: MakeProblem) -> Iterator[Problem]:
    names: dict[str, int] = {}
    urls: dict[tuple[str, str | None], int] = {}
    for i, target in enumerate(settings.targets):
        if target.name in names:
            yield problem(("targets", i, "name"), f"{target.name} is the name of targets[{names[target.name]}] already")
        names.setdefault(target.name, i)
        if target.pool not in settings.pools:
            yield problem(("targets", i, "pool"), f"no pool {target.pool}; {_known(target.pool, list(settings.pools))}")
        url = target.url.rstrip("/")
        if (url, target.model) in urls:
            yield problem(("targets", i, "url"), f"targets[{urls[url, target.model]}] has this URL and model already")
        urls.setdefault((url, target.model), i)
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
            yield problem(path, f"no fallback {pool.fallback}; {_known(pool.fallback, others)}")
        if pool.fallback is None and pool.mode in ACTING and list(pools.values()).count(name) == 1:
            yield problem(
                ("pools", name), "a pool of one that may act needs a fallback, or it can never isolate its node"
            )


def _known(found: str, allowed: list[str]) -> str:
    close = difflib.get_close_matches(found, allowed, n=1)
    return (f"did you mean {close[0]}? " if close else "") + f"known: {', '.join(sorted(allowed))}"
