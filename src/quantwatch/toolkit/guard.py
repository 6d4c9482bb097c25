"""Watches the logits of a model in one's own program: broken rows, and magnitude that runs away before they break."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from quantwatch.errors import QuantwatchError


class Then(StrEnum):
    """What happens to logits that are broken. There is no default: whoever serves them has to choose."""

    RAISE = "raise"
    SANITIZE = "sanitize"


class LogitsBroken(QuantwatchError):
    """Logits that are not finite, or whose magnitude runs away, where the guard was told to raise."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call. least, most, mean: of the finite logits, NaN where none was. broken: rows that are not finite.

    running_away: whether the magnitude passed a limit, the step before the numbers break.
    """

    number: int
    rows: int
    broken: int
    least: float
    most: float
    mean: float
    running_away: bool

    @property
    def magnitude(self) -> float:
        """Largest finite |logit|."""
        return max(abs(self.least), abs(self.most))


@dataclass(frozen=True, slots=True)
class Bounds:
    """When logits run away, and what they are cut to.

    absolute: a magnitude from here on runs away; healthy logits are tens. growth: so many times the median magnitude of
    the remembered steps runs away too, once WARM of them are there. largest: what sanitized logits are cut to.
    """

    absolute: float = 1000.0
    growth: float = 8.0
    largest: float = 100.0


WARM = 8
REMEMBERED = 256


class LogitGuard(nn.Module):
    """Passes logits on and remembers the last steps: counts rows with NaN or infinity, and steps that ran away.

    then: RAISE raises LogitsBroken; SANITIZE passes on a bounded copy: NaN and -inf become -largest, +inf largest, and
    finite ones are cut to both. A row that is broken throughout becomes even, and whatever is drawn from it is made
    up: sanitizing keeps a service up and cures nothing, so the counts are there to be alarmed on. masks: -inf is how a
    processor rules a token out, not a fault, and stays. The caller's tensor is never changed, so that what counts NaN
    elsewhere still sees it.
    """

    def __init__(
        self, then: Then, *, bounds: Bounds | None = None, masks: bool = False, remembered: int = REMEMBERED
    ) -> None:
        super().__init__()
        self.then, self.bounds, self.masks = then, bounds or Bounds(), masks
        self.steps: deque[Step] = deque(maxlen=remembered)
        self.calls = self.rows = self.broken_rows = self.runaway_steps = 0

    @torch.no_grad()
    def forward(self, logits: Tensor) -> Tensor:
        """logits: (..., vocabulary); returns the same, or a sanitized copy. Raises LogitsBroken if so chosen."""
        step = self._step(logits)
        self.steps.append(step)
        self.calls += 1
        self.rows += step.rows
        self.broken_rows += step.broken
        self.runaway_steps += step.running_away
        if not step.broken and not step.running_away:
            return logits
        if self.then is Then.RAISE:
            raise LogitsBroken(self._said(step))
        return self._sanitized(logits)

    def _step(self, logits: Tensor) -> Step:
        rows = logits.detach().reshape(-1, logits.shape[-1])
        finite = rows.isfinite()
        broken = ~(finite | rows.isneginf() if self.masks else finite).all(1)
        if self.masks:
            broken |= ~finite.any(1)  # nothing is left to draw from
        held = rows[finite].double()
        least, most, mean = (float(of(held)) if len(held) else torch.nan for of in (torch.min, torch.max, torch.mean))
        away = len(held) > 0 and max(abs(least), abs(most)) >= self._limit()
        return Step(self.calls, len(rows), int(broken.sum()), least, most, mean, away)

    def _limit(self) -> float:
        """Steps that ran away themselves do not raise it."""
        calm = [one.magnitude for one in self.steps if not one.running_away and one.magnitude > 0]
        if len(calm) < WARM:
            return self.bounds.absolute
        return min(self.bounds.absolute, self.bounds.growth * median(calm))

    def _sanitized(self, logits: Tensor) -> Tensor:
        most = self.bounds.largest
        safe = torch.nan_to_num(logits, nan=-most, posinf=most, neginf=-most).clamp(-most, most)
        return torch.where(logits.isneginf(), logits, safe) if self.masks else safe

    def _said(self, step: Step) -> str:
        if step.broken:
            return f"step {step.number}: {step.broken} of {step.rows} rows of logits hold NaN or infinity"
        return (
            f"step {step.number}: logits reach {step.magnitude:.4g}, over the limit of {self._limit():.4g}; "
            "what follows is usually infinity, then NaN"
        )


def guarded(model: nn.Module, guard: LogitGuard) -> Callable[[], None]:
    """Put a guard behind a causal language model of transformers; returns what takes it off again."""

    def hook(_: nn.Module, _args: tuple[Any, ...], output: Any) -> Any:
        output.logits = guard(output.logits)
        return output

    return model.register_forward_hook(hook).remove
