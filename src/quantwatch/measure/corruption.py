"""Signs of broken numbers in the token ids that a model generates.

A healthy model repeats itself too: greedy decoding falls into loops, the more so the smaller the model (Holtzman et
al., "The Curious Case of Neural Text Degeneration", 2020), and a small one may do so from the first words on. So one
loop proves nothing, while one id from beginning to end, or id 0 throughout, was never seen of a healthy model. A sign
counts only where the baseline, asked the same, does not loop. Measured rates: docs/measurement.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass

MIN_RUN = 16
"""A shorter answer can repeat one token without being broken."""

LOOP_SHARE = 0.75
"""A loop that takes up less of the answer may be how a list or a table ends."""

TURNS = 6
"""A refrain comes back two or three times; at 32 tokens six turns leave room for loops of up to five tokens."""

LONGEST_PERIOD = 16
"""Tokens of the longest loop that is looked for: a short sentence."""

GRAM = 4
"""Tokens of the n-grams that are counted, as in Welleck et al., "Neural Text Generation with Unlikelihood Training"."""

ID_ZERO_SHARE = 0.5
"""argmax over NaN is id 0, a padding or begin token or `!`: no text is half of these."""


OPENING = 2
"""A line break or a quotation mark may stand before one id that then fills the answer."""


@dataclass(frozen=True, slots=True)
class Loop:
    """The end of a sequence repeats itself. period: items a turn. length: items of all turns together."""

    period: int
    length: int

    @property
    def turns(self) -> float:
        """How often the period fits."""
        return self.length / self.period


def one_id_to_the_limit(ids: Sequence[int], limit: int) -> bool:
    """Tell whether a greedy answer is one token id, repeated until the limit stopped it (`!!!!` and its kin).

    NaN logits make argmax return id 0 at every step; GPTQ overflow and broken kernels show the same picture.
    """
    return limit >= MIN_RUN and len(ids) >= limit and len(set(ids)) == 1


def loop_at_end(items: Sequence[object], *, longest: int = LONGEST_PERIOD) -> Loop:
    """The longest end of a sequence that has a period of at most `longest`; of equally long ones the shortest period.

    Items may be ids or characters. Linear in the sequence for each period. Nothing repeats in a sequence without two
    whole turns; its Loop has less than two turns.
    """
    found = Loop(1, min(len(items), 1))
    for period in range(1, min(longest, len(items) // 2) + 1):
        length = period + _matching(items, period)
        if length > found.length and length >= 2 * period:
            found = Loop(period, length)
    return found


def _matching(items: Sequence[object], period: int) -> int:
    """How many items, counted from the end, equal the one a period before."""
    at = len(items) - 1
    while at >= period and items[at] == items[at - period]:
        at -= 1
    return len(items) - 1 - at


def degenerate(loop: Loop, whole: int) -> bool:
    """Whether a loop is what broken numbers look like. whole: items of the answer that it ends."""
    return whole >= MIN_RUN and loop.length >= LOOP_SHARE * whole and loop.turns >= TURNS


def one_id(loop: Loop, whole: int) -> bool:
    """Whether an answer of `whole` ids is one id but for its opening."""
    return whole >= MIN_RUN and loop.period == 1 and loop.length >= whole - OPENING


def mostly_id_zero(ids: Sequence[int]) -> bool:
    """Whether id 0 takes up the answer, with other tokens between: NaN at some steps, or in some rows of a batch."""
    return len(ids) >= MIN_RUN and ids.count(0) >= ID_ZERO_SHARE * len(ids)


def repetition(ids: Sequence[int]) -> float:
    """Share of n-grams that occurred before: 0 where none is repeated, towards 1 in a loop (seq-rep-n of Welleck)."""
    grams = [tuple(ids[i : i + GRAM]) for i in range(len(ids) - GRAM + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0
