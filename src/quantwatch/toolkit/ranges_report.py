"""Findings about activations as sentences, rows and JSON."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from quantwatch.toolkit import page
from quantwatch.toolkit.ranges import By, Consequence, Finding, Limits, Outlier

SCALES = tuple(f"{what} {by}" for by in By for what in ("S by", "0 or ±1 by"))
HEAD = ("layer, place", "min", "max", "mean", "span", *SCALES)
"""Of the table of sites; scales and shares are those of INT8."""

NARROW_HEAD = ("layer, place", "min", "max", "mean", "span", "S", *By)
"""Of the same table within 80 columns."""

OUTLIER_HEAD = ("layer, place", "channel", "max|x|", "x median", "kurtosis", "over the limit")


def number(value: float) -> str:
    """Four significant digits; a dash for what is not there, a word for what has no end."""
    if math.isnan(value):
        return "-"
    return "endless" if math.isinf(value) else f"{value:.4g}"


def short(value: float) -> str:
    """Three significant digits, without an exponent where five places are enough."""
    return f"{value:.0f}" if 1000 <= value < 99999.5 else f"{value:.3g}"


def percent(share: float) -> str:
    """A share with one decimal."""
    return f"{100 * share:.1f} %"


def narrow_row(one: Finding) -> tuple[str, ...]:
    """A line of the table of sites that fits a terminal; shares in percent."""
    seen = one.range
    shares = [f"{100 * one.of(8, by).small:.1f}" for by in By]
    wide = (f"{seen.least:.3g}", f"{seen.most:.3g}", f"{seen.mean:.1g}", short(seen.span))
    return (one.site.short, *wide, f"{one.of(8, By.TENSOR).scale:.3g}", *shares)


def row(one: Finding) -> tuple[str, ...]:
    """A line of the table of sites."""
    seen = one.range
    cells = [one.site.name, *(number(value) for value in (seen.least, seen.most, seen.mean, seen.span))]
    for by in By:
        made = one.of(8, by)
        cells += [number(made.scale), percent(made.small)]
    return tuple(cells)


def outlier_row(one: Outlier) -> tuple[str, ...]:
    """A line of the table of outlier channels."""
    values = (number(value) for value in (one.absmax, one.ratio, one.kurtosis))
    return (one.site.short, str(one.channel), *values, ", ".join(one.reasons))


def sentences(found: Sequence[Finding], *, tokens: int) -> Iterator[str]:
    """The conclusion: how many outlier channels there are, and what the worst one does."""
    held = [one for one in found if one.outliers]
    channels = sum(len(one.outliers) for one in found)
    yield f"{len(found)} places seen over {tokens} tokens; {channels} outlier channels in {len(held)} of them."
    worst = max(found, key=lambda one: one.of(8, By.TENSOR).small)
    yield consequence_sentence(worst)
    if held:
        wide = max((one.outliers[0] for one in held), key=lambda one: one.ratio)
        yield (
            f"The furthest out is channel {wide.channel} of {wide.site.name}: {number(wide.absmax)}, "
            f"{number(wide.ratio)} times the median channel."
        )


def consequence_sentence(one: Finding) -> str:
    """What a single scale does to a place, in numbers that can be checked by hand."""
    tensor, p99 = one.of(8, By.TENSOR), one.range.p99
    code = round(p99 / tensor.scale) if tensor.scale else 0
    return (
        f"{one.site.name}: max|X| = {number(one.range.absmax)}, so one INT8 scale for the tensor is S = max|X| / 127 = "
        f"{number(tensor.scale)}, and for INT4 max|X| / 7 = {number(one.of(4, By.TENSOR).scale)}. With INT8 "
        f"{percent(tensor.zeros)} of the activations round to 0 and {percent(tensor.small)} to 0 or ±1 "
        f"(the 99th percentile of |x|, {number(p99)}, becomes {code}). A scale for each token leaves "
        f"{percent(one.of(8, By.TOKEN).small)}, one for each channel {percent(one.of(8, By.CHANNEL).small)}."
    )


def as_json(found: Sequence[Finding], limits: Limits) -> dict[str, Any]:
    """Everything, for programs: null where a number does not exist or has no end."""
    return {
        "schema": 1,
        "limits": {"ratio": limits.ratio, "absmax": limits.absmax, "kurtosis": limits.kurtosis},
        "sites": [_site(one) for one in found],
    }


def _site(one: Finding) -> dict[str, Any]:
    seen = one.range
    return {
        "layer": one.site.layer,
        "kind": str(one.site.kind),
        "readers": list(one.site.readers),
        "channels": one.site.statistics.channels,
        "tokens": one.site.statistics.tokens,
        "range": {
            name: _finite(getattr(seen, name))
            for name in ("least", "most", "mean", "absmax", "median_channel", "span", "kurtosis", "p50", "p99", "p999")
        },
        "consequences": [_consequence(made) for made in one.consequences],
        "outliers": [
            {
                "channel": out.channel,
                "absmax": out.absmax,
                "ratio": _finite(out.ratio),
                "kurtosis": _finite(out.kurtosis),
                "reasons": [str(reason) for reason in out.reasons],
            }
            for out in one.outliers
        ],
        "channel_absmax": [round(value, 6) for value in one.site.statistics.absmax.tolist()],
    }


def _consequence(made: Consequence) -> dict[str, Any]:
    return {
        "bits": made.bits,
        "by": str(made.by),
        "scale": made.scale,
        "share_zero": made.zeros,
        "share_zero_or_one": made.small,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def html(title: str, found: Sequence[Finding], *, tokens: int, pictures: Sequence[tuple[str, bytes]]) -> str:
    """The report as one file. pictures: what each shows, and its PNG."""
    parts = [page.paragraph(line) for line in sentences(found, tokens=tokens)]
    for said, png in pictures:
        parts += [page.heading(said), page.picture(png, said)]
    parts += [page.heading("Outlier channels")]
    parts += [page.table(OUTLIER_HEAD, [outlier_row(out) for one in found for out in one.outliers])]
    parts += [page.heading("Layer by layer, INT8"), page.table(HEAD, [row(one) for one in found])]
    return page.page(title, parts)
