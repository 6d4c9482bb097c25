"""Scales of input channels that make uniform INT4 lose less where it matters, searched by what comes out."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from quantwatch.toolkit.capture import Heard, Inputs
from quantwatch.toolkit.families import Group
from quantwatch.toolkit.formats import Variant
from quantwatch.toolkit.salience import stored
from quantwatch.toolkit.smoothing import fold, shared, smoothable

STEPS = 20
SMALLEST = 1e-4
"""Floor of mean activations, as in the authors' code."""


def scales(group: Group, inputs: Inputs, power: float) -> Tensor:
    """s_j = mean|x_j|^power, divided by the root of its largest times its least: (columns,); 1 everywhere at power 0.

    (Lin et al. 2024, AWQ, equation 5, with the normalization of its code.)
    """
    sizes = shared(group, inputs.mean_size.float()).clamp(min=SMALLEST) ** power
    return sizes / (sizes.max() * sizes.min()).sqrt()


@torch.no_grad()
def searched(group: Group, inputs: Inputs, variant: Variant) -> Tensor:
    """The scales of least squared error over the kept rows, among powers 0, 1/20 .. 19/20: (columns,).

        error(s) = |X / s Q(W s)^T - X W^T|^2

    Power 0 leaves the weights alone, so on these rows the result is never worse than plain rounding.
    """
    weights = [linear.weight for linear in group.linears]
    x = inputs.sample.to(weights[0])
    wanted = [x @ weight.T for weight in weights]
    tried = [scales(group, inputs, step / STEPS).to(x) for step in range(STEPS)]
    errors = [
        sum(
            float((x @ (stored(weight * by, variant) / by).T - out).square().sum())
            for weight, out in zip(weights, wanted, strict=True)
        )
        for by in tried
    ]
    return tried[min(range(STEPS), key=errors.__getitem__)]


def scale_channels(
    model: nn.Module, inputs: Mapping[str, Inputs], variant: Variant, *, heard: Heard = lambda _done, _all: None
) -> None:
    """Search the scales of every group and fold them in, in place; in full precision the model computes the same.

    All are searched on the weights as they came: folding one group changes the rows of the linear before it alone.
    """
    todo = smoothable(model, deep=True)
    found = []
    for number, group in enumerate(todo, 1):
        found.append(searched(group, inputs[group.names[0]], variant))
        heard(number, len(todo))
    for group, by in zip(todo, found, strict=True):
        fold(group, by)
