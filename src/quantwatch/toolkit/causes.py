"""Which layers of a quantized model cause its divergence: each is quantized alone, and the rest stays as it is."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from quantwatch.toolkit.capture import Heard, Inputs
from quantwatch.toolkit.families import Group, groups
from quantwatch.toolkit.growth import Layer, growth
from quantwatch.toolkit.score import Exam, divergence


@dataclass(frozen=True, slots=True)
class Cause:
    """What quantizing one layer, or one group of linears within it, does when all else is in full precision.

    readers: the linears within the layer. kl: mean KL in nats. error: |made - wanted| / |wanted| over the outputs of
    the linear that is off furthest, fed with what full precision feeds it; place: that linear.
    """

    layer: int
    readers: tuple[str, ...]
    kl: float
    error: float
    place: str


@dataclass(frozen=True, slots=True)
class Causes:
    """Where the divergence comes from, measured on some of the prompts.

    kl: mean KL there with everything quantized. layers: each alone, in order. parts: each group of linears of the
    worst layers alone. along: the residual stream.
    """

    kl: float
    layers: tuple[Cause, ...]
    parts: tuple[Cause, ...]
    along: tuple[Layer, ...]

    @property
    def worst(self) -> tuple[Cause, ...]:
        """The layers, worst first."""
        return tuple(sorted(self.layers, key=lambda one: -one.kl))

    @property
    def total(self) -> float:
        """Sum over the layers: about the whole where their errors do not know of each other."""
        return sum(one.kl for one in self.layers)

    def share(self, one: Cause) -> float:
        """What a layer has of that sum; 0 where nothing diverges."""
        return one.kl / self.total if self.total else 0.0


@contextmanager
def exchanged(model: nn.Module, other: nn.Module, names: Iterable[str]) -> Iterator[nn.Module]:
    """The model with these modules of another one in the place of its own, which come back in the end."""
    held = {name: model.get_submodule(name) for name in names}
    try:
        for name in held:
            model.set_submodule(name, other.get_submodule(name))
        yield model
    finally:
        for name, module in held.items():
            model.set_submodule(name, module)


def causes(
    model: nn.Module,
    made: nn.Module,
    asked: Exam,
    *,
    inputs: Mapping[str, Inputs],
    most: int,
    hearer: Callable[[str], Heard],
) -> Causes:
    """Quantize every layer of a model alone, and every group of linears of the `most` worst ones.

    made: the same model with every linear quantized, from `quantized` without searched scales. inputs: from capture of
    the model, with rows kept. The model is lent modules of the other one meanwhile and has its own back in the end.
    Raises InputError where something computes numbers that are not finite.
    """
    whole = divergence(asked, made, heard=hearer("everything quantized")).kl_mean.value
    by_layer: dict[int, list[Group]] = {}
    for group in groups(model):
        by_layer.setdefault(_layer(group), []).append(group)
    errors = output_errors(model, made, inputs)
    layers = _alone(model, made, asked, todo=list(by_layer.values()), errors=errors, heard=hearer("layer by layer"))
    worst = sorted(layers, key=lambda one: -one.kl)[:most]
    inside = [[group] for one in worst for group in by_layer[one.layer]]
    parts = _alone(model, made, asked, todo=inside, errors=errors, heard=hearer("inside the worst layers"))
    device = next(model.parameters()).device
    texts = [torch.tensor([one.ids], device=device) for one in asked.sequences]
    along = growth(model, made, texts, heard=hearer("along the residual stream"))
    return Causes(whole, tuple(layers), tuple(parts), along)


def _alone(
    model: nn.Module,
    made: nn.Module,
    asked: Exam,
    *,
    todo: Sequence[Sequence[Group]],
    errors: Mapping[str, float],
    heard: Heard,
) -> list[Cause]:
    found = []
    for number, some in enumerate(todo, 1):
        names = [name for group in some for name in group.names]
        with exchanged(model, made, names) as changed:
            kl = divergence(asked, changed).kl_mean.value
        place = max(names, key=errors.__getitem__)
        readers = tuple(name.split(".", 3)[3] for name in names)
        found.append(Cause(_layer(some[0]), readers, kl, errors[place], place.rpartition(".")[2]))
        heard(number, len(todo))
    return found


def _layer(group: Group) -> int:
    return int(group.names[0].split(".")[2])


@torch.no_grad()
def output_errors(model: nn.Module, made: nn.Module, inputs: Mapping[str, Inputs]) -> dict[str, float]:
    """|Q(X) Q(W)^T - X W^T| / |X W^T| of every linear over the rows that capture has kept, by name; Frobenius norms.

    Biases are left out. 0 where both are zero throughout.
    """
    found = {}
    for group in groups(model):
        x = inputs[group.names[0]].sample.to(group.linears[0].weight)
        for name, linear in zip(group.names, group.linears, strict=True):
            wanted = functional.linear(x, linear.weight, linear.bias)
            away = (made.get_submodule(name)(x) - wanted).norm()
            size = functional.linear(x, linear.weight).norm()
            found[name] = float(away / size) if float(size) else float(away)
    return found
