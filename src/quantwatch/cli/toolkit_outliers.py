"""`quantwatch toolkit outliers`: which channels are far larger than the rest, and what that does to the rest."""

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
    bar,
    opened,
    prompt_set,
    refuse_unwritable_folder,
    table,
    write_files,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quantwatch.toolkit.ranges import Finding
    from quantwatch.toolkit.survey import Site

SHOWN = 20


def command(
    model: Model = "smollm2",
    prompts: Annotated[
        str | None,
        typer.Option(help="A shipped task set or a prompts file; calibration prompts if left out"),
    ] = None,
    inject: Inject = None,
    ratio: Annotated[float, typer.Option(min=1.0, help="Outlier from this multiple of the median channel on")] = 20.0,
    limit: Annotated[float, typer.Option(min=0.0, help="Outlier from this absolute size on")] = 100.0,
    kurtosis: Annotated[
        float, typer.Option(min=3.0, help="Outlier from this kurtosis on, if over 5 times the median channel too")
    ] = 100.0,
    every: Annotated[bool, typer.Option("--all", help="Print every place of every layer, not the worst alone")] = False,  # noqa: FBT002, a flag
    json_file: JsonFile = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for report.html, and heat map and histograms as PNG and SVG")
    ] = None,
    seed: Seed = 0,
    cache: Cache = None,
) -> None:
    """Find outlier channels of activations, keys and values, and what their scales round away.

    The model reads every prompt once; memory does not grow with their number.
    """
    if json_file is not None:
        refuse_unwritable(json_file)
    refuse_unwritable_folder(out)
    pool = prompt_set(prompts)
    loaded = opened(model, inject=inject, seed=seed, cache=cache)
    from quantwatch.toolkit.ranges import Limits, findings
    from quantwatch.toolkit.ranges_report import as_json
    from quantwatch.toolkit.subject import texts
    from quantwatch.toolkit.survey import survey

    limits = Limits(ratio=ratio, absmax=limit, kurtosis=kurtosis)
    with bar("reading prompts") as heard:
        sites = survey(loaded.model, texts(loaded, pool.prompts), heard=heard)
    found = findings(sites, limits)
    if json_file is not None:
        given = {"model": model, "prompts": pool.digest, "inject": inject, "seed": seed}
        write_json(given | as_json(found, limits), json_file)
    if out is not None:
        write_files(out, _files(f"Activations of {model}", sites, found))
    _show(found, Terminal(stderr=json_file == STANDARD_OUTPUT, highlight=False), every=every)


def _files(title: str, sites: "Sequence[Site]", found: "Sequence[Finding]") -> dict[str, bytes]:
    from quantwatch.toolkit.pictures import drawn, heat_map, histograms
    from quantwatch.toolkit.ranges import heat, spectrum
    from quantwatch.toolkit.ranges_report import html

    heated = drawn(heat_map(heat(sites)), ("png", "svg"))
    counted = drawn(histograms(spectrum(sites)), ("png", "svg"))
    shown = [("max|x| of every channel in every layer", heated["png"]), ("How large |x| is", counted["png"])]
    report = html(title, found, tokens=sites[0].statistics.tokens, pictures=shown)
    return {
        "report.html": report.encode(),
        **{f"heat_map.{kind}": content for kind, content in heated.items()},
        **{f"histograms.{kind}": content for kind, content in counted.items()},
    }


def _show(found: "Sequence[Finding]", console: Terminal, *, every: bool) -> None:
    from quantwatch.toolkit.ranges import By
    from quantwatch.toolkit.ranges_report import NARROW_HEAD, OUTLIER_HEAD, narrow_row, outlier_row, sentences

    outliers = sorted((out for one in found for out in one.outliers), key=lambda out: -out.ratio)
    kept = outliers if every else outliers[:SHOWN]
    if kept:
        title = f"Outlier channels, {len(kept)} of {len(outliers)}"
        console.print(table(title, OUTLIER_HEAD, [outlier_row(out) for out in kept]))
    worst = sorted(found, key=lambda one: -one.of(8, By.TENSOR).small)[:SHOWN]
    which = f"all {len(found)}" if every else f"the worst {len(worst)} of {len(found)}"
    title = f"INT8 step S, and % at 0 or ±1 by what shares a scale; {which}"
    console.print(table(title, NARROW_HEAD, [narrow_row(one) for one in (found if every else worst)]))
    for line in sentences(found, tokens=found[0].site.statistics.tokens):
        console.print(line, markup=False, soft_wrap=True)
