"""Perplexity of both sides on the golden continuation."""

from dataclasses import dataclass

import torch
from torch import Tensor

from quantwatch.measure.listed import Listed


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities of the sequence's own tokens in nats.

    known: (n,) bool, positions that take part. baseline, node: (n,) float64; where not known they must not be read.
    """

    known: Tensor
    baseline: Tensor
    node: Tensor


def token_logprobs(baseline: Listed, node: Listed) -> TokenLogprobs:
    """Take the sequence's own tokens on both sides, erring towards the node.

    Prompt scoring always lists the own token. The one-token modes list it only within the top k: a position that the
    baseline does not list is left out on both sides (which says nothing about the node), and a token that only the node
    misses counts with the node's rank-k value, the most it can have. So the node's perplexity is then at least the
    figure given, never under it.
    """
    known = ~baseline.actual.isnan()
    return TokenLogprobs(known, baseline.actual, torch.where(node.actual.isnan(), node.floor, node.actual))


def perplexity(logprobs: Tensor) -> float:
    """exp(-mean log-probability); NaN for no positions at all."""
    return float(torch.exp(-logprobs.mean()))
