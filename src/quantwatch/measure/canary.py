"""What a free answer shows: on its own, and beside the answer that the baseline gave to the same prompt."""

from collections.abc import Iterator
from dataclasses import dataclass

from quantwatch.flow.canary import PROOFS, FreeAnswer, Seen, Sign
from quantwatch.measure.corruption import MIN_RUN, degenerate, loop_at_end, mostly_id_zero, one_id, repetition
from quantwatch.measure.text import foreign, quote, replacements, scripts

FLOOD_SHARE, FLOOD_COUNT = 0.25, 8
"""A healthy model writes U+FFFD when asked about it; a quarter of all characters is bytes that form no text."""

STRAY_SHARE, STRAY_COUNT = 0.02, 2

SALAD_SHARE, SALAD_SCRIPTS = 0.15, 3
"""Words drawn evenly from a large vocabulary are of many scripts; a model that only slips uses one other."""

FOREIGN_SHARE, FOREIGN_LETTERS = 0.3, 8

REPEATED, REPEATED_BASELINE = 0.4, 0.25
"""Of 32 tokens a loop of eight tokens repeats 0.45 of the 4-grams."""

TIMES_LONGER = 4
"""vllm#13133: answers of 140 tokens grew to over a thousand."""

LONGEST_TEXT_PERIOD = 64
"""Characters of the longest loop that is looked for in text."""

LOOPING = frozenset({Sign.ONE_ID, Sign.ID_ZERO, Sign.LOOP, Sign.REPETITION})
UNREADABLE = frozenset({Sign.REPLACEMENT_FLOOD, Sign.REPLACEMENT})


@dataclass(frozen=True, slots=True)
class Case:
    """What an answer is held against. prompt: the words of the prompt, empty where only its ids are known.

    flat: whether the node's distributions over this prompt's golden answer are nearly flat and the baseline's are not.
    """

    prompt_id: str
    prompt: str = ""
    flat: bool = False


def suspicious(answer: FreeAnswer, case: Case, *, expected: int) -> bool:
    """Whether an answer is worth asking the baseline for its own. expected: tokens of the golden answer."""
    if answer.blank or next(_alone(answer), None) is not None:
        return True
    if case.prompt and foreign(answer.text, [case.prompt])[0] >= SALAD_SHARE:
        return True
    return answer.cut and expected * TIMES_LONGER <= answer.limit


def signs(answer: FreeAnswer, reference: FreeAnswer, case: Case) -> tuple[Seen, ...]:
    """What the answer shows and the reference does not, proofs first; nothing where the reference is broken itself."""
    told = dict(_alone(reference))
    if PROOFS & told.keys():
        return ()
    excused = {sign for family in (LOOPING, UNREADABLE) if family & told.keys() for sign in family}
    if repetition(reference.ids) > REPEATED_BASELINE:
        excused |= LOOPING
    found = [one for one in (*_alone(answer), *_beside(answer, reference, case)) if one[0] not in excused]
    found.sort(key=lambda one: one[0] not in PROOFS)
    return tuple(Seen(sign, f"{said}: {quote(answer.text)}", case.prompt_id) for sign, said in found)


def _alone(answer: FreeAnswer) -> Iterator[tuple[Sign, str]]:
    """Signs that need no reference, each with its sentence."""
    looping = _looping(answer)
    if looping is not None:
        yield looping
    elif answer.cut and len(answer.ids) >= MIN_RUN and repetition(answer.ids) >= REPEATED:
        yield Sign.REPETITION, f"{repetition(answer.ids):.0%} of a free answer repeats what it said before"
    count, share = replacements(answer.text)
    if count >= FLOOD_COUNT and share >= FLOOD_SHARE:
        yield Sign.REPLACEMENT_FLOOD, f"{share:.0%} of a free answer is replacement characters"
    elif count >= STRAY_COUNT and share >= STRAY_SHARE:
        yield Sign.REPLACEMENT, f"a free answer holds {count} replacement characters"


def _looping(answer: FreeAnswer) -> tuple[Sign, str] | None:
    """How an answer repeats itself up to its limit: an answer that ends by itself is no loop, whatever it holds."""
    if not answer.cut:
        return None
    whole, loop = len(answer.ids), loop_at_end(answer.ids)
    if one_id(loop, whole):
        return Sign.ONE_ID, f"a free answer is token {answer.ids[-1]}, {loop.length} times over"
    if mostly_id_zero(answer.ids):
        return Sign.ID_ZERO, f"{answer.ids.count(0)} of {whole} tokens of a free answer are id 0"
    if degenerate(loop, whole):
        return Sign.LOOP, f"a free answer repeats {loop.period} tokens {loop.turns:.0f} times over"
    spoken = loop_at_end(answer.text, longest=LONGEST_TEXT_PERIOD)
    if degenerate(spoken, len(answer.text)):
        return Sign.LOOP, f"a free answer repeats {spoken.period} characters {spoken.turns:.0f} times over"
    return None


def _beside(answer: FreeAnswer, reference: FreeAnswer, case: Case) -> Iterator[tuple[Sign, str]]:
    """Signs that only a comparison shows."""
    share, others = foreign(answer.text, [case.prompt, reference.text])
    letters = share * scripts(answer.text).total()
    if letters >= FOREIGN_LETTERS and not reference.blank:
        named = ", ".join(script.title() for script in others[:SALAD_SCRIPTS])
        told = f"{share:.0%} of a free answer's letters are {named}, which neither the prompt nor the baseline uses"
        if case.flat and share >= SALAD_SHARE and len(others) >= SALAD_SCRIPTS:
            yield Sign.SCRIPT_SALAD, f"{told}, and its distribution is nearly flat"
        elif share >= FOREIGN_SHARE:
            yield Sign.FOREIGN_SCRIPT, told
    if answer.cut and reference.ended and 1 < len(reference.ids) <= answer.limit / TIMES_LONGER:
        told = f"a free answer runs into its limit of {answer.limit} tokens"
        yield Sign.LENGTH, f"{told}, the baseline's ends after {len(reference.ids)}"
    if answer.blank and not reference.blank:
        yield Sign.EMPTY, "a free answer is empty, the baseline's is not"
