"""`quantwatch calibrate`: measure healthy nodes and propose limits for the configuration."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Annotated

import typer

from quantwatch.cli.exit_codes import CANNOT_SAY, OK
from quantwatch.cli.gathering import gather
from quantwatch.cli.output import STANDARD_OUTPUT, Terminal, refuse_unwritable, write_json, write_text
from quantwatch.cli.progress import progress
from quantwatch.clock import SystemClock
from quantwatch.errors import InputError

if TYPE_CHECKING:
    from quantwatch.config.schema import Settings
    from quantwatch.flow.calibration import Calibrated
    from quantwatch.flow.calibration_json import Kept
    from quantwatch.flows.calibrate import Calibration
    from quantwatch.flows.plan import Progress


def command(
    config: Annotated[Path, typer.Option(help="The YAML configuration file")],
    target: Annotated[
        list[str] | None, typer.Option(help="A target to calibrate; may be repeated; all if left out")
    ] = None,
    task_set: Annotated[list[str] | None, typer.Option(help="A task set; may be repeated; all if left out")] = None,
    cycles: Annotated[int, typer.Option(min=2, max=200, help="Cycles, each with a fresh draw of prompts")] = 8,
    out: Annotated[
        Path | None, typer.Option(help="Write the proposed limits as YAML, and the evidence as JSON beside them")
    ] = None,
    force: Annotated[bool, typer.Option(help="Overwrite what --out names")] = False,  # noqa: FBT002, a flag
    plot: Annotated[Path | None, typer.Option(help="Draw the distributions as PNG; needs quantwatch[plots]")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write everything as JSON; - for standard output")
    ] = None,
    against: Annotated[Path | None, typer.Option(help="The JSON of an earlier calibration, to show what moved")] = None,
    parts: Annotated[  # noqa: FBT002, a flag
        bool, typer.Option("--parts", help="Propose for parts as well: depth, length, language, protocol tokens, rank")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Seed of the draws; a new one each time if left out")] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder for the baseline's answers; the user's cache if left out")
    ] = None,
) -> None:
    """Measure nodes that you trust, and propose limits. Nothing is adopted: a person copies what they agree with.

    Exit code: 0 a limit for every metric, 2 some or none could be proposed or it was interrupted, 3 usage or
    configuration error, 4 internal error.
    """
    from quantwatch.cli.plots import require_plots, write_plot

    if plot is not None:
        require_plots()
        refuse_unwritable(plot)
    kept = _kept(against) if against is not None else None
    json_file = json_file or (out.with_suffix(".json") if out is not None else None)
    _refuse_overwriting(out, json_file, force=force)
    settings = _settings(config)
    order = Order(
        settings=settings,
        folder=config.parent,
        targets=_chosen(target, [one.name for one in settings.targets], "--target"),
        task_sets=_chosen(task_set, list(settings.task_sets), "--task-set"),
        cycles=cycles,
        seed=seed if seed is not None else SystemRandom().getrandbits(31),
        parts=parts,
        cache=cache,
    )
    whole = _calibrated(order)
    if plot is not None:
        write_plot(whole, plot)
    _tell(whole, _files(order, out, json_file), kept=kept)
    raise typer.Exit(OK if _all_proposed(whole) else CANNOT_SAY)


@dataclass(frozen=True, slots=True)
class Order:
    """What a person asked for, checked against the configuration."""

    settings: "Settings"
    folder: Path
    targets: list[str]
    task_sets: list[str]
    cycles: int
    seed: int
    parts: bool
    cache: Path | None


def _refuse_overwriting(out: Path | None, json_file: Path | None, *, force: bool) -> None:
    """Limits with evidence are not lost by accident; a JSON file that was named is written anew, as everywhere."""
    for path in (out, json_file if out is not None and json_file == out.with_suffix(".json") else None):
        if path is not None and path.exists() and path.is_file() and not force:
            raise InputError(f"{path} is there already; name another file, or give --force")
    for path in (out, json_file):
        if path is not None:
            refuse_unwritable(path)


def _kept(path: Path) -> "Kept":
    from quantwatch.flow.calibration_json import Kept

    try:
        document = json.loads(path.read_bytes())
    except OSError as exc:
        raise InputError(f"--against {path}: cannot be read: {exc.strerror}") from exc
    except ValueError as exc:
        raise InputError(f"--against {path}: it is no JSON") from exc
    try:
        return Kept.of(document)
    except ValueError as exc:
        raise InputError(f"--against {path}: {exc}") from exc


def _settings(config: Path) -> "Settings":
    from quantwatch.config.load import load_settings
    from quantwatch.prompts.load import shipped_sets

    return load_settings(config, shipped=shipped_sets())


def _chosen(wanted: list[str] | None, known: list[str], option: str) -> list[str]:
    """The names given, all where none is. Raises InputError for an unknown one."""
    from difflib import get_close_matches

    for name in wanted or []:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else "."
            raise InputError(f"{option} {name}: not in the configuration{hint} It has: {', '.join(known)}")
    return list(dict.fromkeys(wanted)) if wanted else known


def _calibrated(order: Order) -> "Calibrated":
    """Measure, and judge what was gathered, also after Ctrl-C."""
    from quantwatch.config.limits import Scheme, limits_for
    from quantwatch.flows.calibrated import Manner, calibrated

    with progress() as tell:
        whole, crash = gather(lambda: _connected(order, tell))
    if crash is not None:
        raise crash  # what a fault of our own broke off is no calibration
    shipped = {scheme.value: limits_for(scheme) for scheme in Scheme}
    return calibrated(whole, Manner(SystemClock().now(), order.seed, shipped, parts=order.parts))


@asynccontextmanager
async def _connected(order: Order, tell: "Callable[[Progress], None]") -> "AsyncIterator[Calibration]":
    """Connect everything for one calibration."""
    from quantwatch.flows.calibrate import Calibration, Means, Wanted
    from quantwatch.measure.threads import one_thread
    from quantwatch.prompts.load import shipped_sets
    from quantwatch.wiring import cache_folder, prompt_sets, watchlist
    from quantwatch.wiring.tools import Tools

    one_thread()
    prompts = prompt_sets(order.settings, folder=order.folder, shipped=shipped_sets())
    async with AsyncExitStack() as stack:
        tools = Tools(SystemClock(), Random(order.seed))  # noqa: S311, nothing secret is drawn
        watched = await watchlist(order.settings, prompts, stack, tools)
        means = Means(
            baseline=watched.baseline,
            cache=order.cache or cache_folder(),
            random=tools.random,
            timeout_seconds=order.settings.probe.run_timeout,
            tell=tell,
        )
        targets = [watched.targets[name] for name in order.targets]
        yield Calibration(Wanted(targets, order.task_sets, order.cycles), means)


@dataclass(frozen=True, slots=True)
class Files:
    """Where the result goes. configured: all targets of the configuration with their schemes."""

    out: Path | None
    json_file: Path | None
    configured: dict[str, str]


def _files(order: Order, out: Path | None, json_file: Path | None) -> Files:
    return Files(out, json_file, {one.name: one.scheme.value for one in order.settings.targets})


def _tell(whole: "Calibrated", files: Files, *, kept: "Kept | None") -> None:
    """Write first, show then: standard output gets the YAML, or where that has a file, what a person reads."""
    from quantwatch import __version__
    from quantwatch.cli.calibration_tables import show
    from quantwatch.cli.calibration_yaml import proposal_yaml
    from quantwatch.flow.calibration_json import calibration_json

    text = proposal_yaml(whole, files.configured)
    if files.json_file is not None:
        write_json(calibration_json(whole, version=__version__), files.json_file)
    if files.out is not None:
        write_text(text, files.out)
    console = Terminal(stderr=files.out is None or files.json_file == STANDARD_OUTPUT, highlight=False)
    show(whole, console, against=kept)
    console.print(_how_to_adopt(files), markup=False, soft_wrap=True)
    if files.out is None and files.json_file == STANDARD_OUTPUT:
        console.print(text, markup=False, soft_wrap=True)
    elif files.out is None:
        write_text(text, STANDARD_OUTPUT)


def _how_to_adopt(files: Files) -> str:
    where = str(files.out) if files.out is not None else "the YAML on standard output"
    return (
        f"Nothing is in force yet. Copy what you agree with from {where} into the configuration, then "
        "quantwatch check-config FILE and quantwatch reload --config FILE."
    )


def _all_proposed(whole: "Calibrated") -> bool:
    """Whether everything that was asked for has its limits."""
    every = [bool(one.proposals) and all(p.limit is not None for p in one.proposals) for one in whole.sets]
    return whole.complete and all(every)
