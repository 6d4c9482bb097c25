"""`quantwatch toolkit quantize`: what a number format costs a model, and what a cure wins back."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from quantwatch.cli.output import STANDARD_OUTPUT, Terminal, refuse_unwritable, write_json
from quantwatch.cli.toolkit_options import (
    Cache,
    Calibration,
    Draw,
    Evaluate,
    JsonFile,
    Model,
    Seed,
    bench,
    opened,
    table,
    tell,
)
from quantwatch.cli.toolkit_results import as_json, caption, row
from quantwatch.errors import InputError
from quantwatch.toolkit.formats import GROUPED, Format, Variant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quantwatch.toolkit.quantize_study import Result


def command(
    model: Model = "smollm2",
    scheme: Annotated[Format, typer.Option(help="Number format of the decoder's linear layers")] = Format.INT4,
    group: Annotated[
        int | None, typer.Option(min=2, help="Columns that share a scale in int4, int6 and w4a8; 64 if left out")
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(help="Share of salient input channels kept in 16 bits, int4, int6 and w4a8; 1% if left out"),
    ] = None,
    inject: Annotated[
        float, typer.Option(min=0.0, help="Also measure the model with injected outlier channels; 0 leaves it out")
    ] = 100.0,
    calibration: Calibration = None,
    evaluate: Evaluate = "chat",
    draw: Draw = 24,
    json_file: JsonFile = None,
    seed: Seed = 0,
    cache: Cache = None,
) -> None:
    """Quantize a model and measure it against full precision, with the estimator, k and positions of compare.

    int4, int6 and w4a8: plain rounding in groups, the same with salient channels kept, and with searched channel
    scales. The model is measured as it is, and with injected outlier channels.
    """
    variants = _variants(scheme, group=group, keep=keep)
    if json_file is not None:
        refuse_unwritable(json_file)
    from quantwatch.toolkit.extra import require_toolkit

    require_toolkit()
    from quantwatch.toolkit.quantize_study import COPIES, quantize_study, size

    loaded = opened(model, inject=None, seed=seed, cache=cache, copies=COPIES)
    at = bench(loaded, calibration=calibration, evaluate=evaluate, draw=draw, seed=seed, cache=cache)
    found = quantize_study(at, variants, inject=inject or None, seed=seed, tell=tell)
    full = size(loaded.model, None)
    if json_file is not None:
        given = {"model": model, "inject": inject, "evaluate": evaluate, "draw": draw, "seed": seed}
        write_json({"schema": 1, **given, "size_16_bit": full, "results": [_as_json(one) for one in found]}, json_file)
    _show(found, full, Terminal(stderr=json_file == STANDARD_OUTPUT, highlight=False))


def _variants(scheme: Format, *, group: int | None, keep: str | None) -> "list[Variant]":
    """Plain rounding first, then the cures that there are for the format. Raises InputError."""
    if scheme not in GROUPED:
        if group is not None or keep is not None:
            raise InputError(f"--group and --keep are for int4, int6 and w4a8; with {scheme} leave them out")
        return [Variant(scheme)]
    plain = Variant(scheme, group or 64)
    return [plain, Variant(scheme, plain.group, share(keep or "1%")), Variant(scheme, plain.group, scaled=True)]


def share(given: str) -> float:
    """A share of channels, given as `1%` or `0.01`. Raises InputError."""
    try:
        value = float(given.removesuffix("%")) / (100 if given.endswith("%") else 1)
    except ValueError:
        value = 0.0
    if not 0.0 < value <= 0.5:
        raise InputError(f"--keep {given}: a share over 0 and up to a half is wanted, such as 1% or 0.01")
    return value


def _show(found: "Sequence[Result]", full: int, console: Terminal) -> None:
    for injected in dict.fromkeys(one.injected for one in found):
        rows = [_row(one) for one in found if one.injected is injected]
        title = "With injected outlier channels" if injected else "The model as it is"
        console.print(table(title, HEAD, rows))
    console.print(f"{caption(found[0].divergence)}; in 16 bits {full / 1e6:.1f} MB", style="dim", soft_wrap=True)
    console.print("quality: perplexity of full precision over the variant's; won back: of plain rounding's mean KL")


HEAD = ("format", "mean KL", "PPL", "top-1", "flips", "quality", "won back", "MB")


def _row(one: "Result") -> tuple[str, ...]:
    from quantwatch.toolkit.ranges_report import percent

    kl, _interval, perplexity, _ratio, top, flips = row(one.divergence)
    won = "-" if one.recovered is None else percent(one.recovered)
    return (one.variant.name, kl, perplexity, top, flips, percent(one.kept_quality), won, f"{one.size / 1e6:.1f}")


def _as_json(one: "Result") -> dict[str, Any]:
    return {
        "variant": one.variant.name,
        "format": str(one.variant.format),
        "group": one.variant.group,
        "keep": one.variant.keep,
        "scaled": one.variant.scaled,
        "injected": one.injected,
        "size": one.size,
        "quality": one.kept_quality,
        "recovered": one.recovered,
        **as_json(one.divergence),
    }
