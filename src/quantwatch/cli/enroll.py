"""`quantwatch enroll`: keep the baseline's answers, so that runs need only ask the nodes."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from quantwatch.cli.exit_codes import BREACH, CANNOT_SAY, OK, USAGE
from quantwatch.cli.output import STANDARD_OUTPUT, Terminal, refuse_unwritable, write_json
from quantwatch.cli.progress import progress
from quantwatch.errors import InputError

if TYPE_CHECKING:
    from quantwatch.config.schema import Settings
    from quantwatch.flows.enroll import Enrolled
    from quantwatch.flows.watched import WatchedSet

STYLE = {"enrolled": "green", "kept": "green", "refused": "bold red", "unfinished": "magenta"}
INTERRUPTED = "Interrupted; what was answered is kept, and the same command goes on from there."


def command(
    config: Annotated[Path, typer.Option(help="The YAML configuration file")],
    task_set: Annotated[
        list[str] | None, typer.Option(help="A configured task set; may be repeated; all if left out")
    ] = None,
    force: Annotated[  # noqa: FBT002, a flag
        bool, typer.Option("--force", help="Enrol again what fits already")
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the result as JSON; - for standard output")
    ] = None,
) -> None:
    """Ask the baseline about every golden prompt once and keep its answers as references.

    What is answered is kept at once: after an interruption the same command goes on. Exit code: 0 every task set has
    its reference, 1 the baseline cannot be trusted with one, 2 not finished, 3 usage or configuration error.
    """
    from quantwatch.config.load import load_settings
    from quantwatch.prompts.load import shipped_sets

    settings = load_settings(config, shipped=shipped_sets())
    if json_file is not None:
        refuse_unwritable(json_file)
    found: list[Enrolled] = []
    interrupted = _enroll(settings, config, _wanted(settings, config, task_set), found, anew=force)
    if json_file is not None:
        write_json({"schema": 1, "complete": not interrupted, "task_sets": [_json(one) for one in found]}, json_file)
    out = Terminal(stderr=json_file == STANDARD_OUTPUT, highlight=False, soft_wrap=True)
    for one in found:
        out.print(_line(one))
    if interrupted:
        out.print(INTERRUPTED, style="magenta")
    raise typer.Exit(_code(found, interrupted=interrupted))


def _wanted(settings: "Settings", config: Path, names: list[str] | None) -> "list[WatchedSet]":
    from quantwatch.prompts.load import shipped_sets
    from quantwatch.wiring import prompt_sets, sets_of

    known = sets_of(settings, settings.targets[0], prompt_sets(settings, folder=config.parent, shipped=shipped_sets()))
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise InputError(f"--task-set {unknown[0]}: not in the configuration; known: {', '.join(sorted(known))}")
    return [one for name, one in known.items() if not names or name in names]


def _enroll(
    settings: "Settings", config: Path, wanted: "list[WatchedSet]", found: "list[Enrolled]", *, anew: bool
) -> bool:
    """Enrol one task set after another; whether it was interrupted. What ended before is in `found`."""
    from quantwatch.daemon.enrolling import enroller

    async def work() -> None:
        async with enroller(settings, folder=config.parent, anew=anew, tell=tell) as one:
            with one.folder.writing():
                for task_set in wanted:
                    found.append(await one.enroll(task_set))

    with progress() as tell:
        try:
            asyncio.run(work())
        except KeyboardInterrupt:
            return True
    return False


def _line(one: "Enrolled") -> Text:
    there = f" ({one.there} prompts were there from an earlier attempt)" if one.there else ""
    return Text.assemble((one.task_set, "bold"), ": ", (one.ending.value, STYLE[one.ending]), f": {one.reason}{there}")


def _json(one: "Enrolled") -> dict[str, Any]:
    whole = one.reference
    content: dict[str, Any] = {
        "task_set": one.task_set,
        "ending": one.ending.value,
        "reason": one.reason,
        "there_already": one.there,
    }
    if whole is None:
        return content
    return {
        **content,
        "prompts": len(whole.prompts),
        "k": whole.k,
        "modes": [mode.value for mode in whole.modes],
        "made": whole.made.isoformat(timespec="seconds"),
        "fingerprint": whole.fingerprint,
        "sha256": whole.digest,
    }


def _code(found: "list[Enrolled]", *, interrupted: bool) -> int:
    endings = {one.ending.value for one in found}
    if "refused" in endings:
        return BREACH
    if any(one.misconfigured for one in found):
        return USAGE
    return CANNOT_SAY if interrupted or "unfinished" in endings else OK
