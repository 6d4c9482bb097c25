"""How strongly to smooth each layer: the strength whose W8A8 comes nearest to what full precision computes."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from quantwatch.toolkit.capture import Heard, Inputs
from quantwatch.toolkit.fake_quant import absmax_codes
from quantwatch.toolkit.smoothing import factors, smoothable

GRID = tuple(i / 10 for i in range(11))

SAMPLE = 256
"""Rows of each input that the search looks at."""


@torch.no_grad()
def strengths(
    model: nn.Module, inputs: Mapping[str, Inputs], *, deep: bool = False, heard: Heard = lambda _done, _all: None
) -> dict[str, float]:
    """For each group the strength of GRID that makes the least squared error of its outputs, by its first linear.

        error(alpha) = |Q(X / s) Q(W s)^T - X W^T|^2

    with int8 codes by token and by output row, over the rows that capture has kept. Raises ValueError where it kept
    none.
    """
    found = {}
    todo = smoothable(model, deep=deep)
    for number, group in enumerate(todo, 1):
        seen = inputs[group.names[0]]
        weight = torch.cat([linear.weight for linear in group.linears])
        x = seen.sample.to(weight)
        wanted = x @ weight.T
        tried = {alpha: factors(group, seen.absmax, alpha=alpha) for alpha in GRID}
        errors = {alpha: w8a8_error(x / by, weight * by, wanted) for alpha, by in tried.items()}
        found[group.names[0]] = min(GRID, key=errors.__getitem__)
        heard(number, len(todo))
    return found


def w8a8_error(x: Tensor, weight: Tensor, wanted: Tensor) -> float:
    """Mean squared distance of the W8A8 product from the wanted one.

    x: (m, in), weight: (out, in), wanted: (m, out).
    """
    codes, scale = absmax_codes(x, bits=8)
    weights, rows = absmax_codes(weight, bits=8)
    return float(((codes @ weights.T) * scale * rows.T - wanted).square().mean())
