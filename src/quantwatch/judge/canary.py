"""Which oddities of free answers and distributions are worth a warning."""

from quantwatch.flow.canary import STRUCTURE, Canary, Seen, Weight

PROMPTS = 3
"""Odd answers in a row that are a pattern. Measured (docs/measurement.md): a sound 4-bit copy of a small model repeats
itself on one prompt in seven where the other does not, so on three in a row once in over 300 runs."""

STRUCTURED_PROMPTS = 2
"""The same for whole answers to prompts with a schema, of which a run asks for two."""


def warnings(canary: Canary) -> tuple[str, ...]:
    """One sentence for each kind of oddity that a set or several of its prompts show. None of them ever acts."""
    kinds: dict[str, list[Seen]] = {}
    for one in canary.seen:
        if one.weight is Weight.WARNING:
            kinds.setdefault(one.sign, []).append(one)
    return tuple(_told(seen) for seen in kinds.values() if _pattern(seen))


def _pattern(seen: list[Seen]) -> bool:
    prompts = {one.prompt_id for one in seen}
    needed = STRUCTURED_PROMPTS if seen[0].sign in STRUCTURE else PROMPTS
    return None in prompts or len(prompts) >= needed


def _told(seen: list[Seen]) -> str:
    times = len({one.prompt_id for one in seen})
    return seen[0].said if times == 1 else f"{seen[0].said} ({times} prompts)"
