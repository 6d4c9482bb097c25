"""`quantwatch toolkit export`: a cured and quantized model as a folder that vLLM loads."""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quantwatch.cli.output import STANDARD_OUTPUT, Terminal, refuse_unwritable, write_json
from quantwatch.cli.toolkit_options import (
    Cache,
    Calibration,
    Draw,
    Inject,
    JsonFile,
    Model,
    Seed,
    bench,
    hearer,
    opened,
    prompt_set,
    refuse_unwritable_folder,
    table,
)
from quantwatch.cli.toolkit_quantize import share
from quantwatch.cli.toolkit_results import HEAD, as_json, caption, row
from quantwatch.cli.toolkit_smooth import strength
from quantwatch.errors import InputError
from quantwatch.toolkit.formats import GROUPED, Format, Variant

if TYPE_CHECKING:
    from quantwatch.flow.divergence import Divergence
    from quantwatch.toolkit.export import Cure, Written
    from quantwatch.toolkit.model import Loaded


class Rest(StrEnum):
    """Types for what is not quantized, as torch calls them."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


NOTES = (
    (Format.W8, set(Rest), "vLLM 0.32 has no kernel for w8 on a CPU and does not start with it there; w8a8 runs"),
    (
        Format.INT4,
        {Rest.FLOAT32},
        "on a CPU vLLM 0.32 fails at the first request for int4 in float32; export with --dtype bfloat16 for one",
    ),
    (
        Format.INT4,
        {Rest.BFLOAT16, Rest.FLOAT16},
        "on a CPU vLLM 0.32 runs int4 with AVX-512, not with AVX2 alone",
    ),
    (Format.W4A8, set(Rest), "vLLM 0.32 runs w4a8 on CPUs, slowly"),
)
"""Told after an export: a node may start and answer /health all the same where a kernel is missing."""


def command(
    out: Annotated[Path, typer.Option(help="New folder for the model")],
    model: Model = "smollm2",
    scheme: Annotated[Format, typer.Option(help="Number format of the decoder's linear layers")] = Format.W8A8,
    group: Annotated[
        int | None, typer.Option(min=2, help="Columns that share a scale in int4 and w4a8; 64 if left out")
    ] = None,
    smooth: Annotated[
        str | None, typer.Option(help="Smooth first: 0 to 1, or auto to search it for each group of linears")
    ] = None,
    deep: Annotated[  # noqa: FBT002, a flag
        bool, typer.Option("--deep", help="Smooth also what o_proj and down_proj read")
    ] = False,
    scaled: Annotated[  # noqa: FBT002, a flag
        bool, typer.Option("--scaled", help="Search channel scales first (AWQ), int4 and w4a8")
    ] = False,
    keep: Annotated[
        str | None, typer.Option(help="Salient channels in 16 bits: no format for it, refused; see --scaled")
    ] = None,
    rest: Annotated[
        Rest, typer.Option("--dtype", help="Type of embeddings, norms, biases and output layer")
    ] = Rest.FLOAT32,
    inject: Inject = None,
    calibration: Calibration = None,
    evaluate: Annotated[
        str | None, typer.Option(help="Task set or prompts file to predict on what compare will measure")
    ] = None,
    draw: Draw = 24,
    tokens: Annotated[int, typer.Option("--continuation-tokens", min=1, help="Longest answer, as in compare")] = 96,
    json_file: JsonFile = None,
    seed: Seed = 0,
    cache: Cache = None,
) -> None:
    """Write a quantized model in compressed-tensors for vLLM, smoothed or scaled before if so wished.

    With --evaluate it also predicts what `quantwatch compare` will measure on a node that serves it: with the same
    task set, draw, seed, k, estimator and positions.
    """
    variant = replace(_variant(scheme, group=group, keep=keep, scaled=scaled), rest=str(rest))
    alpha = None if smooth is None else strength(smooth, option="--smooth")
    if deep and smooth is None:
        raise InputError("--deep is for smoothing; give --smooth as well")
    if json_file is not None:
        refuse_unwritable(json_file)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"--out {out}: is not empty; name a new folder")
    loaded = opened(model, inject=inject, seed=seed, cache=cache, copies=1 if evaluate is None else 2)
    from quantwatch.toolkit.export import Cure, refuse_unexportable

    refuse_unexportable(loaded.model, variant)
    refuse_unwritable_folder(out)
    cures = Cure(smooth is not None, alpha, deep)
    asked = {"calibration": calibration, "draw": draw, "seed": seed, "cache": cache, "tokens": tokens}
    written, predicted = _made(loaded, variant, cures, out=out, evaluate=evaluate, asked=asked)
    if json_file is not None:
        given = {"model": model, "variant": variant.name, "smooth": smooth, "deep": deep, "inject": inject}
        drawn = {"evaluate": evaluate, "draw": draw, "seed": seed, "continuation_tokens": tokens}
        made = {"files": list(written.files), "size": written.size, "linears": written.linears}
        prediction = None if predicted is None else as_json(predicted)
        write_json({"schema": 1, **given, **drawn, **made, "prediction": prediction}, json_file)
    console = Terminal(stderr=json_file == STANDARD_OUTPUT, highlight=False)
    _show(variant, out, written, predicted, console)


def _variant(scheme: Format, *, group: int | None, keep: str | None, scaled: bool) -> Variant:
    """What is to be written. Raises InputError for what the format cannot hold, before any model is loaded."""
    from quantwatch.toolkit.extra import require_toolkit

    if scheme not in GROUPED and (group is not None or scaled):
        raise InputError(f"--group and --scaled are for int4 and w4a8; with {scheme} leave them out")
    require_toolkit()
    from quantwatch.toolkit.compressed import refuse_inexpressible

    width = (group or 64) if scheme in GROUPED else 0
    variant = Variant(scheme, width, 0.0 if keep is None else share(keep), scaled)
    refuse_inexpressible(variant)
    return variant


def _made(
    loaded: "Loaded",
    variant: Variant,
    cures: "Cure",
    *,
    out: Path,
    evaluate: str | None,
    asked: dict[str, Any],
) -> "tuple[Written, Divergence | None]":
    """Cure, write, and predict. What full precision answers is asked before anything changes."""
    from quantwatch.toolkit.export import cure, export
    from quantwatch.toolkit.quantize_study import quantized, served
    from quantwatch.toolkit.score import divergence
    from quantwatch.toolkit.subject import texts

    at = None if evaluate is None else bench(loaded, evaluate=evaluate, **asked)
    seen = texts(loaded, prompt_set(asked["calibration"]).prompts) if at is None else at.calibration
    cure(loaded.model, seen, cures, variant, hearer=hearer)
    try:
        written = export(loaded, variant, out, heard=hearer("writing tensors"))
    except OSError as exc:
        raise InputError(f"--out {out}: cannot be written: {exc.strerror or exc}") from exc
    if at is None:
        return written, None
    plain = replace(variant, scaled=False)  # the model is scaled already
    model = served(quantized(loaded.model, plain, {}), variant.rest)
    return written, divergence(at.asked, model, heard=hearer(f"predicting {variant.name}"))


def _show(variant: Variant, out: Path, written: "Written", predicted: "Divergence | None", console: Terminal) -> None:
    if predicted is not None:
        console.print(table("Predicted for compare", ("format", *HEAD), [(variant.name, *row(predicted))]))
        console.print(caption(predicted), style="dim", soft_wrap=True)
    # vLLM takes a half-precision type for a folder in float32 where it is not told.
    size = f"{written.size / 1e6:.1f} MB in {len(written.files)} files"
    serve = f"vllm serve {out} --dtype {variant.rest}"
    said = [f"{out}: {written.linears} linears in {variant.name}, {size}. Serve it with: {serve}"]
    said += [one for kind, rests, one in NOTES if variant.format is kind and variant.rest in rests]
    for line in said:
        console.print(line, markup=False, soft_wrap=True)
