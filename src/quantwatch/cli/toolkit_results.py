"""Divergences of variants of a model as rows of a table, and as JSON."""

from typing import Any

from quantwatch.cli.tables import number
from quantwatch.flow.as_json import json_number
from quantwatch.flow.divergence import Divergence, Estimate

HEAD = ("mean KL", "interval", "PPL", "ratio", "top-1", "flips")
"""Columns of `row`; KL in nats, flips: share of positions whose most probable token is another."""


def row(one: Divergence) -> tuple[str, ...]:
    """A line of the table of results."""
    top = one.top1_agreement.value
    return (
        number(one.kl_mean.value),
        _ends(one.kl_mean),
        f"{one.perplexity_node:.2f}",
        f"{one.perplexity_ratio.value:.3f}",
        f"{top:.3f}",
        f"{100 * (1 - top):.1f} %",
    )


NARROW_HEAD = tuple(one for one in HEAD if one != "ratio")
"""Columns of `narrow_row`: beside long names and large numbers the ratio has no place in 80 columns."""


def narrow_row(one: Divergence) -> tuple[str, ...]:
    """The same line without the ratio, which the caption lets anybody work out."""
    return tuple(cell for name, cell in zip(HEAD, row(one), strict=True) if name != "ratio")


def caption(one: Divergence) -> str:
    """What the numbers of a table have in common."""
    return (
        f"{one.prompts} draws of {one.distinct_prompts} prompts, {one.positions} positions, k = {one.k}, "
        f"{one.estimator} bound in nats; perplexity of full precision {one.perplexity_baseline:.2f}"
    )


def as_json(one: Divergence) -> dict[str, Any]:
    """The numbers for programs; KL in nats, intervals over prompts."""
    return {
        "estimator": str(one.estimator),
        "k": one.k,
        "prompts": one.prompts,
        "positions": one.positions,
        "kl_mean": _estimate(one.kl_mean),
        "kl_p99": json_number(one.kl_p99.value),
        "kl_median": json_number(one.kl_median),
        "kl_max": json_number(one.kl_max),
        "perplexity_baseline": json_number(one.perplexity_baseline),
        "perplexity": json_number(one.perplexity_node),
        "perplexity_ratio": _estimate(one.perplexity_ratio),
        "top1_agreement": _estimate(one.top1_agreement),
    }


def _ends(one: Estimate) -> str:
    """Three digits an end, so that a row fits 80 columns."""
    return "-" if one.interval is None else f"{one.interval.low:.3g} .. {one.interval.high:.3g}"


def _estimate(one: Estimate) -> dict[str, Any]:
    ends = None if one.interval is None else [json_number(one.interval.low), json_number(one.interval.high)]
    return {"value": json_number(one.value), "interval": ends}
