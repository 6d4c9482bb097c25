"""The tokens behind a run's numbers, taken while everything that was said is still at hand."""

import asyncio

from quantwatch.flow.tokens import PromptsShown, TokensSeen
from quantwatch.flows.compare import Comparison
from quantwatch.log import logger
from quantwatch.measure.tokens import tokens_seen

log = logger()


async def evidence(comparison: Comparison, shown: PromptsShown) -> TokensSeen | None:
    """The tokens of a run of one node on one task set; None where none are wanted, or nothing was measured.

    Where something forbids the comparison, such as a restart on the way, the answers are of two processes or models.
    """
    if shown is PromptsShown.OFF or comparison.nodes[0].obstacle is not None:
        return None
    return await asyncio.to_thread(_taken, comparison)


def _taken(comparison: Comparison) -> TokensSeen | None:
    try:
        seen = tokens_seen(comparison.nodes[0].sets[0].pairs, scope=comparison.plan.scope)
    except Exception:
        # One of the few broad handlers: what people may look at later must never cost a verdict.
        log.exception("the tokens of a run could not be kept, by a fault in quantwatch")
        return None
    return seen if seen.prompts else None
