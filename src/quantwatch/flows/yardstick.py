"""Holds the baseline against its own stored answers: a yardstick that has changed measures nobody.

The first run against a baseline keeps its answers to a few golden prompts of each task set, and the first clean run
proves them: baseline and node would hardly agree on wrong numbers. Later runs ask one of them again, in turn; a run
that breaches and one that confirms ask all. Another fingerprint (model, version, tokenizer) is another baseline,
enrolled and proven anew; other numbers under the same fingerprint are drift.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from quantwatch.clock import Clock
from quantwatch.flow.check import Check
from quantwatch.flow.distribution import Distribution
from quantwatch.flow.divergence import Evidence
from quantwatch.flow.observation import Missing
from quantwatch.flow.prompt import GoldenSequence, ProbeMode, Prompt
from quantwatch.flows.ask import Server
from quantwatch.flows.golden import GoldenMaker
from quantwatch.flows.plan import Plan, ask_for
from quantwatch.flows.shelf import Shelf
from quantwatch.flows.spans import traced_check
from quantwatch.flows.watched import WatchedSet
from quantwatch.judge.yardstick import drifted
from quantwatch.measure.compare import Pair, Scope, measure
from quantwatch.probe.contract import Ask
from quantwatch.record.continuations import fingerprint
from quantwatch.record.references import StoredAnswer

KEPT = 4
"""Golden prompts of each task set whose answers are kept."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What a check works with: the baseline, what makes its golden sequences, and how the set is asked."""

    baseline: Server
    maker: GoldenMaker
    plan: Plan


Key = tuple[str, str, int, str]
"""Fingerprint of the baseline, digest of the prompts, the baseline's own k, mode."""

ANY = "any"
"""In place of a fingerprint: whichever baseline is met next."""


@dataclass(slots=True)
class Kept:
    """Answers under one key. proven: a clean run has shown that they are right, or a person has said so."""

    answers: list[StoredAnswer]
    proven: bool


class Yardstick:
    """The answers of one baseline. What is proven is kept in the store; what is new waits for proof in memory."""

    def __init__(self, shelf: Shelf, clock: Clock) -> None:
        self._shelf = shelf
        self._clock = clock
        self._kept: dict[Key, Kept] = {}
        self._next: dict[Key, int] = {}
        self._accepted: str | None = None
        self._one_at_a_time = asyncio.Lock()

    def accept(self) -> None:
        """Take the answers of the baseline that is met next for proven: a person says that it is right as it is now."""
        self._kept.clear()
        self._accepted = ANY

    def _is_accepted(self, print_: str) -> bool:
        """Whether a person's word holds for this baseline; it is bound to the first that is met."""
        if self._accepted == ANY:
            self._accepted = print_
        return self._accepted == print_

    async def check(self, bench: Bench, wanted: WatchedSet, *, thorough: bool, clean: bool) -> Check:
        """Ask the baseline again what it once answered; the first time, keep what it answers. May raise StoreError.

        thorough: ask all that is kept. clean: the run found baseline and node in agreement, which proves new answers.
        """
        return await traced_check(self._check(bench, wanted, thorough=thorough, clean=clean))

    async def _check(self, bench: Bench, wanted: WatchedSet, *, thorough: bool, clean: bool) -> Check:
        assert bench.baseline.introduction is not None  # noqa: S101, callers have checked; this is for the type checker
        print_, k = fingerprint(bench.baseline.introduction.identity), bench.baseline.introduction.k
        key = (print_, wanted.prompts.digest, k, wanted.mode.value)
        async with self._one_at_a_time:
            if key not in self._kept:
                stored = await self._shelf.load(print_, wanted.prompts.digest)
                found = [one for one in stored if one.k <= k and one.mode is wanted.mode]
                self._kept[key] = Kept(found, proven=bool(found))
            kept = self._kept[key]
            if not kept.answers:
                return await self._enrol(bench, wanted, key, proven=clean or self._is_accepted(print_))
        check = await self._compare(bench, wanted, self._asked(key, thorough=thorough or not kept.proven))
        if check.sound and not kept.proven:
            new = replace(check, sound=None, thorough=True, new=True)
            return await self._proven(key, kept, check) if clean else new
        return replace(check, thorough=thorough)

    def _asked(self, key: Key, *, thorough: bool) -> list[StoredAnswer]:
        answers = self._kept[key].answers
        if thorough:
            return answers
        place = self._next[key] = self._next.get(key, -1) + 1
        return [answers[place % len(answers)]]

    async def _enrol(self, bench: Bench, wanted: WatchedSet, key: Key, *, proven: bool) -> Check:
        answers = []
        for prompt in wanted.prompts.prompts[:KEPT]:
            answer = await self._first(bench, prompt)
            if answer is not None:
                answers.append(answer)
        if not answers:
            return Check(self._clock.now(), sound=None)
        kept = self._kept[key] = Kept(answers, proven=False)
        new = Check(self._clock.now(), sound=None, thorough=True, new=True)
        return await self._proven(key, kept, new) if proven else new

    async def _proven(self, key: Key, kept: Kept, check: Check) -> Check:
        """From now on these answers are what the baseline is held against."""
        await self._shelf.keep(key[0], key[1], kept.answers)
        kept.proven = True
        return replace(check, sound=True, new=False, thorough=True)

    async def _first(self, bench: Bench, prompt: Prompt) -> StoredAnswer | None:
        """The baseline's answer to a prompt, fit to be kept."""
        sequence = await bench.baseline.guarded(prompt.id, lambda: bench.maker.sequence(prompt), clears=False)
        if isinstance(sequence, Missing):
            return None
        assert bench.baseline.introduction is not None  # noqa: S101, as above
        k = bench.baseline.introduction.k
        answer = await self._answer(bench, sequence, ask_for(sequence, bench.plan, bench.plan.sets[0].mode, k))
        if answer is None:
            return None
        return StoredAnswer(
            prompt_id=prompt.id,
            k=k,
            mode=answer.mode,
            sequence=sequence.ids,
            prompt_length=sequence.prompt_length,
            made=self._clock.now(),
            distribution=answer,
        )

    async def _answer(self, bench: Bench, sequence: GoldenSequence, ask: Ask) -> Distribution | None:
        answer = await bench.baseline.ask(sequence, ask)
        return None if isinstance(answer, Missing) or answer.marks else answer

    async def _compare(self, bench: Bench, wanted: WatchedSet, kept: Sequence[StoredAnswer]) -> Check:
        pairs = []
        for then in kept:
            again = GoldenSequence(then.prompt_id, then.sequence, then.prompt_length)
            scoring = then.mode is ProbeMode.PROMPT_SCORING
            places = () if scoring else tuple(then.distribution.positions)
            now = await self._answer(bench, again, Ask(then.mode, then.k, places))
            if now is not None and now.positions == then.distribution.positions:
                pairs.append(Pair(then.distribution, now))
        if not pairs:
            return Check(self._clock.now(), sound=None)
        found = await asyncio.to_thread(measure, pairs, scope=Scope.CONTINUATION, evidence=Evidence.CENSUS)
        drift = found.kl_mean.value
        trouble = drifted(drift, wanted.limits, since=min(one.made for one in kept))
        return Check(self._clock.now(), sound=trouble is None, drift=drift, trouble=trouble)
