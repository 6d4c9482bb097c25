"""`quantwatch history`, `show` and `diff`: what the store knows, also while a daemon writes to it."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from quantwatch.cli.output import write_json
from quantwatch.cli.store import ConfigOption, JsonOption, StoreOption, console, store_and_shown, store_path

if TYPE_CHECKING:
    from quantwatch.flow.tokens import PromptsShown

PIPE_COLUMNS = 200


def history(
    config: ConfigOption = None,
    store: StoreOption = None,
    target: Annotated[str | None, typer.Option(help="Of this target only")] = None,
    task_set: Annotated[str | None, typer.Option(help="Of this task set only")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many, the newest first")] = 20,
    decisions: Annotated[bool, typer.Option("--decisions", help="Decisions instead of runs")] = False,  # noqa: FBT002, a flag
    changes: Annotated[  # noqa: FBT002, a flag
        bool,
        typer.Option("--changes", help="Changes of quality, routing, pools, people's words and forgiven isolations"),
    ] = False,
    json_file: JsonOption = None,
) -> None:
    """List runs, decisions or changes of state, newest first. Times are UTC."""
    from quantwatch.cli.records import changes_table, decisions_table, runs_table, shown_end
    from quantwatch.record.archive import Archive
    from quantwatch.record.as_json import changes_json, decision_json

    out = console(json_file)
    out.width = _room(out)
    with Archive.open(store_path(config, store)) as archive:
        if changes:
            found = archive.timeline(target=target, limit=limit)
            table, content = changes_table(found, out.width), {"changes": changes_json(found)}
        elif decisions:
            made = archive.decisions(target=target, task_set=task_set, limit=limit)
            table, content = decisions_table(made, out.width), {"decisions": [decision_json(one) for one in made]}
        else:
            runs = archive.history(target=target, task_set=task_set, limit=limit)
            table, content = runs_table(runs, out.width), {"runs": [dict(one.document) for one in runs]}
    if json_file is not None:
        write_json({"schema": 1, **content}, json_file)
        return
    out.print(table, soft_wrap=False)
    out.print(shown_end(table.row_count, limit), markup=False)


def _room(out: Console) -> int:
    """Columns to print on. A pipe has no width of its own, and nobody wants to grep in folded names."""
    narrow = out.is_terminal or "COLUMNS" in os.environ
    return out.width if narrow else max(out.width, PIPE_COLUMNS)


def show(
    wanted: Annotated[str, typer.Argument(metavar="ID", help="A run or decision; beginning or end of its id will do")],
    config: ConfigOption = None,
    store: StoreOption = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="The tokens behind a run")] = False,  # noqa: FBT002, a flag
    prompt: Annotated[str | None, typer.Option(help="The tokens of this prompt; the worst one if left out")] = None,
    json_file: JsonOption = None,
) -> None:
    """Show everything about one run or decision, or the tokens behind a run."""
    from quantwatch.cli.records import show_decision, show_run
    from quantwatch.record.archive import Archive
    from quantwatch.record.as_json import changes_json, decision_json
    from quantwatch.record.documents import StoredRun

    if tokens or prompt is not None:
        _tokens(wanted, store_and_shown(config, store), prompt=prompt, json_file=json_file)
        return
    out = console(json_file)
    with Archive.open(store_path(config, store)) as archive:
        found = archive.find(wanted)
        changes = archive.changes(found.id) if isinstance(found, StoredRun) else list(found.transitions)
        based = archive.decisions_on(found.id) if isinstance(found, StoredRun) else []
    if json_file is not None:
        content = (
            {"run": dict(found.document), "decisions": [decision_json(one) for one in based]}
            if isinstance(found, StoredRun)
            else {"decision": decision_json(found)}
        )
        write_json({"schema": 1, **content, "transitions": changes_json(changes)}, json_file)
    elif isinstance(found, StoredRun):
        show_run(found, out, changes=changes, based=based)
    else:
        show_decision(found, out)


def _tokens(wanted: str, where: "tuple[Path, PromptsShown]", *, prompt: str | None, json_file: Path | None) -> None:
    """Show the tokens of a run. where: the store, and how much of prompts may be shown."""
    from quantwatch.cli.token_view import chosen_prompt, show_tokens
    from quantwatch.flow.tokens_json import tokens_json
    from quantwatch.record.archive import Archive

    path, shown = where
    with Archive.open(path) as archive:
        run = archive.run(wanted)
        seen = archive.tokens(run.id, shown=shown)
    if json_file is None:
        show_tokens(seen, console(json_file), shown=shown, prompt=prompt)
        return
    if seen is not None and prompt is not None:
        seen = replace(seen, prompts=(chosen_prompt(seen, prompt),))
    content = {"run": dict(run.document), "tokens": None if seen is None else tokens_json(seen)}
    write_json({"schema": 1, "prompts_shown": shown.value, **content}, json_file)


def diff(
    before: Annotated[str, typer.Argument(metavar="RUN", help="The earlier run")],
    after: Annotated[str, typer.Argument(metavar="RUN", help="The later run")],
    config: ConfigOption = None,
    store: StoreOption = None,
    json_file: JsonOption = None,
) -> None:
    """Tell what changed between two runs, one factor a line: servers, prompts, measurement, limits, then numbers."""
    from quantwatch.cli.records import show_differences
    from quantwatch.record.archive import Archive
    from quantwatch.record.differences import explained, factors, numbers

    with Archive.open(store_path(config, store)) as archive:
        old, new = archive.run(before), archive.run(after)
    found, values = factors(old.document, new.document), numbers(old.document, new.document)
    if json_file is None:
        show_differences((old, new), console(json_file), found=found, values=values)
        return
    factor_rows = [
        {"place": one.place, "factor": one.factor, "before": one.before, "after": one.after} for one in found
    ]
    number_rows = [
        {"number": one.factor, "before": one.before, "after": one.after, "change": one.change} for one in values
    ]
    content = {"before": old.id, "after": new.id, "only_the_draw": not explained(found)}
    write_json({"schema": 1, **content, "factors": factor_rows, "numbers": number_rows}, json_file)
