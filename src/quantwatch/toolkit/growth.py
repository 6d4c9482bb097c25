"""How the error of a quantized model grows from layer to layer, along the residual stream."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from quantwatch.errors import InputError
from quantwatch.toolkit.capture import Heard
from quantwatch.toolkit.families import groups
from quantwatch.toolkit.model import hidden_states


@dataclass(frozen=True, slots=True)
class Layer:
    """What stands on the residual stream behind one layer, over all tokens.

    error: mean |difference| between the two models. size: mean |value| of full precision. drift: 1 - mean cosine of the
    angle between the two models' vectors of a token. added: how much of the drift came in this layer.
    """

    number: int
    error: float
    size: float
    drift: float
    added: float

    @property
    def relative(self) -> float:
        """The error as a share of the size; 0 where both are."""
        return self.error / self.size if self.size else 0.0


@torch.no_grad()
def growth(
    model: nn.Module, changed: nn.Module, texts: Sequence[Tensor], *, heard: Heard = lambda _done, _all: None
) -> tuple[Layer, ...]:
    """Let both models read texts, each (1, n) ids, and compare what stands behind every layer.

    Memory does not grow with the number of texts. Raises InputError where there is none, and where a model computes
    numbers that are not finite.
    """
    if not texts:
        raise InputError("nothing to compare: one prompt at least is wanted")
    groups(model)  # refuses a family that is not known
    config: Any = model.config
    sums = torch.zeros(config.num_hidden_layers, 3, dtype=torch.float64)
    numbers = torch.zeros(2, dtype=torch.float64)
    for number, ids in enumerate(texts, 1):
        for layer, (ours, theirs) in enumerate(zip(_streams(model, ids), _streams(changed, ids), strict=True)):
            sums[layer] += _sums(ours.double(), theirs.double())
        numbers += torch.tensor([ids.numel() * config.hidden_size, ids.numel()])
        heard(number, len(texts))
    if not bool(sums.isfinite().all()):
        raise InputError("one of the models computes numbers that are not finite")
    return tuple(_layers(sums, *numbers.tolist()))


def _sums(ours: Tensor, theirs: Tensor) -> Tensor:
    """Sums over a text of |difference|, |ours| and the cosines of its tokens: (3,)."""
    cosines = functional.cosine_similarity(ours, theirs, dim=-1)
    return torch.stack([(theirs - ours).abs().sum(), ours.abs().sum(), cosines.sum()]).cpu()


def _layers(sums: Tensor, values: float, tokens: float) -> Iterator[Layer]:
    before = 0.0
    for number, (error, size, cosines) in enumerate(sums.tolist()):
        drift = max(1.0 - cosines / tokens, 0.0)
        yield Layer(number, error / values, size / values, drift, drift - before)
        before = drift


def _streams(model: nn.Module, ids: Tensor) -> list[Tensor]:
    """What each layer gives on: (1, n, hidden) each."""
    held: list[Tensor] = []

    def hook(_: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        held.append(output[0] if isinstance(output, tuple) else output)

    layers = model.get_submodule("model.layers")
    with ExitStack() as hooks:
        for layer in layers.children():
            hooks.callback(layer.register_forward_hook(hook).remove)
        hidden_states(model, ids)
    return held
