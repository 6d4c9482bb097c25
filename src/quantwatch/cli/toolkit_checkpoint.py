"""`quantwatch toolkit check-checkpoint`: is what lies on disk a whole model with usable numbers?"""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from quantwatch.cli.exit_codes import BREACH, OK
from quantwatch.cli.output import STANDARD_OUTPUT, Terminal, refuse_unwritable, write_json
from quantwatch.cli.toolkit_options import JsonFile, bar

if TYPE_CHECKING:
    from quantwatch.toolkit.checkpoint import Checkpoint, Complaint

SHOWN = 200
COLOUR = {"fault": "bold red", "risk": "yellow"}


def command(
    path: Annotated[Path, typer.Argument(help="A Hugging Face folder, or one .safetensors file")],
    strict: Annotated[bool, typer.Option(help="Exit with 1 on a risk too")] = False,  # noqa: FBT002, a flag
    json_file: JsonFile = None,
) -> None:
    """Check a checkpoint layer by layer: broken numbers, useless scales, codes out of range, missing parts.

    Works with any size of model: no more than a block of one tensor is in memory. Exit code 0 when nothing is broken, 1
    for faults, 3 for what is no checkpoint in safetensors.
    """
    from quantwatch.toolkit.extra import require_toolkit

    require_toolkit(("safetensors", "transformers"))
    if json_file is not None:
        refuse_unwritable(json_file)
    from quantwatch.toolkit.checkpoint import open_checkpoint
    from quantwatch.toolkit.checkpoint_expected import expected_complaints
    from quantwatch.toolkit.checkpoint_values import values_complaints

    checkpoint = open_checkpoint(path)
    with bar("tensors") as heard:
        values = values_complaints(checkpoint, heard=heard)
    found = [*checkpoint.complaints, *expected_complaints(checkpoint), *values]
    found.sort(key=lambda one: (-1 if one.layer is None else one.layer, one.place))
    if json_file is not None:
        write_json(_as_json(checkpoint, found), json_file)
    _show(checkpoint, found, Terminal(stderr=json_file == STANDARD_OUTPUT, highlight=False))
    levels = Counter(str(one.level) for one in found)
    raise typer.Exit(BREACH if levels["fault"] or (strict and levels["risk"]) else OK)


def _show(checkpoint: "Checkpoint", found: "list[Complaint]", console: Terminal) -> None:
    for one in found[:SHOWN]:
        line = Text.assemble((f"{one.level}  ", COLOUR[one.level]), (one.place, "bold"), f": {one.what}")
        console.print(line, soft_wrap=True)
    if len(found) > SHOWN:
        console.print(f"... and {len(found) - SHOWN} more; --json FILE holds all")
    levels = Counter(str(one.level) for one in found)
    files = len({one.file for one in checkpoint.tensors.values()})
    console.print(
        f"{checkpoint.path}: {len(checkpoint.tensors)} tensors in {files} files; {levels['fault']} faults, "
        f"{levels['risk']} risks",
        markup=False,
        soft_wrap=True,
    )


def _as_json(checkpoint: "Checkpoint", found: "list[Complaint]") -> dict[str, Any]:
    return {
        "schema": 1,
        "path": str(checkpoint.path),
        "tensors": len(checkpoint.tensors),
        "faults": sum(one.level == "fault" for one in found),
        "risks": sum(one.level == "risk" for one in found),
        "complaints": [
            {"level": str(one.level), "place": one.place, "layer": one.layer, "what": one.what} for one in found
        ],
    }
