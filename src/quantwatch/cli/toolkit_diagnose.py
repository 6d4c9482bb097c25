"""`quantwatch toolkit diagnose`: which task sets a number format breaks, which layers do it, and which cure helps."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quantwatch.cli.output import STANDARD_OUTPUT, Terminal, refuse_unwritable, write_json, write_text
from quantwatch.cli.toolkit_options import (
    Cache,
    Calibration,
    Inject,
    JsonFile,
    Model,
    Seed,
    bench,
    hearer,
    opened,
    prompt_set,
    table,
    tell,
)
from quantwatch.cli.toolkit_quantize import share
from quantwatch.config.limits import Scheme
from quantwatch.errors import InputError
from quantwatch.toolkit.formats import BITS, GROUPED, Format, Variant

if TYPE_CHECKING:
    from quantwatch.toolkit.diagnosis import Diagnosis, Ward
    from quantwatch.toolkit.model import Loaded

SHORT = {"int8": Format.W8A8, "fp8": Format.FP8}
"""Names that servers give to formats."""

SHOWN = 10
LONG = "long_context"


def command(
    model: Model = "smollm2",
    scheme: Annotated[str, typer.Option(help=f"{', '.join(Format)}; int8 is w8a8, fp8 is fp8-e4m3")] = "int4",
    group: Annotated[
        int | None, typer.Option(min=2, help="Columns that share a scale in int4, int6 and w4a8; 64 if left out")
    ] = None,
    sets: Annotated[
        str | None,
        typer.Option(help=f"Task sets or prompts files between commas; all shipped ones but {LONG} if left out"),
    ] = None,
    limits: Annotated[
        Scheme | None, typer.Option(help="Whose starting limits a task set has to keep; the scheme's if left out")
    ] = None,
    keep: Annotated[str, typer.Option(help="Share of salient channels for the cure that keeps some")] = "1%",
    worst: Annotated[int, typer.Option(min=0, help="Layers to look into, and to keep in full precision as a cure")] = 3,
    inject: Inject = None,
    calibration: Calibration = None,
    draw: Annotated[int, typer.Option(min=2, help="Prompts to draw from each set, with replacement")] = 8,
    tokens: Annotated[int, typer.Option("--continuation-tokens", min=1, help="Longest answer, as in compare")] = 48,
    out: Annotated[Path | None, typer.Option(help="Report as one HTML file that needs nothing else")] = None,
    json_file: JsonFile = None,
    seed: Seed = 0,
    cache: Cache = None,
) -> None:
    """Tell why a number format hurts a model: task sets against their limits, layers one by one, cures side by side.

    Each layer is quantized alone, the rest in full precision, on 8 sequences of the sets that break.
    """
    variant = _variant(scheme, group)
    kept = share(keep)
    for file in (json_file, out):
        if file is not None:
            refuse_unwritable(file)
    from quantwatch.toolkit.extra import require_toolkit

    require_toolkit()
    from quantwatch.toolkit.diagnosis import COPIES, diagnose
    from quantwatch.toolkit.diagnosis_report import as_json, html

    names = _names(sets)
    loaded = opened(model, inject=inject, seed=seed, cache=cache, copies=COPIES)
    asked = {"calibration": calibration, "draw": draw, "seed": seed, "cache": cache, "tokens": tokens}
    found = diagnose(_ward(loaded, names, limits or _limits(variant), asked), variant, keep=kept, most=worst)
    if json_file is not None:
        given = {"model": model, "inject": inject, "draw": draw, "seed": seed, "continuation_tokens": tokens}
        write_json({"schema": 1, **given, "limits": str(limits or _limits(variant)), **as_json(found)}, json_file)
    if out is not None:
        write_text(html(f"{variant.name} of {model}", found), out)
    _show(found, Terminal(stderr=json_file == STANDARD_OUTPUT, highlight=False))


def _variant(scheme: str, group: int | None) -> Variant:
    """Raises InputError for a scheme that there is not, and for groups where it has none."""
    named = SHORT.get(scheme) or next((one for one in Format if one == scheme), None)
    if named is None:
        raise InputError(f"--scheme {scheme}: one of {', '.join([*Format, *SHORT])} is wanted")
    if named not in GROUPED and group is not None:
        raise InputError(f"--group is for int4, int6 and w4a8; with {named} leave it out")
    return Variant(named, (group or 64) if named in GROUPED else 0)


def _limits(variant: Variant) -> Scheme:
    """Starting limits by bits of the weights. INT6 has none of its own, so it is held against those of INT8."""
    if variant.format is Format.FP8:
        return Scheme.FP8
    return Scheme.INT4 if BITS[variant.format] == 4 else Scheme.INT8


def _names(given: str | None) -> list[str]:
    """Task sets in the order they are given, each once. Raises InputError for none, and for one that there is not."""
    from quantwatch.prompts.load import shipped_sets

    named = [one for one in shipped_sets() if one != LONG] if given is None else [*map(str.strip, given.split(","))]
    names = list(dict.fromkeys(one for one in named if one))
    if not names:
        raise InputError(f"--sets {given}: one task set at least is wanted, such as chat,math")
    for name in names:
        prompt_set(name)
    return names


def _ward(loaded: "Loaded", names: list[str], limits: Scheme, asked: dict[str, Any]) -> "Ward":
    from quantwatch.config.limits import limits_for
    from quantwatch.toolkit.diagnosis import Part, Ward

    parts, calibration = [], []
    for name in names:
        tell(f"task set {name}")
        at = bench(loaded, evaluate=name, **asked)
        calibration = list(at.calibration)
        parts.append(Part(prompt_set(name).name, at.asked, limits_for(limits)))
    return Ward(loaded.model, calibration, tuple(parts), hearer)


def _show(found: "Diagnosis", console: Terminal) -> None:
    from quantwatch.toolkit.diagnosis_report import (
        CURE_HEAD,
        LAYER_HEAD,
        PART_HEAD,
        SET_HEAD,
        cure_rows,
        layer_row,
        part_row,
        sentences,
        set_row,
    )

    console.print(table(f"{found.variant.name} by task set", SET_HEAD, [set_row(one) for one in found.plain.sets]))
    shown = found.causes.worst[:SHOWN]
    title = f"Each layer quantized alone, the worst {len(shown)} of {len(found.causes.layers)}"
    console.print(table(title, LAYER_HEAD, [layer_row(found.causes, one) for one in shown]))
    if found.causes.parts:
        inside = [part_row(one) for one in found.causes.parts]
        console.print(table("Inside the worst layers, each group of linears alone", PART_HEAD, inside))
    console.print(table("Cures, over all task sets", CURE_HEAD, cure_rows(found)))
    for line in sentences(found):
        console.print(line, markup=False, soft_wrap=True)
