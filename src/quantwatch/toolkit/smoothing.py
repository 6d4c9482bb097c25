"""SmoothQuant: part of the activations' unevenness moves into the weights, where it is harmless."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from quantwatch.errors import InputError
from quantwatch.toolkit.capture import Inputs
from quantwatch.toolkit.families import Group, groups

SMALLEST = 1e-5
"""Floor of sizes and factors, as in the authors' code: a channel that is always zero stays finite."""


@torch.no_grad()
def smooth(model: nn.Module, inputs: Mapping[str, Inputs], *, alpha: float) -> None:
    """Divide every channel behind a norm by s and multiply the weights that read it by s, in place.

        s_j = max|X_j|^alpha / max|W_j|^(1 - alpha)

    (Xiao et al. 2023, SmoothQuant, equation 4); max|W_j| goes over all linears that read the norm. The norm's gain
    takes 1/s, so nothing is added to the forward pass, and in full precision the model computes the same.

    inputs: from capture, of this very model. alpha: 0 leaves the activations all the difficulty, 1 gives it to the
    weights. Raises InputError for an alpha outside 0 to 1.
    """
    if not 0.0 <= alpha <= 1.0:
        raise InputError(f"smoothing of strength {alpha:g}: a number from 0 to 1 is wanted, such as 0.5")
    for group in groups(model):
        if group.norm is not None:
            factors = _factors(group, inputs[group.names[0]].absmax, alpha=alpha)
            group.gain.div_(factors)
            for linear in group.linears:
                linear.weight.mul_(factors)


def _factors(group: Group, absmax: Tensor, *, alpha: float) -> Tensor:
    """The s of equation 4: (columns,)."""
    weights = torch.stack([linear.weight.abs().amax(0) for linear in group.linears]).amax(0)
    eased = absmax.clamp(min=SMALLEST) ** alpha / weights.clamp(min=SMALLEST) ** (1 - alpha)
    return eased.clamp(min=SMALLEST)
