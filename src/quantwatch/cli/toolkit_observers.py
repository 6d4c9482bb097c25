"""`quantwatch toolkit observers`: how static activation scales move with the observer and the calibration prompts."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quantwatch.cli.output import STANDARD_OUTPUT, Terminal, refuse_unwritable, write_json
from quantwatch.cli.toolkit_options import (
    Cache,
    Calibration,
    Draw,
    Evaluate,
    Inject,
    JsonFile,
    Model,
    Seed,
    bench,
    opened,
    refuse_unwritable_folder,
    table,
    write_files,
)
from quantwatch.cli.toolkit_results import NARROW_HEAD, as_json, caption, narrow_row
from quantwatch.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quantwatch.toolkit.observer_study import Calibrated

MOST = 128


def command(
    model: Model = "smollm2",
    counts: Annotated[str, typer.Option(help="Numbers of calibration prompts to try")] = "4,16,64,128",
    inject: Inject = None,
    calibration: Calibration = None,
    evaluate: Evaluate = "chat",
    draw: Draw = 24,
    json_file: JsonFile = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the plot as PNG and SVG")] = None,
    seed: Seed = 0,
    cache: Cache = None,
) -> None:
    """Measure W8A8 with static activation scales: least and largest value, least squared error, percentile.

    Each with so many calibration prompts, which are drawn from all shipped task sets but the one that is measured.
    """
    numbers = _counts(counts)
    if json_file is not None:
        refuse_unwritable(json_file)
    refuse_unwritable_folder(out)
    from quantwatch.toolkit.extra import require_toolkit

    require_toolkit()
    from quantwatch.toolkit.observer_study import COPIES, observer_study

    loaded = opened(model, inject=inject, seed=seed, cache=cache, copies=COPIES)
    drawn = {"evaluate": evaluate, "draw": draw, "seed": seed}
    at = bench(loaded, calibration=calibration, evaluate=evaluate, draw=draw, seed=seed, cache=cache, most=max(numbers))
    found = observer_study(at, numbers)
    if json_file is not None:
        told = [_as_json(one) for one in found]
        write_json({"schema": 1, "model": model, "inject": inject, **drawn, "results": told}, json_file)
    if out is not None:
        from quantwatch.toolkit.pictures import drawn as files
        from quantwatch.toolkit.pictures import observer_curves

        curves = files(observer_curves(f"W8A8 with static activations of {model}", _curves(found)), ("png", "svg"))
        write_files(out, {f"observers.{kind}": content for kind, content in curves.items()})
    _show(found, Terminal(stderr=json_file == STANDARD_OUTPUT, highlight=False))


def _as_json(one: "Calibrated") -> dict[str, Any]:
    return {"observer": str(one.observer), "prompts_calibrated": one.prompts, **as_json(one.divergence)}


def _counts(given: str) -> list[int]:
    """Numbers between commas, in ascending order. Raises InputError."""
    try:
        return sorted({int(one) for one in given.split(",")})
    except ValueError:
        raise InputError(f"--counts {given}: numbers between commas are wanted, such as 4,16,64") from None


def _curves(found: "Sequence[Calibrated]") -> dict[str, list[tuple[int, float]]]:
    names = dict.fromkeys(str(one.observer) for one in found)
    return {
        name: [(one.prompts, one.divergence.kl_mean.value) for one in found if str(one.observer) == name]
        for name in names
    }


def _show(found: "Sequence[Calibrated]", console: Terminal) -> None:
    lines = [(f"{one.observer}, {one.prompts}", *narrow_row(one.divergence)) for one in found]
    console.print(table("W8A8 with static activations", ("observer, prompts", *NARROW_HEAD), lines))
    console.print(caption(found[0].divergence), style="dim", soft_wrap=True)
