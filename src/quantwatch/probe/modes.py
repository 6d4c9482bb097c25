"""What a server's log-probabilities mean, told from two one-token probes of one prompt.

vLLM's four modes: of logits some are over 0 or their exponentials sum to more than 1; what is processed changes with
the temperature. Both probes are of the same prompt, the second one at WARM.
"""

import math
from collections.abc import Mapping
from enum import StrEnum

from quantwatch.probe.rows import EXCESS, POSITIVE

WARM = 2.0
"""Temperature of the second probe; a processed list has half its spread there."""

SPREAD = 0.5
"""A list whose values lie closer together than this, in nats, says nothing by its spread."""

STEADY = 0.8
"""Spread after over spread before, or its inverse: under this the list has changed. Processed ones give 0.5; in raw
ones only rounding and batching move single values, by less than 0.1 nats."""


class LogprobsMode(StrEnum):
    """vLLM's --logprobs-mode."""

    RAW_LOGPROBS = "raw_logprobs"
    PROCESSED_LOGPROBS = "processed_logprobs"
    RAW_LOGITS = "raw_logits"
    PROCESSED_LOGITS = "processed_logits"


def tell_mode(cold: Mapping[int, float], warm: Mapping[int, float]) -> LogprobsMode:
    """The mode of two lists by token id, greedy and at WARM; values finite."""
    if are_logits(cold):
        return LogprobsMode.PROCESSED_LOGITS if changed(cold, warm) else LogprobsMode.RAW_LOGITS
    return LogprobsMode.PROCESSED_LOGPROBS if changed(cold, warm) else LogprobsMode.RAW_LOGPROBS


def are_logits(row: Mapping[int, float]) -> bool:
    """Whether values cannot be log-probabilities."""
    if max(row.values(), default=0.0) > POSITIVE:
        return True
    return math.fsum(map(math.exp, row.values())) > 1.0 + EXCESS


def changed(cold: Mapping[int, float], warm: Mapping[int, float]) -> bool:
    """Whether two lists differ by more than rounding, on the tokens of both; without any, nothing is known."""
    shared = sorted(cold.keys() & warm.keys())
    if not shared:
        return False
    before, after = _spread([cold[one] for one in shared]), _spread([warm[one] for one in shared])
    if max(before, after) < SPREAD:
        return abs(max(cold[one] for one in shared) - max(warm[one] for one in shared)) > SPREAD
    return min(before, after) < STEADY * max(before, after)


def _spread(values: list[float]) -> float:
    """How far values lie under their highest one, on average."""
    return max(values) - sum(values) / len(values)
