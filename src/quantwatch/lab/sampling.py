"""Choosing the next token as vLLM does: temperature, min-p, top-k, top-p, then a draw by exponential noise."""

from collections.abc import Sequence

import torch
from torch import Tensor

from quantwatch.lab.request import Sampling

GREEDY_BELOW = 1e-5
COOLEST = 0.01
"""vLLM's limits: a temperature below the first one means greedy, and no other counts as less than the second."""


def generator_for(sampling: Sampling) -> torch.Generator:
    """The source of the noise: seeded where the request says so."""
    generator = torch.Generator()
    if sampling.seed is None:
        generator.seed()
    else:
        generator.manual_seed(sampling.seed)
    return generator


def next_token(logits: Tensor, sampling: Sampling, generator: torch.Generator, *, banned: Sequence[int] = ()) -> int:
    """The id of the next token. logits: (vocabulary,) float32; banned: ids that may not come yet.

    Where logits are NaN, the first NaN wins, as it does in vLLM: id 0 when all are.
    """
    if banned:
        logits = logits.clone()
        logits[list(banned)] = -torch.inf
    if sampling.temperature < GREEDY_BELOW:
        return int(logits.argmax())
    kept = _filtered(logits / max(sampling.temperature, COOLEST), sampling)
    noise = torch.empty_like(kept).exponential_(generator=generator)
    return int((kept.softmax(-1) / noise).argmax())  # the exponential race: P(i wins) = p_i


def _filtered(logits: Tensor, sampling: Sampling) -> Tensor:
    """Logits with what the filters leave out at minus infinity."""
    if sampling.min_p > 0:
        probabilities = logits.softmax(-1)
        logits = logits.masked_fill(probabilities < sampling.min_p * probabilities.max(), -torch.inf)
    if 0 < sampling.top_k < len(logits):
        logits = logits.masked_fill(logits < logits.topk(sampling.top_k).values[-1], -torch.inf)
    if sampling.top_p < 1:
        ordered, places = logits.sort(descending=True)
        before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
        logits = logits.masked_fill((before >= sampling.top_p).gather(0, places.argsort()), -torch.inf)
    return logits
