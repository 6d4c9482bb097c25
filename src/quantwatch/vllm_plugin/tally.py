"""Counts rows of logits on the device where they are: one pass over the vocabulary a step, and no wait for it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from quantwatch.vllm_plugin.counts import Counts


@dataclass(frozen=True, slots=True)
class Bounds:
    """When a row runs away: from `absolute` on, or from `growth` times the usual magnitude on, but never below `floor`.

    Healthy logits are tens. A user's logit_bias adds up to 100 to some, which `floor` leaves room for.
    """

    absolute: float = 1000.0
    growth: float = 8.0
    floor: float = 250.0


WARM = 8
"""Steps before anything counts as usual."""

MEMORY = 64
"""Steps over which the usual magnitude is a running mean."""

BROKEN, RUNAWAY, MAGNITUDE = range(3)
"""Places in what is held on the device."""


class Tally:
    """Counts on the logits' device. counts() is what had reached the host: on an accelerator a step or so late.

    Only the largest logit of each row is looked at, in one fast pass: where the model's state grows, it grows too.
    A sampler sees logits in which some tokens are ruled out with negative infinity, so that alone is no fault.
    """

    def __init__(self, bounds: Bounds | None = None) -> None:
        self._bounds = bounds or Bounds()
        self._rows = self._steps = 0
        self._usual = 0.0
        self._held: Tensor | None = None
        self._host = torch.zeros(3, dtype=torch.float64)

    @torch.no_grad()
    def look(self, logits: Tensor) -> None:
        """Take a step in. logits: (rows, vocabulary), which stay as they are."""
        if not logits.numel():
            return
        held, limit = self._state(logits.device), self._limit()
        most = logits.amax(-1)  # NaN where there is any, and -inf where nothing else is left
        finite = most.isfinite()
        size = torch.where(finite, most.abs(), 0.0)
        held[BROKEN : RUNAWAY + 1] += torch.stack([finite.logical_not().sum(), (size >= limit).sum()])
        held[MAGNITUDE] = size.amax()
        self._host.copy_(held, non_blocking=True)
        self._rows += len(logits)
        self._learn(float(self._host[MAGNITUDE]), limit)

    def counts(self) -> Counts:
        """What has been counted."""
        broken, runaway, magnitude = self._host.tolist()
        return Counts(self._rows, broken, runaway, magnitude)

    def _limit(self) -> float:
        bounds = self._bounds
        if self._steps < WARM:
            return bounds.absolute
        return min(bounds.absolute, max(bounds.floor, bounds.growth * self._usual))

    def _learn(self, magnitude: float, limit: float) -> None:
        """Move the usual magnitude; steps that ran away, or in which nothing was finite, do not."""
        if 0.0 < magnitude < limit:
            self._steps += 1
            self._usual += (magnitude - self._usual) / min(self._steps, MEMORY)

    def _state(self, device: torch.device) -> Tensor:
        if self._held is None or self._held.device != device:
            self._held = self._host.to(device, copy=True)
            if device.type == "cuda":
                self._host = self._host.pin_memory()  # only then does copying not wait for the device
        return self._held
