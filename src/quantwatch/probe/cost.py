"""How many tokens a run costs a node, estimated before anything is sent."""

from dataclasses import dataclass

from quantwatch.flow.prompt import ProbeMode

CANARY_TOKENS = 32
"""Tokens of the short free answer with which a task set begins."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Tokens of one run on one node. processed: prompt tokens through the model. generated: tokens sampled."""

    processed: float
    generated: float

    @property
    def total(self) -> float:
        """All tokens of the run."""
        return self.processed + self.generated


def run_cost(
    prompt_tokens: float, *, draws: int, pool: int, mode: ProbeMode, continuation: int, positions: int, canary: int
) -> Cost:
    """Estimate one run. prompt_tokens: mean over the pool.

    Each distinct prompt is asked once: of n draws with replacement from a pool of m, m (1 - (1 - 1/m)^n) are distinct.
    In the one-token modes the prefixes of a prompt share their beginning in the node's prefix cache, so the prompt is
    counted once and then only what lies between the positions.
    """
    distinct = pool * (1 - (1 - 1 / pool) ** draws)
    once = prompt_tokens + (0 if mode is ProbeMode.FIRST_TOKEN else continuation)
    asked = {ProbeMode.PROMPT_SCORING: 1, ProbeMode.ONE_TOKEN: min(positions, continuation), ProbeMode.FIRST_TOKEN: 1}
    return Cost(processed=distinct * once + prompt_tokens, generated=distinct * asked[mode] + canary)
