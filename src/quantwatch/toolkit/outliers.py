"""Outlier channels for models too small to have grown their own, without changing what the model computes."""

import math

import torch
from torch import nn

from quantwatch.errors import InputError
from quantwatch.toolkit.families import groups


@torch.no_grad()
def inject_outliers(model: nn.Module, magnitude: float, *, seed: int) -> None:
    """Multiply one channel behind every norm by the magnitude, and divide the weights that read it, in place.

    Large models carry activations about a hundred times larger than the rest in a few fixed channels (Dettmers et al.
    2022, LLM.int8(), section 3), and those wreck 8-bit activations. Here the norm's gain g_c becomes m g_c, and column
    c of every linear that reads it becomes W_c / m: W x is the same in full precision, exactly so where m is a power
    of two, while an absmax scale over the channels becomes up to m times coarser.

    seed: draws the channel of each norm. Raises InputError for a magnitude that is not positive and finite.
    """
    if not (math.isfinite(magnitude) and magnitude > 0):
        raise InputError(f"outliers of magnitude {magnitude:g}: a number above 0 is wanted, such as 100")
    chance = torch.Generator().manual_seed(seed)
    for group in groups(model):
        if group.norm is not None:
            # Drawn as for the nodes whose replies tests/data holds, so that seed 0 is one of them.
            channel = int(torch.randperm(group.columns, generator=chance)[0])
            group.gain[channel] *= magnitude
            for linear in group.linears:
                linear.weight[:, channel] /= magnitude
