"""SmoothQuant: part of the activations' unevenness moves into the weights, where it is harmless."""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from quantwatch.errors import InputError
from quantwatch.toolkit.capture import Inputs
from quantwatch.toolkit.families import Group, groups

SMALLEST = 1e-5
"""Floor of sizes and factors, as in the authors' code: a channel that is always zero stays finite."""

Alpha = float | Mapping[str, float]
"""One strength for all, or one for each group by the name of its first linear."""


@torch.no_grad()
def smooth(model: nn.Module, inputs: Mapping[str, Inputs], *, alpha: Alpha, deep: bool = False) -> None:
    """Divide every channel behind a norm by s and multiply the weights that read it by s, in place.

        s_j = max|X_j|^alpha / max|W_j|^(1 - alpha)

    (Xiao et al. 2023, SmoothQuant, equation 4); max|W_j| goes over all linears that read the norm. The norm's gain
    takes 1/s, so nothing is added to the forward pass, and in full precision the model computes the same.

    inputs: from capture, of this very model. alpha: 0 leaves the activations all the difficulty, 1 gives it to the
    weights. deep: smooth what linears make as well, folded into the linear before. Raises InputError for an alpha
    outside 0 to 1.
    """
    chosen = {group.names[0]: _strength(alpha, group) for group in smoothable(model, deep=deep)}
    for group in smoothable(model, deep=deep):
        fold(group, factors(group, inputs[group.names[0]].absmax, alpha=chosen[group.names[0]]))


def smoothed(model: nn.Module, inputs: Mapping[str, Inputs], *, alpha: Alpha, deep: bool = False) -> nn.Module:
    """A copy of the model, smoothed as by `smooth`; the model itself stays as it is."""
    made = copy.deepcopy(model)
    smooth(made, inputs, alpha=alpha, deep=deep)
    return made


def smoothable(model: nn.Module, *, deep: bool) -> list[Group]:
    """The groups behind a norm; with deep also those whose channels a linear scales."""
    return [group for group in groups(model) if group.norm is not None or (deep and group.maker is not None)]


def _strength(alpha: Alpha, group: Group) -> float:
    value = alpha if isinstance(alpha, int | float) else alpha[group.names[0]]
    if not 0.0 <= value <= 1.0:
        raise InputError(f"smoothing of strength {value:g}: a number from 0 to 1 is wanted, such as 0.5")
    return value


def factors(group: Group, absmax: Tensor, *, alpha: float) -> Tensor:
    """The s of equation 4: (columns,). Columns that one channel scales share theirs."""
    weights = torch.stack([linear.weight.abs().amax(0) for linear in group.linears]).amax(0)
    sizes = shared(group, absmax.to(weights))
    eased = sizes.clamp(min=SMALLEST) ** alpha / shared(group, weights).clamp(min=SMALLEST) ** (1 - alpha)
    return eased.clamp(min=SMALLEST)


def shared(group: Group, values: Tensor) -> Tensor:
    """The largest of the values of columns that one channel scales, for each of them: (columns,)."""
    if group.maker is None or group.channels is None:
        return values
    places = group.channels.to(values.device)
    most = values.new_zeros(group.maker.out_features).scatter_reduce_(0, places, values, "amax", include_self=False)
    return most[places]


@torch.no_grad()
def fold(group: Group, by: Tensor) -> None:
    """Divide the channels where they are made and multiply the weights that read them, in place.

    by: (columns,), equal for columns that one channel scales. Raises ValueError where nothing is known to make them.
    """
    if group.norm is not None:
        group.gain.div_(by)
    elif group.maker is not None and group.channels is not None:
        rows = by.new_ones(group.maker.out_features)
        rows[group.channels.to(by.device)] = by
        group.maker.weight.div_(rows.unsqueeze(1))
        if group.maker.bias is not None:
            group.maker.bias.div_(rows)
    else:
        raise ValueError(f"{group.names[0]}: nothing is known to make what it reads")
    for linear in group.linears:
        linear.weight.mul_(by)
