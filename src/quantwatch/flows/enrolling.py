"""Asks a baseline about one golden prompt after another for its reference, and whether it can be trusted with that."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TypeVar

from quantwatch.clock import Clock
from quantwatch.errors import NodeBusy, OverBudget, ProbeError, ReplyCorrupted, ReplyInvalid
from quantwatch.flow.distribution import Distribution
from quantwatch.flow.divergence import Evidence
from quantwatch.flow.prompt import GoldenSequence, ProbeMode, Prompt
from quantwatch.flows.golden import GoldenMaker
from quantwatch.flows.plan import Plan, ask_for
from quantwatch.judge.blame import hopeless
from quantwatch.judge.yardstick import FLOOR
from quantwatch.measure.compare import Pair, Scope, measure
from quantwatch.measure.corruption import one_id_to_the_limit
from quantwatch.probe.contract import Prober
from quantwatch.probe.cost import CANARY_TOKENS, STRUCTURED_TOKENS
from quantwatch.record.reference_file import FreeAnswer, Reference
from quantwatch.record.references import StoredAnswer

T = TypeVar("T")

SEED = 0
"""Of the sampled positions: every enrolment of a pool asks at the same ones."""

AGAIN = 4
"""Prompts, spread over the pool, that are asked a second time."""

REPEATS = 2
"""Prompts whose answer is one token over and over, from which on a baseline is not enrolled."""

BUSY_SECONDS = 5.0
BUSY_TIMES = 120
"""How long, and how often, a busy baseline is waited for; whoever enrols has time."""


class NotEnrolled(Exception):
    """No reference came of it. final: the baseline cannot be trusted; else trying again can help.

    misconfigured: once a person has corrected key, address or model name.
    """

    def __init__(self, reason: str, *, final: bool, misconfigured: bool = False) -> None:
        self.reason = reason
        self.final = final
        self.misconfigured = misconfigured
        super().__init__(reason)


async def patiently(action: Callable[[], Awaitable[T]], clock: Clock) -> T:
    """Wait for a busy baseline. Raises OverBudget and ReplyInvalid, which are of one prompt; else NotEnrolled."""
    for _ in range(BUSY_TIMES):
        try:
            return await action()
        except NodeBusy as exc:
            busy = exc
            await clock.sleep(BUSY_SECONDS)
        except (OverBudget, ReplyInvalid):
            raise
        except ReplyCorrupted as exc:
            raise NotEnrolled(f"the baseline's own numbers are broken: {exc}", final=True) from exc
        except ProbeError as exc:
            raise NotEnrolled(str(exc), final=False, misconfigured=hopeless(exc)) from exc
    raise NotEnrolled(str(busy), final=False)


@dataclass(frozen=True, slots=True)
class Enrolling:
    """One enrolment under way. blank: the reference without any answers."""

    baseline: Prober
    maker: GoldenMaker
    blank: Reference
    clock: Clock

    async def part(self, prompt: Prompt) -> Reference:
        """The reference of one prompt. Raises NotEnrolled."""
        made, free = self.clock.now(), await self._free(prompt)
        sequence = await self._sequence(prompt)
        answers: dict[ProbeMode, dict[str, StoredAnswer]] = {}
        left_out: dict[ProbeMode, dict[str, str]] = {}
        for mode in self.blank.modes:
            answers[mode], left_out[mode] = {}, {}
            found = sequence if isinstance(sequence, str) else await self._answer(sequence, mode)
            if isinstance(found, str):
                left_out[mode][prompt.id] = found
            else:
                answers[mode][prompt.id] = found
        whole = replace(self.blank, prompts=(prompt.id,), answers=answers, left_out=left_out, made=made)
        return replace(whole, free={prompt.id: free})

    async def steady(self, whole: Reference) -> None:
        """Ask a few prompts a second time. Raises NotEnrolled for a baseline that answers otherwise than before."""
        for mode in whole.modes:
            pairs = [await self._pair(one) for one in _spread(list(whole.answers[mode].values()))]
            found = await asyncio.to_thread(measure, pairs, scope=Scope.CONTINUATION, evidence=Evidence.CENSUS)
            drift = found.kl_mean.value
            if not drift <= FLOOR:
                raise NotEnrolled(
                    f"unstable baseline: asked a second time in mode {mode}, its answers differ by a mean KL of "
                    f"{drift:.4g} nats, over {FLOOR:g}; is it one server, and did it stay the same?",
                    final=True,
                )

    async def _free(self, prompt: Prompt) -> tuple[FreeAnswer, ...]:
        """Short and, for a prompt with a schema, whole: as runs let a node answer."""
        found = []
        for limit in (CANARY_TOKENS, STRUCTURED_TOKENS)[: 1 if prompt.answer_schema is None else 2]:
            with contextlib.suppress(OverBudget, ReplyInvalid):
                ids = await self._patiently(lambda: self.baseline.tokenize(prompt))
                given = await self._patiently(partial(self.baseline.generate, ids, limit=limit))
                found.append(FreeAnswer(limit, given.ids, given.text, given.finish_reason))
        return tuple(found)

    async def _sequence(self, prompt: Prompt) -> GoldenSequence | str:
        """The golden sequence, or why there is none."""
        try:
            return await self._patiently(lambda: self.maker.sequence(prompt))
        except (OverBudget, ReplyInvalid) as exc:
            return exc.reason

    async def _answer(self, sequence: GoldenSequence, mode: ProbeMode) -> StoredAnswer | str:
        """What it answers in a mode, or why there is nothing."""
        plan = Plan(sets=(), limits={}, seed=SEED, positions=self.blank.positions)
        ask = ask_for(sequence, plan, mode, self.blank.k)
        try:
            found = await self._patiently(lambda: self.baseline.distribution(sequence, ask))
        except (OverBudget, ReplyInvalid) as exc:
            return exc.reason
        if found.marks:
            mark = found.marks[0]
            said = f"{len(found.marks)} corrupted positions in {sequence.prompt_id}: {mark.kind}, {mark.detail}"
            raise NotEnrolled(f"the baseline's own numbers are broken ({said}); repair it first", final=True)
        return _stored(sequence, found, self.clock.now())

    async def _pair(self, one: StoredAnswer) -> Pair:
        again = await self._answer(GoldenSequence(one.prompt_id, one.sequence, one.prompt_length), one.mode)
        if isinstance(again, str):
            raise NotEnrolled(f"the second asking of {one.prompt_id} gave nothing to compare: {again}", final=False)
        return Pair(one.distribution, again.distribution)

    async def _patiently(self, action: Callable[[], Awaitable[T]]) -> T:
        return await patiently(action, self.clock)


def refuse_repeats(parts: list[Reference], *, pool: int) -> None:
    """One prompt may make a sound model repeat one token, two show that it is broken. Raises NotEnrolled."""
    same = [
        name
        for part in parts
        for name, given in part.free.items()
        for one in given
        if one_id_to_the_limit(one.ids, one.limit)
    ]
    names = sorted(set(same))
    if len(names) >= min(REPEATS, pool):
        said = f"the baseline answers {' and '.join(names)} with one token over and over; repair it first"
        raise NotEnrolled(said, final=True)


def _spread(answers: list[StoredAnswer]) -> list[StoredAnswer]:
    """A few of them, from the first to the last."""
    step = max(1, (len(answers) - 1) // (AGAIN - 1)) if answers else 1
    return answers[::step][:AGAIN]


def _stored(sequence: GoldenSequence, found: Distribution, made: datetime) -> StoredAnswer:
    return StoredAnswer(
        prompt_id=sequence.prompt_id,
        k=found.k,
        mode=found.mode,
        sequence=sequence.ids,
        prompt_length=sequence.prompt_length,
        made=made,
        distribution=found,
    )
