"""`quantwatch toolkit smooth`: SmoothQuant on a model, and what it is worth."""

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
    tell,
)
from quantwatch.cli.toolkit_results import NARROW_HEAD, as_json, caption, narrow_row
from quantwatch.errors import InputError

if TYPE_CHECKING:
    from quantwatch.toolkit.smooth_study import SmoothStudy

AUTO = "auto"
SHOWN = 12


def command(
    model: Model = "smollm2",
    alpha: Annotated[
        str, typer.Option(help="How much goes over to the weights, 0 to 1; auto searches it for each group of linears")
    ] = "0.5",
    deep: Annotated[  # noqa: FBT002, a flag
        bool, typer.Option("--deep", help="Smooth also what o_proj and down_proj read, folded into v_proj and up_proj")
    ] = False,
    inject: Inject = None,
    calibration: Calibration = None,
    evaluate: Evaluate = "chat",
    draw: Draw = 24,
    save: Annotated[Path | None, typer.Option(help="New folder for the smoothed model, in float32")] = None,
    json_file: JsonFile = None,
    seed: Seed = 0,
    cache: Cache = None,
) -> None:
    """Smooth a model, which computes the same afterwards, and tell how much nearer INT8 comes to full precision.

    W8A8 with dynamic and with static activations, before and after, on other prompts than it was calibrated with.
    """
    chosen = strength(alpha)
    if json_file is not None:
        refuse_unwritable(json_file)
    if save is not None and save.exists() and any(save.iterdir()):
        raise InputError(f"--save {save}: is not empty; name a new folder")
    refuse_unwritable_folder(save, option="--save")
    from quantwatch.toolkit.extra import require_toolkit

    require_toolkit()
    from quantwatch.toolkit.smooth_study import COPIES, smooth_study

    loaded = opened(model, inject=inject, seed=seed, cache=cache, copies=COPIES)
    at = bench(loaded, calibration=calibration, evaluate=evaluate, draw=draw, seed=seed, cache=cache)
    study = smooth_study(at, alpha=chosen, deep=deep)
    if json_file is not None:
        given = {"model": model, "inject": inject, "alpha": alpha, "deep": deep, "evaluate": evaluate, "seed": seed}
        write_json({"schema": 1, **given, **_as_json(study)}, json_file)
    if save is not None:
        from quantwatch.toolkit.dequantize import save as write_model

        write_model(study.model, loaded.tokenizer, save)
        tell(f"smoothed model written to {save}")
    _show(study, Terminal(stderr=json_file == STANDARD_OUTPUT, highlight=False))


def strength(alpha: str, *, option: str = "--alpha") -> float | None:
    """The number, None for the search. Raises InputError."""
    if alpha == AUTO:
        return None
    try:
        value = float(alpha)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise InputError(f"{option} {alpha}: a number from 0 to 1, or {AUTO}, is wanted")
    return value


def _show(study: "SmoothStudy", console: Terminal) -> None:
    from quantwatch.toolkit.ranges_report import number, percent, short

    worst = sorted(study.drops, key=lambda one: -one.uneven_before)[:SHOWN]
    lines = [
        (
            one.name.removeprefix("model.layers.").replace("self_attn.", "").replace("mlp.", ""),
            f"{one.alpha:g}",
            short(one.before),
            short(one.after),
            percent(one.share),
            short(one.uneven_before),
            short(one.uneven_after),
        )
        for one in worst
    ]
    head = ("layer, first reader", "alpha", "max|X|", "smoothed", "drop", "x median", "smoothed")
    title = f"Largest activations, the most uneven {len(worst)} of {len(study.drops)}"
    console.print(table(title, head, lines))
    found = [(f"{scheme}{after}", one[scheme]) for scheme in study.naive for after, one in _both(study)]
    told = [(name, *narrow_row(one)) for name, one in found]
    console.print(table("Against full precision", ("scheme", *NARROW_HEAD), told))
    console.print(caption(found[0][1]), style="dim", soft_wrap=True)
    least = min(study.drops, key=lambda one: one.share)
    shrinks = f"{percent(study.mean_drop)} in the mean; least by {percent(least.share)}"
    console.print(f"One scale for the tensor shrinks by {shrinks}.", soft_wrap=True)
    for scheme, naive in study.naive.items():
        ratio = naive.kl_mean.value / max(study.cured[scheme].kl_mean.value, 1e-12)
        console.print(f"{scheme}: naive has {number(ratio)} times the mean KL of the smoothed one.", soft_wrap=True)


def _both(study: "SmoothStudy") -> "list[tuple[str, Any]]":
    return [("", study.naive), (", smoothed", study.cured)]


def _as_json(study: "SmoothStudy") -> dict[str, Any]:
    return {
        "mean_drop": study.mean_drop,
        "groups": [
            {"name": one.name, "alpha": one.alpha, "before": one.before, "after": one.after, "drop": one.share}
            for one in study.drops
        ],
        "results": {
            str(scheme): {"naive": as_json(study.naive[scheme]), "smoothed": as_json(study.cured[scheme])}
            for scheme in study.naive
        },
    }
