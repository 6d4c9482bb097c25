"""Signs of broken numbers in what a model generates."""

from collections.abc import Sequence

MIN_RUN = 16
"""A shorter answer can repeat one token without being broken."""


def one_id_to_the_limit(ids: Sequence[int], limit: int) -> bool:
    """Tell whether a greedy answer is one token id, repeated until the limit stopped it (`!!!!` and its kin).

    NaN logits make argmax return id 0 at every step; GPTQ overflow and broken kernels show the same picture.
    """
    return limit >= MIN_RUN and len(ids) >= limit and len(set(ids)) == 1
