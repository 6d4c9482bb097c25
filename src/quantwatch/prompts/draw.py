"""Which prompts of a pool a run asks: drawn with replacement from a recorded seed."""

import random
from collections.abc import Sequence

from quantwatch.flow.prompt import Prompt, PromptSet


def draw(pool: PromptSet, *, size: int, seed: int) -> tuple[Prompt, ...]:
    """Draw prompts with replacement; the same pool, size and seed give the same draw on every machine.

    With replacement, so that the draws are independent and the interval over prompts means what it says.
    """
    ordered = sorted(pool.prompts, key=lambda prompt: prompt.id)
    return tuple(random.Random(f"{seed}:{pool.name}").choices(ordered, k=size))  # noqa: S311, sampling, not secrecy


def scored_positions(prompt_length: int, length: int, *, limit: int, seed: int, prompt_id: str) -> tuple[int, ...]:
    """At most `limit` continuation positions of a sequence for the one-token modes, ascending, by seed and prompt."""
    candidates = range(prompt_length, length)
    if len(candidates) <= limit:
        return tuple(candidates)
    return tuple(sorted(random.Random(f"{seed}:{prompt_id}:positions").sample(candidates, limit)))  # noqa: S311, as above


def distinct(prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
    """The drawn prompts without repetition, in the order of their first draw: each is asked once."""
    return tuple({prompt.id: prompt for prompt in prompts}.values())
