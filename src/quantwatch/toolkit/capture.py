"""Calibration: what the linear layers of a model get to see, watched through hooks while it reads prompts."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from quantwatch.errors import InputError
from quantwatch.flow.prompt import Prompt
from quantwatch.toolkit.families import Group, groups
from quantwatch.toolkit.model import hidden_states

BINS = 2048
"""Bins of a histogram: PyTorch's own HistogramObserver takes as many."""

MAX_TOKENS = 512
"""Where a calibration prompt is cut."""


@dataclass(slots=True)
class Histogram:
    """How often |x| was how large, over a range that grows: twice as wide means that pairs of bins are merged.

    counts: (BINS,) float64, bin i covers i width to (i + 1) width. limit: upper end of the last bin; 0 before any.
    """

    counts: Tensor = field(default_factory=lambda: torch.zeros(BINS, dtype=torch.float64))
    limit: float = 0.0

    def add(self, sizes: Tensor) -> None:
        """Count sizes, a float tensor of any shape without negatives. Merging loses no count."""
        top = float(sizes.max()) if sizes.numel() else 0.0
        if self.limit == 0.0:
            self.limit = top
        while self.limit and top > self.limit:
            self.counts = torch.cat([self.counts.view(-1, 2).sum(1), torch.zeros(BINS // 2, dtype=torch.float64)])
            self.limit *= 2
        if self.limit == 0.0:
            self.counts[0] += sizes.numel()
            return
        self.counts += torch.histc(sizes.float(), bins=BINS, min=0.0, max=self.limit).double()

    def centers(self) -> Tensor:
        """Middle of every bin: (BINS,) float64."""
        return (torch.arange(BINS, dtype=torch.float64) + 0.5) * (self.limit / BINS)


@dataclass(slots=True)
class Inputs:
    """What one group of linears has read.

    absmax: (columns,) largest |x| of each channel. histogram: of |x| over all channels.
    """

    absmax: Tensor
    histogram: Histogram = field(default_factory=Histogram)

    def add(self, x: Tensor) -> None:
        """Take in activations (..., columns). Once one was not finite, absmax tells and the histogram stands still."""
        sizes = x.detach().abs()
        self.absmax = torch.maximum(self.absmax, sizes.flatten(0, -2).amax(0))
        if bool(self.absmax.isfinite().all()):
            self.histogram.add(sizes)


@torch.no_grad()
def capture(model: nn.Module, texts: Sequence[Tensor]) -> dict[str, Inputs]:
    """Let the model read texts, each (1, n) ids; returns what every linear of the decoder has read, by its name.

    Linears that read the same tensor share one Inputs. Raises InputError where there is no text, and where activations
    are not finite: scales from them would mean nothing.
    """
    if not texts:
        raise InputError("calibration needs one prompt at least")
    found: dict[str, Inputs] = {}
    with ExitStack() as hooks:
        for group in groups(model):
            inputs = Inputs(torch.zeros(group.columns))
            found |= dict.fromkeys(group.names, inputs)
            hooks.callback(_watch(group, inputs))
        for ids in texts:
            hidden_states(model, ids)
    if broken := [name for name, inputs in found.items() if not bool(inputs.absmax.isfinite().all())]:
        raise InputError(f"calibration: {broken[0]} reads numbers that are not finite; the model is broken")
    return found


def token_ids(tokenizer: Any, prompt: Prompt) -> Tensor:
    """A prompt as the model reads it: (1, n) ids, cut to MAX_TOKENS; a chat as bare text without a chat template."""
    if prompt.text is not None or not tokenizer.chat_template:
        ids = tokenizer(prompt.content).input_ids
    else:
        turns = [{"role": message.role, "content": message.content} for message in prompt.messages]
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(text, add_special_tokens=False).input_ids
    return torch.tensor([ids[:MAX_TOKENS]])


def _watch(group: Group, inputs: Inputs) -> Callable[[], None]:
    def hook(_: nn.Module, args: tuple[Any, ...]) -> None:
        inputs.add(args[0])

    return group.linears[0].register_forward_pre_hook(hook).remove
