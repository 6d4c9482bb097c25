"""Log-probabilities at a position: the k highest, the token's own, and its rank."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Row:
    """One position. ids and logprobs: the own token first, then the k highest from the top, in nats.

    rank: how many tokens are at least as likely as the own one, itself included, as vLLM counts. The own token occurs
    twice where it is among the k highest.
    """

    ids: list[int]
    logprobs: list[float]
    rank: int

    def ranks(self) -> list[int]:
        """The rank of each entry."""
        return [self.rank, *range(1, len(self.ids))]


BLOCK = 16
"""Positions that are looked at together, so few that their numbers stay in the processor's cache."""


@torch.inference_mode()
def rows_of(logits: Tensor, own: list[int], *, k: int) -> list[Row]:
    """Rows of raw log-softmax values, whatever the temperature. logits: (positions, vocabulary) float32."""
    ids = torch.tensor(own).unsqueeze(1)
    blocks = [slice(start, start + BLOCK) for start in range(0, len(own), BLOCK)]
    return [row for one in blocks for row in _rows(logits[one].log_softmax(-1), ids[one], k=k)]


@torch.inference_mode()
def named_row(logits: Tensor, own: int, named: Sequence[int]) -> Row:
    """The row of one position that lists these tokens in place of the k highest. logits: (vocabulary,) float32."""
    logprobs = logits.log_softmax(-1)
    ids = [own, *named]
    values = logprobs[torch.tensor(ids)]
    return Row(ids, values.tolist(), int((logprobs >= values[0]).sum()))


def _rows(logprobs: Tensor, own: Tensor, *, k: int) -> list[Row]:
    """Rows of (positions, vocabulary) log-probabilities; own: (positions, 1) ids."""
    values = logprobs.gather(1, own)
    ranks = (logprobs >= values).sum(1, dtype=torch.int32).tolist()
    top = logprobs.topk(k, dim=-1)
    ids = torch.cat([own, top.indices], dim=1).tolist()
    both = torch.cat([values, top.values], dim=1).tolist()
    return [Row(*one) for one in zip(ids, both, ranks, strict=True)]
