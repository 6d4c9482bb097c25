"""`quantwatch compare`: hold nodes against a baseline here and now, without a configuration file."""

import asyncio
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer
from rich.console import Console

from quantwatch.cli.output import refuse_unwritable, write_json
from quantwatch.config.schema import LimitSettings, ProbeSettings, Scheme, limits_for
from quantwatch.config.secrets import secret_ref
from quantwatch.errors import InputError
from quantwatch.flow.prompt import ProbeMode
from quantwatch.net import Endpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quantwatch.flow.report import Report
    from quantwatch.flows.plan import Plan, PlannedSet, Progress

ServerWithModel = tuple[Endpoint, str | None]


def command(
    baseline: Annotated[str, typer.Option(help="URL of the full-precision server")],
    node: Annotated[list[str], typer.Option(help="URL of a node, or NAME=URL; may be repeated")],
    model: Annotated[str | None, typer.Option(help="Model name at all servers; their only model if left out")] = None,
    baseline_model: Annotated[str | None, typer.Option(help="Model name at the baseline, if it differs")] = None,
    task_set: Annotated[
        list[str] | None, typer.Option(help="A shipped task set or a prompts file; may be repeated; all if left out")
    ] = None,
    prompts: Annotated[int, typer.Option(min=2, help="Prompts to draw from each pool, with replacement")] = 24,
    seed: Annotated[int, typer.Option(help="Seed of the draw; the same seed asks the same prompts")] = 0,
    k: Annotated[int, typer.Option(min=1, help="Log-probabilities a position; lowered to the servers' cap")] = 20,
    mode: Annotated[
        ProbeMode | None, typer.Option(help="How to ask; what each prompts file recommends if left out")
    ] = None,
    scheme: Annotated[Scheme, typer.Option(help="Whose starting limits to use")] = Scheme.INT8,
    sequences: Annotated[
        Path | None, typer.Option(help="Score ready id sequences instead: JSON, a list of [ids, prompt_length]")
    ] = None,
    positions: Annotated[
        str, typer.Option(help="continuation, or all: prompt positions count as well")
    ] = "continuation",
    continuation_tokens: Annotated[int, typer.Option(min=1, max=1024, help="Longest continuation")] = 96,
    strict: Annotated[bool, typer.Option(help="Exit with 1 on a warning too")] = False,  # noqa: FBT002, a flag
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the result as JSON; - for standard output")
    ] = None,
    api_key: Annotated[str | None, typer.Option(help="API key of the nodes: env:NAME or file:/path")] = None,
    baseline_api_key: Annotated[str | None, typer.Option(help="API key of the baseline; --api-key if left out")] = None,
    ca_file: Annotated[str | None, typer.Option(help="Certificate authority for https")] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds for one request")] = 120.0,
    patience: Annotated[float, typer.Option(min=0, help="Seconds to wait for a busy node before skipping")] = 30.0,
    max_scored_tokens: Annotated[
        int, typer.Option(min=16, help="Longest sequence to score in one request; it costs the node memory")
    ] = 1024,
    cache: Annotated[
        Path | None, typer.Option(help="Folder for the baseline's answers; the user's cache if left out")
    ] = None,
) -> None:
    """Hold quantized nodes against their full-precision baseline.

    Exit code: 0 no breach, 1 degraded or corrupted (with --strict also a warning), 2 cannot tell, 3 usage or
    configuration error, 4 internal error.
    """
    plan = _plan(
        _sets(task_set, sequences, prompts=prompts, seed=seed, mode=mode),
        scheme,
        k=k,
        seed=seed,
        positions=positions,
        continuation_tokens=continuation_tokens,
    )
    key = _secret(api_key)
    reference = _server(f"baseline={baseline}", baseline_model or model, _secret(baseline_api_key) or key, ca_file)
    nodes = [_server(one, model, key, ca_file) for one in node]
    _refuse_equal_names([endpoint.name for endpoint, _ in nodes])
    probe = ProbeSettings.model_validate(
        {"timeout": f"{timeout}s", "patience": f"{patience}s", "max_scored_tokens": max_scored_tokens}
    )
    if json_file is not None:
        refuse_unwritable(json_file)
    result = _compare(reference, nodes, plan, probe, cache)
    _tell(result, json_file, strict=strict)


def _tell(result: "Report", json_file: Path | None, *, strict: bool) -> None:
    from quantwatch.cli.as_json import report_json
    from quantwatch.cli.exit_codes import exit_code
    from quantwatch.cli.tables import show

    show(result, Console(stderr=str(json_file) == "-", highlight=False))
    if json_file is not None:
        write_json(report_json(result), json_file)
    raise typer.Exit(exit_code(result, strict=strict))


def _compare(
    baseline: ServerWithModel, nodes: list[ServerWithModel], plan: "Plan", probe: ProbeSettings, cache: Path | None
) -> "Report":
    from quantwatch.flows.report import report
    from quantwatch.wiring import cache_folder, comparison

    with _progress() as tell:
        gathered: list[Any] = []

        async def gather() -> None:
            folder = cache or cache_folder()
            async with comparison(baseline, nodes, plan, probe=probe, cache=folder, tell=tell) as run:
                gathered.append(run)
                await run.run()

        try:
            asyncio.run(gather())
        except KeyboardInterrupt:
            if not gathered:
                raise typer.Abort from None
    return report(gathered[0])


@contextmanager
def _progress() -> "Iterator[Callable[[Progress], None]]":
    """Progress on standard error: a bar with the time left for a person, a line now and then for a log."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task("handshake", total=None)
        yield lambda at: bar.update(task, completed=at.done, total=at.total, description=at.doing)


def _line(at: "Progress") -> None:
    print(f"{at.done}/{at.total} {at.doing}", file=sys.stderr, flush=True)  # noqa: T201, progress for a log


def _sets(
    names: list[str] | None, sequences: Path | None, *, prompts: int, seed: int, mode: ProbeMode | None
) -> tuple["PlannedSet", ...]:
    from quantwatch.flows.plan import planned_draw, planned_sequences
    from quantwatch.prompts.load import load_set, shipped_sets
    from quantwatch.prompts.sequences import load_sequences

    if sequences is not None:
        if names:
            raise InputError("--sequences and --task-set exclude each other")
        ready, digest = load_sequences(sequences)
        return (planned_sequences(sequences.stem, digest, ready, mode or ProbeMode.PROMPT_SCORING),)
    shipped = shipped_sets()
    wanted = names or list(shipped)
    pools = [load_set(_prompts_file(name, shipped)) for name in wanted]
    return tuple(planned_draw(pool, size=prompts, seed=seed, mode=mode) for pool in pools)


def _prompts_file(name: str, shipped: dict[str, Path]) -> Path:
    from difflib import get_close_matches

    path = shipped.get(name) or Path(name)
    if path.is_file():
        return path
    close = get_close_matches(name, list(shipped), n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise InputError(f"--task-set {name}: no shipped task set and no file{hint} Shipped: {', '.join(shipped)}")


def _plan(
    sets: tuple["PlannedSet", ...], scheme: Scheme, *, k: int, seed: int, positions: str, continuation_tokens: int
) -> "Plan":
    from quantwatch.flows.plan import Plan
    from quantwatch.measure.compare import Scope

    if positions not in ("continuation", "all"):
        raise InputError(f"--positions {positions}: continuation or all is wanted")
    return Plan(
        sets=sets,
        limits=limits_for(scheme, LimitSettings()),
        k=k,
        seed=seed,
        scope=Scope(positions),
        continuation_tokens=continuation_tokens,
    )


def _server(given: str, model: str | None, api_key: str | None, ca_file: str | None) -> ServerWithModel:
    """An endpoint out of URL or NAME=URL."""
    name, separator, url = given.partition("=")
    if not separator or "://" in name:
        name, url = "", given
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{url}: no usable URL; http://HOST:PORT is wanted")
    if "@" in parts.netloc:
        raise InputError(f"{parts.hostname}: a name or password in a URL ends up in messages; use --api-key")
    return Endpoint(name or parts.netloc, url, api_key=api_key, ca_file=ca_file), model


def _secret(given: str | None) -> str | None:
    if given is None:
        return None
    try:
        return secret_ref(given).resolve()
    except ValueError as exc:
        raise InputError(f"--api-key: {exc}") from exc


def _refuse_equal_names(names: list[str]) -> None:
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise InputError(f"two nodes are called {', '.join(sorted(twice))}; name them: --node NAME=URL")
