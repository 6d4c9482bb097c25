"""`quantwatch inspect`: the runs of a configuration, once and now."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quantwatch.cli.exit_codes import CANNOT_SAY, exit_code
from quantwatch.cli.output import STANDARD_OUTPUT, Terminal, refuse_unwritable, write_json
from quantwatch.cli.progress import progress
from quantwatch.cli.tables import show
from quantwatch.clock import SystemClock

if TYPE_CHECKING:
    from quantwatch.config.schema import Settings
    from quantwatch.daemon.once import Once


def command(
    config: Annotated[Path, typer.Option(help="The YAML configuration file")],
    target: Annotated[str | None, typer.Option(help="One target; all if left out")] = None,
    task_set: Annotated[str | None, typer.Option(help="One task set; all if left out")] = None,
    act: Annotated[  # noqa: FBT002, a flag
        bool, typer.Option("--act", help="Record the runs, confirm breaches, and act as the pool's mode allows")
    ] = False,
    strict: Annotated[bool, typer.Option(help="Exit with 1 on a warning too")] = False,  # noqa: FBT002, a flag
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the result as JSON; - for standard output")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder for the baseline's answers; the user's cache if left out")
    ] = None,
) -> None:
    """Run the configured task sets now. Only with --act is anything recorded or done.

    Exit code: 0 no breach, 1 degraded or corrupted (with --strict also a warning), 2 cannot tell, 3 usage or
    configuration error, 4 internal error.
    """
    from quantwatch import log
    from quantwatch.config.load import load_settings
    from quantwatch.daemon.once import Once
    from quantwatch.flow.as_json import report_json
    from quantwatch.flows.report import merged
    from quantwatch.prompts.load import shipped_sets

    settings = load_settings(config, shipped=shipped_sets())
    if json_file is not None:
        refuse_unwritable(json_file)
    if act:  # what is decided and done is told as the daemon tells it
        log.configure(settings.logging.format, settings.logging.level, stream=sys.stderr)
    started_at = SystemClock().now()
    with progress() as tell:
        once = Once(config, settings, target, task_set, cache=cache, tell=tell)
        interrupted = _run(once, act=act)
    if not once.ran:
        Terminal(stderr=True).print("No run came to its end, so there is nothing to tell.", style="magenta")
        raise typer.Exit(CANNOT_SAY)
    report = merged([one.report for one in once.ran], complete=not interrupted)
    if json_file is not None:
        content = report_json(report, plan=_plan(settings, once), started_at=started_at)
        write_json({**content, "targets": _with_loads(content["targets"], once)}, json_file)
    out = Terminal(stderr=json_file == STANDARD_OUTPUT, highlight=False)
    show(report, out)
    for line in _loads_said(once):
        out.print(line, style="dim", markup=False)
    raise typer.Exit(exit_code(report, strict=strict))


def _run(once: "Once", *, act: bool) -> bool:
    """Make the runs; whether they were interrupted. What was found before is kept."""
    try:
        asyncio.run(once.act() if act else once.look())
    except KeyboardInterrupt:
        return True
    return False


def _with_loads(targets: list[dict[str, Any]], once: "Once") -> list[dict[str, Any]]:
    """The targets with the load before and after the latest run of each task set."""
    from quantwatch.flow.as_json import load_json

    runs = {(one.record.target, one.record.task_set): one.record for one in once.ran}

    def loads(target: str, task_set: str) -> dict[str, Any]:
        run = runs[target, task_set]
        return {"load_before": load_json(run.load_before), "load_after": load_json(run.load_after)}

    return [
        {**one, "task_sets": [{**each, **loads(one["target"], each["name"])} for each in one["task_sets"]]}
        for one in targets
    ]


def _loads_said(once: "Once") -> list[str]:
    """One line a run whose target tells how busy it is."""
    from quantwatch.cli.records import load_said

    told = []
    for run in (one.record for one in once.ran):
        both = [load_said(load) for load in (run.load_before, run.load_after) if load is not None]
        if both:
            told.append(f"load of {run.target} on {run.task_set}: {'; then '.join(dict.fromkeys(both))}")
    return told


def _plan(settings: "Settings", once: "Once") -> dict[str, Any]:
    """What the runs have in common; k and seed of each stand with its task set."""
    names = {one.record.task_set for one in once.ran}
    sets = [one for name, one in settings.task_sets.items() if name in names]
    schemes = {one.scheme.value for one in settings.targets if once.target in (None, one.name)}
    return {
        "scheme": schemes.pop() if len(schemes) == 1 else "mixed",
        "positions": "continuation",
        "continuation_tokens": max(one.continuation_tokens for one in sets),
        "one_token_positions": max(one.positions for one in sets),
        "k": max(one.k for one in sets),
        "seed": None,
    }
