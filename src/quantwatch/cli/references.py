"""`quantwatch references`: list, verify, export, import and prune the baseline's enrolled answers."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from quantwatch.cli.exit_codes import BREACH
from quantwatch.cli.output import STANDARD_OUTPUT, Terminal, write_json
from quantwatch.errors import InputError, StoreError

if TYPE_CHECKING:
    from quantwatch.flows.watched import WatchedSet
    from quantwatch.record.reference_file import Reference
    from quantwatch.record.reference_folder import ReferenceFolder

app = typer.Typer(help="The baseline's enrolled answers: list, verify, export, import, prune.", no_args_is_help=True)

Config = Annotated[Path, typer.Option(help="The YAML configuration file; it names folder and task sets")]
Json = Annotated[Path | None, typer.Option("--json", help="Write JSON; - for standard output")]


@app.command("list")
def list_(config: Config, json_file: Json = None) -> None:
    """Every reference: its baseline, prompts, k, modes, age and size, and whether it fits the configuration now."""
    folder, wanted = _opened(config)
    rows = [_row(path, wanted, counts=True) for path in folder.current()]
    rows += [_row(path, wanted, counts=False) for path in folder.superseded()]
    if json_file is not None:
        write_json({"schema": 1, "folder": str(folder.folder), "references": rows}, json_file)
    out = _console(json_file)
    if not rows:
        out.print(f"{folder.folder} holds no reference; `quantwatch enroll --config {config}` makes them", markup=False)
        return
    _show(rows, out)


@app.command("verify")
def verify(config: Config, json_file: Json = None) -> None:
    """Check digests, shapes and numbers of every reference that counts, and that it fits the configuration.

    Exit code 1 when one does not, or when a configured task set has none.
    """
    folder, wanted = _opened(config)
    rows = [_row(path, wanted, counts=True) for path in folder.current()]
    have = {row["task_set"] for row in rows}
    faults = [f"{row['file']}: {row['state']}" for row in rows if row["state"] not in ("fits", "not configured")]
    faults += [
        f"{name}: no reference; run `quantwatch enroll --config {config}`" for name in wanted if name not in have
    ]
    if json_file is not None:
        write_json({"schema": 1, "folder": str(folder.folder), "references": rows, "faults": faults}, json_file)
    out = _console(json_file)
    for fault in faults:
        out.print(fault, style="red", markup=False)
    if faults:
        raise typer.Exit(BREACH)
    out.print(f"{folder.folder}: {len(rows)} references are sound and fit the configuration", markup=False)


@app.command("export")
def export(
    config: Config,
    name: Annotated[str, typer.Argument(help="The task set whose reference is wanted")],
    to: Annotated[Path, typer.Argument(help="A new file; nothing is replaced")],
) -> None:
    """Copy a reference to a file, checked."""
    from quantwatch.record.reference_file import load, save

    folder, _ = _opened(config)
    path = folder.path(name)
    if not path.is_file():
        known = ", ".join(one.stem for one in folder.current()) or "none"
        raise InputError(f"{name}: there is no such reference in {folder.folder}; there: {known}")
    if to.exists():
        raise InputError(f"{to}: is there already, and nothing is replaced")
    reference = load(path)
    save(to, reference)
    _console(None).print(f"{path} is copied to {to} (sha256 {reference.digest[:12]})", markup=False)


@app.command("import")
def import_(
    config: Config,
    file: Annotated[Path, typer.Argument(help="A reference that was exported or made elsewhere")],
    as_it_is: Annotated[  # noqa: FBT002, a flag
        bool, typer.Option("--as-it-is", help="Take it although it does not fit the configuration; no run can use it")
    ] = False,
) -> None:
    """Take a reference over from a file, checked; the one that counted is kept beside.

    A running daemon uses it from its next run on.
    """
    from quantwatch.record.reference_file import load

    folder, wanted = _opened(config)
    reference = load(file)
    why = _state(reference, wanted)
    if why != "fits" and not as_it_is:
        raise InputError(
            f"{file}: {why}; --as-it-is takes it all the same, and no run can use it before that is changed"
        )
    with folder.writing():
        folder.put(reference)
    _console(None).print(
        f"{file} counts for {reference.name} from now on (sha256 {reference.digest[:12]})", markup=False
    )


@app.command("prune")
def prune(
    config: Config,
    dry_run: Annotated[  # noqa: FBT002, a flag
        bool, typer.Option("--dry-run", help="Only say what would be removed")
    ] = False,
) -> None:
    """Remove superseded references and enrolments that were never finished."""
    folder, _ = _opened(config)
    out = _console(None)
    with folder.writing():  # never under somebody who enrols
        gone = [*folder.superseded(), *folder.half_made()]
        for path in gone:
            if not dry_run:
                folder.remove(path)
            out.print(f"{'would be removed' if dry_run else 'removed'}: {path}", markup=False)
    if not gone:
        out.print("nothing to remove", markup=False)


def _opened(config: Path) -> "tuple[ReferenceFolder, dict[str, WatchedSet]]":
    """The folder of a configuration, and its task sets. Raises InputError."""
    from quantwatch.config.load import load_settings, references_folder
    from quantwatch.prompts.load import shipped_sets
    from quantwatch.record.reference_folder import ReferenceFolder
    from quantwatch.wiring import prompt_sets, sets_of

    shipped = shipped_sets()
    settings = load_settings(config, shipped=shipped)
    prompts = prompt_sets(settings, folder=config.parent, shipped=shipped)
    folder = ReferenceFolder(references_folder(settings, folder=config.parent))
    return folder, sets_of(settings, settings.targets[0], prompts)


def _row(path: Path, wanted: "dict[str, WatchedSet]", *, counts: bool) -> dict[str, Any]:
    """One reference as JSON; state: what speaks against it, `fits` where nothing does."""
    from quantwatch.record.reference_file import load

    name = path.stem if counts else path.stem.rpartition(".")[0]
    row: dict[str, Any] = {"file": str(path), "task_set": name, "counts": counts}
    row["bytes"] = path.stat().st_size
    try:
        reference = load(path)
    except StoreError as exc:
        return {**row, "state": str(exc)}
    who = reference.baseline
    return {
        **row,
        "task_set": reference.name,
        "baseline": {"model": who.model, "url": who.url, "version": who.version, "fingerprint": reference.fingerprint},
        "prompts": len(reference.prompts),
        "k": reference.k,
        "modes": [mode.value for mode in reference.modes],
        "made": reference.made.isoformat(timespec="seconds"),
        "sha256": reference.digest,
        "left_out": {mode.value: dict(said) for mode, said in reference.left_out.items() if said},
        "state": _state(reference, wanted) if counts else "superseded",
    }


def _state(reference: "Reference", wanted: "dict[str, WatchedSet]") -> str:
    from quantwatch.flows.fit import misfit

    if reference.name not in wanted:
        return "not configured"
    return misfit(reference, wanted[reference.name]) or "fits"


def _show(rows: list[dict[str, Any]], out: Console) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table("task set", "baseline", "prompts", "k", "modes", "made (UTC)", "MB", "state", box=SIMPLE_HEAD)
    table.pad_edge = False
    for i in (2, 3, 6):
        table.columns[i].justify = "right"
    for row in rows:
        size = f"{row['bytes'] / 1e6:.2f}"
        if "baseline" not in row:
            table.add_row(row["task_set"], "-", "-", "-", "-", "-", size, row["state"])
            continue
        modes = ", ".join(row["modes"])
        start = (row["task_set"], row["baseline"]["model"], str(row["prompts"]), str(row["k"]), modes)
        table.add_row(*start, row["made"][:16].replace("T", " "), size, row["state"])
    out.print(table, markup=False)


def _console(json_file: Path | None) -> Console:
    """Where a command speaks to people: not where its JSON goes."""
    return Terminal(stderr=json_file == STANDARD_OUTPUT, highlight=False, soft_wrap=True)
