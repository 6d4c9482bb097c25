"""Limits out of a healthy quantized node: what it shows, times a margin.

The shipped limits come from models of 7B parameters and more. A small model suffers more under the same scheme, so
its healthy state, measured, is the only fair start. Each metric is turned into a distance from "equal to the baseline"
(KL in nats; |ln perplexity ratio|; 1 - top-1 agreement), and the end of its 95 % interval that lies farther away is
multiplied.
"""

import math

from quantwatch.flow.divergence import Divergence, Estimate

WARN = 2.0
CRITICAL = 4.0
"""Times the far end of the healthy node's interval. A warning does not clear a node that is isolated."""

LEAST_KL = 0.002
LEAST_LOG_RATIO = 0.01
LEAST_DISAGREEMENT = 0.02
"""A node that is hardly distinguishable from its baseline gets limits above the rounding of one prompt."""

LOWEST_AGREEMENT = 0.05
"""A limit under which agreement can still fall."""

Written = dict[str, dict[str, float]]
"""Limits as they stand in a configuration: metric -> warn, critical."""


def limits_from(healthy: Divergence) -> Written:
    """The limits of one task set out of a healthy node's divergence on it, rounded as a person would."""
    kl = max(_ends(healthy.kl_mean)[1], LEAST_KL)
    ratio = max(*(abs(math.log(end)) for end in _ends(healthy.perplexity_ratio)), LEAST_LOG_RATIO)
    disagreement = max(1.0 - _ends(healthy.top1_agreement)[0], LEAST_DISAGREEMENT)
    return {
        "kl_mean": {"warn": _rounded(WARN * kl), "critical": _rounded(CRITICAL * kl)},
        "perplexity_ratio": {
            "warn": _rounded(math.exp(WARN * ratio), 4),
            "critical": _rounded(math.exp(CRITICAL * ratio), 4),
        },
        "top1_agreement": {
            "warn": _rounded(max(1.0 - WARN * disagreement, LOWEST_AGREEMENT)),
            "critical": _rounded(max(1.0 - CRITICAL * disagreement, LOWEST_AGREEMENT)),
        },
    }


def _ends(estimate: Estimate) -> tuple[float, float]:
    """Both ends of the interval; the value twice where there is none."""
    if estimate.interval is None:
        return estimate.value, estimate.value
    return estimate.interval.low, estimate.interval.high


def _rounded(value: float, digits: int = 3) -> float:
    return float(f"{value:.{digits}g}")
