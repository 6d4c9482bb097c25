"""`quantwatch toolkit growth`: in which layers the error of a quantized model arises."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quantwatch.cli.output import STANDARD_OUTPUT, Terminal, refuse_unwritable, write_json
from quantwatch.cli.toolkit_options import (
    Cache,
    Inject,
    JsonFile,
    Model,
    Seed,
    hearer,
    opened,
    prompt_set,
    refuse_unwritable_folder,
    table,
    write_files,
)
from quantwatch.toolkit.formats import GROUPED, Format, Variant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quantwatch.toolkit.growth import Layer


def command(
    model: Model = "smollm2",
    scheme: Annotated[Format, typer.Option(help="Number format of the decoder's linear layers")] = Format.INT4,
    group: Annotated[int, typer.Option(min=2, help="Columns that share a scale in int4, int6 and w4a8")] = 64,
    prompts: Annotated[
        str | None, typer.Option(help="A shipped task set or a prompts file; calibration prompts if left out")
    ] = None,
    inject: Inject = None,
    json_file: JsonFile = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the curve as PNG and SVG")] = None,
    seed: Seed = 0,
    cache: Cache = None,
) -> None:
    """Compare the residual stream of a quantized model with full precision, layer by layer.

    Mean absolute error, its share of the values' size, and how far the direction of a token's vector has drifted.
    """
    if json_file is not None:
        refuse_unwritable(json_file)
    refuse_unwritable_folder(out)
    variant = Variant(scheme, group if scheme in GROUPED else 0)
    pool = prompt_set(prompts)
    loaded = opened(model, inject=inject, seed=seed, cache=cache, copies=2)
    from quantwatch.toolkit.growth import growth
    from quantwatch.toolkit.quantize_study import quantized
    from quantwatch.toolkit.subject import texts

    read = texts(loaded, pool.prompts)
    found = growth(loaded.model, quantized(loaded.model, variant, {}), read, heard=hearer("reading prompts"))
    if json_file is not None:
        given = {"schema": 1, "model": model, "variant": variant.name, "inject": inject, "seed": seed}
        write_json(given | {"layers": [_as_json(one) for one in found]}, json_file)
    if out is not None:
        from quantwatch.toolkit.pictures import drawn, growth_curve

        curve = drawn(growth_curve(variant.name, found), ("png", "svg"))
        write_files(out, {f"growth.{kind}": content for kind, content in curve.items()})
    _show(variant, found, Terminal(stderr=json_file == STANDARD_OUTPUT, highlight=False))


def _show(variant: Variant, found: "Sequence[Layer]", console: Terminal) -> None:
    rows = [
        (
            str(one.number),
            f"{one.error:.4g}",
            f"{one.size:.4g}",
            f"{100 * one.relative:.2f} %",
            f"{one.drift:.3g}",
            f"{one.added:+.2g}",
        )
        for one in found
    ]
    head = ("layer", "mean |error|", "mean |value|", "share", "drift", "added")
    console.print(table(f"{variant.name}: the residual stream behind each layer", head, rows))
    worst = max(found, key=lambda one: one.added)
    console.print(
        f"Behind the last layer the error is {100 * found[-1].relative:.2f} % of the values; "
        f"layer {worst.number} adds most to the drift.",
        soft_wrap=True,
    )


def _as_json(one: "Layer") -> dict[str, float]:
    return {
        "layer": one.number,
        "error": one.error,
        "size": one.size,
        "relative": one.relative,
        "drift": one.drift,
        "added": one.added,
    }
