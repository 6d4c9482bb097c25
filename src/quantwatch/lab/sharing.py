"""Prompts of one request that begin alike: a prefix of a longer prompt needs no forward pass of its own."""

from collections.abc import Sequence

Ids = tuple[int, ...]


def shared(prompts: Sequence[Ids]) -> list[list[int]]:
    """Groups of places in the list; in each the first prompt is the longest and the others are prefixes of it.

    In a causal model the distribution after a prefix is the one at that position of the longer prompt. In the order
    of a dictionary a prompt that begins another one begins its next neighbour too, so only neighbours are compared.
    """
    groups: list[list[int]] = []
    for place in sorted(range(len(prompts)), key=prompts.__getitem__, reverse=True):
        prompt = prompts[place]
        if groups and prompts[groups[-1][-1]][: len(prompt)] == prompt:
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups
