"""`quantwatch prompts`: look at task sets and check new ones."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from quantwatch.cli.exit_codes import USAGE

app = typer.Typer(help="Golden prompts: list the shipped task sets, check a file of your own.", no_args_is_help=True)


@app.command("list")
def list_sets() -> None:
    """List the task sets that come with this installation."""
    from quantwatch.prompts.load import load_set, shipped_folder, shipped_sets

    console, table = Console(highlight=False), Table("task set", "prompts", "languages", "mode", "digest")
    for column in (table.columns[0], table.columns[3], table.columns[4]):
        column.no_wrap = True
    for name, path in shipped_sets().items():
        pool = load_set(path)
        languages = ", ".join(sorted({prompt.language for prompt in pool.prompts}))
        table.add_row(name, str(len(pool.prompts)), languages, pool.mode, pool.digest[:12])
    console.print(table)
    console.print(f"in {shipped_folder()}", markup=False, soft_wrap=True)


@app.command("check")
def check(files: Annotated[list[Path], typer.Argument(help="Golden prompts files")]) -> None:
    """Check files: schema, duplicates, near-duplicates, templates, length buckets. Exit code 3 for faults."""
    from quantwatch.prompts.lint import faults
    from quantwatch.prompts.load import load_set

    console, wrong = Console(soft_wrap=True, highlight=False), False
    for path in files:
        pool = load_set(path)
        found = faults(pool)
        wrong = wrong or bool(found)
        for fault in found:
            console.print(f"{path}: {fault}", markup=False)
        if not found:
            console.print(f"{path}: {len(pool.prompts)} prompts, digest {pool.digest[:12]}, fine", markup=False)
    if wrong:
        raise typer.Exit(USAGE)
