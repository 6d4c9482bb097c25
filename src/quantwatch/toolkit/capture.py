"""Calibration: what the linear layers of a model get to see, watched through hooks while it reads prompts."""

import copy
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

Heard = Callable[[int, int], None]
"""Hears how many of how many are done."""


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
        self.counts += torch.histc(sizes.float(), bins=BINS, min=0.0, max=self.limit).double().cpu()

    def centers(self) -> Tensor:
        """Middle of every bin: (BINS,) float64."""
        return (torch.arange(BINS, dtype=torch.float64) + 0.5) * (self.limit / BINS)


@dataclass(slots=True)
class Inputs:
    """What one group of linears has read.

    absmax: (columns,) largest |x| of each channel. histogram: of |x| over all channels. total, squares: (columns,)
    float64 sums of |x| and x^2 over tokens. keep: rows of each text that are kept, drawn at random; rows: those.
    """

    absmax: Tensor
    keep: int = 0
    histogram: Histogram = field(default_factory=Histogram)
    total: Tensor = field(init=False)
    squares: Tensor = field(init=False)
    tokens: int = field(default=0, init=False)
    rows: list[Tensor] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.total = torch.zeros(len(self.absmax), dtype=torch.float64)
        self.squares = torch.zeros(len(self.absmax), dtype=torch.float64)

    def add(self, x: Tensor) -> None:
        """Take in activations (..., columns). Once one was not finite, absmax tells and the rest stands still."""
        rows = x.detach().flatten(0, -2)
        sizes = rows.abs()
        self.absmax = torch.maximum(self.absmax, sizes.amax(0).to(self.absmax.device))
        if bool(self.absmax.isfinite().all()):
            self.histogram.add(sizes)
            self.total += sizes.sum(0).to(self.total)
            self.squares += sizes.square().sum(0).to(self.squares)
            self.tokens += len(rows)
            self._keep(rows)

    def _keep(self, rows: Tensor) -> None:
        if self.keep:
            chance = torch.Generator().manual_seed(self.tokens)
            places = torch.randperm(len(rows), generator=chance)[: self.keep]
            self.rows.append(rows[places.to(rows.device)].cpu())

    @property
    def mean_size(self) -> Tensor:
        """Mean |x| of each channel over the tokens: (columns,) float64."""
        return self.total / max(self.tokens, 1)

    @property
    def mean_square(self) -> Tensor:
        """Mean x^2 of each channel over the tokens: (columns,) float64."""
        return self.squares / max(self.tokens, 1)

    @property
    def sample(self) -> Tensor:
        """The rows that were kept: (m, columns). Raises ValueError where none were to be."""
        if not self.rows:
            raise ValueError("no rows were kept")
        return torch.cat(self.rows)


def capture(
    model: nn.Module, texts: Sequence[Tensor], *, keep: int = 0, heard: Heard = lambda _done, _all: None
) -> dict[str, Inputs]:
    """Let the model read texts, each (1, n) ids; returns what every linear of the decoder has read, by its name.

    keep: about so many rows of each input are kept. heard: hears how many texts were read. Linears that read the same
    tensor share one Inputs. Raises InputError where there is no text, and where activations are not finite: scales from
    them would mean nothing.
    """
    if not texts:
        raise InputError("calibration needs one prompt at least")
    return captured_at(model, texts, [len(texts)], keep=keep, heard=heard)[len(texts)]


@torch.no_grad()
def captured_at(
    model: nn.Module,
    texts: Sequence[Tensor],
    counts: Sequence[int],
    *,
    keep: int = 0,
    heard: Heard = lambda _done, _all: None,
) -> dict[int, dict[str, Inputs]]:
    """As capture, but what had been read after each of so many texts: one pass for all counts, each 1 to len(texts)."""
    found: dict[str, Inputs] = {}
    held: dict[int, dict[str, Inputs]] = {}
    with ExitStack() as hooks:
        for group in groups(model):
            inputs = Inputs(torch.zeros(group.columns), keep=-(-keep // len(texts)))
            found |= dict.fromkeys(group.names, inputs)
            hooks.callback(_watch(group, inputs))
        for number, ids in enumerate(texts, 1):
            hidden_states(model, ids)
            heard(number, len(texts))
            if number in counts:
                held[number] = copy.deepcopy(found)  # linears of a group share theirs in the copy too
    if broken := [name for name, inputs in found.items() if not bool(inputs.absmax.isfinite().all())]:
        raise InputError(f"calibration: {broken[0]} reads numbers that are not finite; the model is broken")
    return held


def token_ids(tokenizer: Any, prompt: Prompt, *, most: int | None = MAX_TOKENS) -> Tensor:
    """A prompt as the model reads it: (1, n) ids, at most so many; a chat as bare text without a chat template."""
    if prompt.text is not None or not tokenizer.chat_template:
        ids = tokenizer(prompt.content).input_ids
    else:
        turns = [{"role": message.role, "content": message.content} for message in prompt.messages]
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(text, add_special_tokens=False).input_ids
    return torch.tensor([ids[:most]])


def _watch(group: Group, inputs: Inputs) -> Callable[[], None]:
    def hook(_: nn.Module, args: tuple[Any, ...]) -> None:
        inputs.add(args[0])

    return group.linears[0].register_forward_pre_hook(hook).remove
