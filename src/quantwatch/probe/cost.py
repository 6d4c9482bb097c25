"""How many tokens a run costs a node, estimated before anything is sent."""

from dataclasses import dataclass

from quantwatch.flow.prompt import ProbeMode

CANARY_TOKENS = 32
"""Tokens of the short free answer with which a task set begins."""

CONFIRM_POSITIONS = 16
"""Positions a prompt in a confirming run: each is a request, and the prompt is the unit of observation."""

HANDSHAKE_TOKENS = 100
"""About as many are sent for a handshake."""


STRUCTURED_DRAWS = 2
"""Prompts of a run whose whole answer is held against their schema."""

STRUCTURED_TOKENS = 768
"""What such an answer may take at most."""

STRUCTURED_MEAN = 320
"""What it takes: the shipped prompts ask for objects of 100 to 700 tokens."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Tokens of one run on one node. processed: prompt tokens through the model. generated: tokens sampled.

    sent: as the budget counts them (probe/budget.py), that is prompts as they are sent and tokens asked for.
    """

    processed: float
    generated: float
    sent: float = 0.0

    @property
    def total(self) -> float:
        """All tokens of the run."""
        return self.processed + self.generated


def run_cost(
    prompt_tokens: float,
    *,
    draws: int,
    pool: int,
    mode: ProbeMode,
    continuation: int,
    positions: int,
    canary: int,
    with_schema: int = 0,
) -> Cost:
    """Estimate one run. prompt_tokens: mean over the pool. with_schema: how many of its prompts have an answer schema.

    Each distinct prompt is asked once: of n draws with replacement from a pool of m, m (1 - (1 - 1/m)^n) are distinct.
    In the one-token modes the prefixes of a prompt share their beginning in the node's prefix cache, so the prompt is
    counted once and then only what lies between the positions.
    """
    distinct = pool * (1 - (1 - 1 / pool) ** draws)
    once = prompt_tokens + (0 if mode is ProbeMode.FIRST_TOKEN else continuation)
    places = min(positions, continuation) if mode is ProbeMode.ONE_TOKEN else 1
    # The prefixes of one prompt end all over its continuation, and each is sent from the beginning.
    each = places * (prompt_tokens + continuation / 2 + 1) if mode is ProbeMode.ONE_TOKEN else once + 1
    whole = min(STRUCTURED_DRAWS, distinct * with_schema / pool)
    return Cost(
        processed=distinct * once + prompt_tokens * (1 + whole),
        generated=distinct * places + canary + whole * STRUCTURED_MEAN,
        sent=distinct * each + prompt_tokens * (1 + whole) + canary + whole * STRUCTURED_TOKENS + HANDSHAKE_TOKENS,
    )
