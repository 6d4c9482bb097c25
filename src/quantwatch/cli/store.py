"""`quantwatch store`: back the store up, check it, save what can be read of a damaged one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from quantwatch.cli.exit_codes import BREACH
from quantwatch.cli.output import STANDARD_OUTPUT, Terminal, write_json
from quantwatch.errors import InputError

if TYPE_CHECKING:
    from quantwatch.flow.tokens import PromptsShown
    from quantwatch.record.care import Recovered

app = typer.Typer(help="The store of runs and decisions: back up, check, recover.", no_args_is_help=True)

ConfigOption = Annotated[Path | None, typer.Option("--config", help="The configuration that names the store")]
StoreOption = Annotated[
    Path | None, typer.Option("--store", help="The store itself; the default place if neither is given")
]
JsonOption = Annotated[Path | None, typer.Option("--json", help="Write JSON; - for standard output")]


def store_path(config: Path | None, store: Path | None) -> Path:
    """Where the store lies: as given, as configured, or the default. Raises InputError."""
    return store_and_shown(config, store)[0]


def store_and_shown(config: Path | None, store: Path | None) -> tuple[Path, "PromptsShown"]:
    """Where the store lies, and how much of prompts may be shown: ids where no configuration says. Raises InputError.

    A relative path in a configuration starts at the folder of the file, as those of prompts files do.
    """
    from quantwatch.config.load import load_settings
    from quantwatch.config.schema import ExposeSettings, StoreSettings
    from quantwatch.prompts.load import shipped_sets

    if config is not None and store is not None:
        raise InputError("--config and --store exclude each other")
    if config is None:
        return store or Path(StoreSettings().path), ExposeSettings().prompts
    settings = load_settings(config, shipped=shipped_sets())
    return config.parent / settings.store.path, settings.expose.prompts


def console(json_file: Path | None) -> Console:
    """Where a command speaks to people: not where its JSON goes."""
    return Terminal(stderr=json_file == STANDARD_OUTPUT, highlight=False, soft_wrap=True)


@app.command("backup")
def backup(
    to: Annotated[Path, typer.Argument(help="A new file, or a folder for a file with the time in its name")],
    config: ConfigOption = None,
    store: StoreOption = None,
    json_file: JsonOption = None,
) -> None:
    """Copy the store, also while a daemon writes to it. The copy is complete or not there; nothing is replaced."""
    from quantwatch.clock import SystemClock
    from quantwatch.record.care import backup as copied

    path = store_path(config, store)
    place = copied(path, to, at=SystemClock().now())
    if json_file is not None:
        write_json({"schema": 1, "store": str(path), "backup": str(place), "bytes": place.stat().st_size}, json_file)
    console(json_file).print(f"{path} is backed up to {place} ({place.stat().st_size:,} bytes)", markup=False)


@app.command("check")
def check(config: ConfigOption = None, store: StoreOption = None, json_file: JsonOption = None) -> None:
    """Look for damage and for records that contradict each other. Exit code 1 when there are faults."""
    from quantwatch.clock import SystemClock
    from quantwatch.record.care import check as faults_of
    from quantwatch.record.care import moved_aside

    path, out = store_path(config, store), console(json_file)
    faults = faults_of(path, now=SystemClock().now())
    aside = [str(one) for one in moved_aside(path)]
    if json_file is not None:
        write_json({"schema": 1, "store": str(path), "faults": faults, "moved_aside": aside}, json_file)
    for fault in faults:
        out.print(f"{path}: {fault}", style="red", markup=False)
    for one in aside:
        out.print(
            f"{one}: a damaged store that was moved aside; `quantwatch store recover --from` reads it", markup=False
        )
    if faults:
        raise typer.Exit(BREACH)
    out.print(f"{path} is sound", markup=False)


@app.command("recover")
def recover(
    config: ConfigOption = None,
    store: StoreOption = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="A damaged store that was moved aside; its rows are added")
    ] = None,
    json_file: JsonOption = None,
) -> None:
    """Save what can be read of a damaged store into a new one; the damaged file is kept. The daemon must be stopped."""
    from quantwatch.clock import SystemClock
    from quantwatch.record.care import moved_aside
    from quantwatch.record.care import recover as recovered

    path, out = store_path(config, store), console(json_file)
    found = recovered(path, clock=SystemClock(), source=source)
    if json_file is not None:
        write_json(_recovered_json(path, found), json_file)
    if found is None:
        out.print(f"{path} is sound; nothing was changed", markup=False)
        for one in moved_aside(path):
            out.print(f"{one} was moved aside earlier; add its rows with --from", markup=False)
        return
    _tell(path, found, out)


def _recovered_json(path: Path, found: "Recovered | None") -> dict[str, Any]:
    if found is None:
        return {"schema": 1, "store": str(path), "sound": True}
    counts = {
        table: {"saved": one.saved, "there": one.there, "refused": one.refused, "complete": one.complete}
        for table, one in found.counts.items()
    }
    whole = {"schema": 1, "store": str(path), "sound": False, "source": str(found.source), "damage": found.damage}
    return {**whole, "tables": counts}


def _tell(path: Path, found: "Recovered", out: Console) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    out.print(f"{found.source} is kept as it was: {found.damage}", markup=False)
    table = Table("table", "saved", "there already", "refused", "read", box=SIMPLE_HEAD, pad_edge=False)
    for column in table.columns[1:4]:
        column.justify = "right"
    for name, one in found.counts.items():
        whole = "whole" if one.complete else "[red]in parts[/red]"
        table.add_row(name, f"{one.saved:,}", f"{one.there:,}", f"{one.refused:,}", whole)
    out.print(table)
    lost = any(not one.complete or one.refused for one in found.counts.values())
    end = "some rows are lost" if lost else "no row is lost"
    out.print(f"{path} holds what could be read; {end}. Check the routing of each target.", markup=False)
