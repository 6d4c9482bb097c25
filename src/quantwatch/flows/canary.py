"""The text canary: short free answers of a node, held against what the baseline answers to the same prompt.

A sign counts only where the baseline does not show it, and a proof makes a node corrupted only when another prompt
shows one too. Warnings and notes never do.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from quantwatch.flow.canary import Canary, FreeAnswer, Seen, Sign, Weight
from quantwatch.flow.distribution import Distribution
from quantwatch.flow.observation import Missing
from quantwatch.flow.prompt import GoldenSequence, Prompt
from quantwatch.flows.ask import Server
from quantwatch.measure.answer import fault
from quantwatch.measure.canary import Case, signs, suspicious
from quantwatch.measure.compare import Pair
from quantwatch.measure.shape import flat, signatures
from quantwatch.measure.text import quote
from quantwatch.probe.contract import Generation
from quantwatch.probe.cost import CANARY_TOKENS, STRUCTURED_DRAWS, STRUCTURED_TOKENS

STRUCTURED_SECONDS = 30.0
"""How long a whole answer may occupy a node; a slower one is asked for less, or not at all."""

STRUCTURED_LEAST = 128
"""Shorter answers than this are no answer to a prompt with a schema."""


MOST = 6
"""Short answers a set, however odd they are."""

LOOPS = 4
"""A loop in this many answers in a row is a sign of broken numbers, and one more confirms it.

Measured (docs/measurement.md): where its baseline does not loop, one answer in 32 of a sound 4-bit copy of a small
model does, and one in eight in a language that the model hardly knows. So five in a row do not happen by chance.
"""


@dataclass(slots=True)
class SetCanary:
    """The free answers of one node in one task set, as they come in.

    again: a sign asks for another prompt. loops: looping answers in a row. token_seconds: what a token of the last
    short answer took.
    """

    begun: bool = False
    again: bool = False
    answers: int = 0
    structured: int = 0
    loops: int = 0
    token_seconds: float | None = None
    seen: list[Seen] = field(default_factory=list)

    def whole(self, pairs: list[Pair]) -> Canary:
        """Everything that was seen, with what the distributions show of their own."""
        return Canary(self.answers, self.structured, (*self.seen, *signatures(pairs)))


@dataclass(frozen=True, slots=True)
class Question:
    """What both sides are asked. prompt: None for ready sequences, of which only the ids are known."""

    sequence: GoldenSequence
    prompt: Prompt | None = None
    flat: bool = False

    @property
    def schema(self) -> Mapping[str, Any] | None:
        """What a right answer satisfies."""
        return None if self.prompt is None else self.prompt.answer_schema

    @property
    def case(self) -> Case:
        """What an answer is held against."""
        return Case(self.sequence.prompt_id, "" if self.prompt is None else self.prompt.content, self.flat)


def question(
    item: Prompt | GoldenSequence,
    sequence: GoldenSequence,
    *,
    baseline: Distribution | Missing,
    node: Distribution | Missing,
) -> Question:
    """What to ask after both sides have been probed. baseline, node: their distributions, or whatever came instead."""
    prompt = item if isinstance(item, Prompt) else None
    if isinstance(baseline, Missing) or isinstance(node, Missing):
        return Question(sequence, prompt)
    return Question(sequence, prompt, flat=flat(baseline, node))


async def listen(node: Server, control: Server, asked: Question, so_far: SetCanary) -> None:
    """Let the node answer freely where a set begins and after a sign, and at length where the prompt has a schema.

    control: the baseline, asked the same only where the node's answer gives reason to; without its answer there is no
    sign.
    """
    if node.stopped is None and (so_far.again or not so_far.begun):
        await _short(node, control, asked, so_far)
    so_far.begun = True
    # Not after a sign: what confirms it must come from another prompt.
    if node.stopped is None and not so_far.again and asked.schema and so_far.structured < STRUCTURED_DRAWS:
        await _structured(node, control, asked, so_far)


async def _short(node: Server, control: Server, asked: Question, so_far: SetCanary) -> None:
    so_far.again = False
    given = await node.free_answer(asked.sequence, limit=CANARY_TOKENS)
    if given is None:
        return
    so_far.answers += 1
    so_far.token_seconds = given.seconds / max(len(given.ids), 1)
    answer = _free(given, CANARY_TOKENS)
    if not suspicious(answer, asked.case, expected=len(asked.sequence.continuation)):
        _hold(node, (), so_far)
        return
    reference = await control.free_answer(asked.sequence, limit=CANARY_TOKENS)
    if reference is not None:
        found = signs(answer, _free(reference, CANARY_TOKENS), asked.case)
        so_far.again = bool(found) and so_far.answers < MOST
        _hold(node, found, so_far)


async def _structured(node: Server, control: Server, asked: Question, so_far: SetCanary) -> None:
    """One whole answer to a prompt with a schema; a broken one counts where the baseline's own is sound."""
    limit = affordable(so_far.token_seconds)
    given = await node.free_answer(asked.sequence, limit=limit) if limit else None
    if given is None or asked.schema is None:
        return
    so_far.answers, so_far.structured = so_far.answers + 1, so_far.structured + 1
    answer = _free(given, limit)
    wrong = None if answer.cut else fault(answer.text, asked.schema)
    if wrong is None and not answer.cut and not suspicious(answer, asked.case, expected=limit):
        return
    control_answer = await control.free_answer(asked.sequence, limit=limit)
    if control_answer is None:
        return
    reference = _free(control_answer, limit)
    found = signs(answer, reference, asked.case)
    if wrong is not None and reference.ended and fault(reference.text, asked.schema) is None:
        found += (Seen(wrong[0], f"{wrong[1]}: {quote(answer.text)}", asked.sequence.prompt_id),)
    so_far.again = so_far.again or bool(found)
    _hold(node, found, so_far)


def affordable(token_seconds: float | None) -> int:
    """Tokens that a whole answer may have on this node, 0 where it is too slow for any or did not answer at all."""
    if token_seconds is None:
        return 0
    most = int(STRUCTURED_SECONDS / token_seconds) if token_seconds > 0 else STRUCTURED_TOKENS
    return min(most, STRUCTURED_TOKENS) if most >= STRUCTURED_LEAST else 0


def _free(given: Generation, limit: int) -> FreeAnswer:
    return FreeAnswer(given.ids, given.text, limit, given.finish_reason)


def _hold(node: Server, found: tuple[Seen, ...], so_far: SetCanary) -> None:
    """Remember what an answer showed; a proof is held against the node, one an answer, and so is one loop too many."""
    so_far.seen += found
    proof = next((one for one in found if one.weight is Weight.PROOF), None)
    loop = next((one for one in found if one.sign is Sign.LOOP), None)
    so_far.loops = so_far.loops + 1 if loop is not None else 0
    if proof is None and so_far.loops >= LOOPS:
        proof = loop
    if proof is not None:
        node.suspect(f"{node.name}: {proof.said}")
