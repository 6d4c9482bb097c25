"""Holds a live baseline against its enrolled answers now and then: one that has changed needs another enrolment."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from quantwatch.clock import Clock
from quantwatch.flow.check import Check
from quantwatch.flow.divergence import Evidence
from quantwatch.flow.observation import Missing
from quantwatch.flow.prompt import GoldenSequence, ProbeMode
from quantwatch.flow.reference import ReferenceState, SelfChecked
from quantwatch.flow.verdict import Limit, Metric
from quantwatch.flows.ask import Server
from quantwatch.flows.generation import Generation
from quantwatch.flows.library import ENROLL, Library
from quantwatch.flows.memory import Memory
from quantwatch.flows.rollout import expected
from quantwatch.flows.watched import WatchedSet, Watchlist
from quantwatch.judge.yardstick import drifted
from quantwatch.log import logger
from quantwatch.measure.compare import Pair, Scope, measure
from quantwatch.probe.contract import Ask
from quantwatch.record.continuations import fingerprint
from quantwatch.record.reference_file import Reference
from quantwatch.record.references import StoredAnswer

log = logger()

SECOND_LOOK = 4
"""Prompts that are asked where one alone speaks of drift: a moment's load must not stop everything."""


async def self_check(generation: Generation, memory: Memory, *, thorough: bool = False) -> None:
    """Hold the baseline of a configuration against its enrolled answers, if there are any."""
    turn = generation.turn
    if turn.library is None:
        return
    generation.users += 1
    try:
        check = SelfCheck(generation.watchlist, turn.library, memory, turn.clock, turn.timeout_seconds, thorough)
        await check.look()
    finally:
        await generation.leave()


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """Asks the baseline of a configuration for its identity and for one enrolled prompt of each task set, in turn.

    thorough: as many prompts at once as are asked where one speaks of drift.
    """

    watchlist: Watchlist
    library: Library
    memory: Memory
    clock: Clock
    timeout_seconds: float
    thorough: bool = False

    async def look(self) -> None:
        """One round over all task sets. A baseline that does not answer is noted, and its answers go on to count."""
        held = [(one, found) for one in self._sets() if (found := await self.library.reference(one)) is not None]
        if not held:
            self.memory.baseline_answers = None
            return
        server = Server(self.watchlist.baseline)
        try:
            async with asyncio.timeout(self.timeout_seconds):
                await server.greet(max(one.k for one, _ in held), {one.mode for one, _ in held})
                self._note(server)
                for wanted, reference in held:
                    await self._hold(server, wanted, reference)
        except TimeoutError:
            log.warning("the self-check of the references took too long", seconds=self.timeout_seconds)
        await server.look_back()

    def _sets(self) -> list[WatchedSet]:
        """Every task set once, with the strictest limits that any target has."""
        every = [one for target in self.watchlist.targets.values() for one in target.sets.values()]
        return list({one.name: one for one in sorted(every, key=_warning, reverse=True)}.values())

    def _note(self, server: Server) -> None:
        self.memory.baseline_answers = server.introduction is not None
        self.memory.silent = None if self.memory.baseline_answers else self.clock.now()
        if server.introduction is None:
            why = server.corruption or (server.stopped.reason if server.stopped is not None else "it did not answer")
            log.info("the baseline was not checked; its enrolled answers go on to count", reason=why)

    async def _hold(self, server: Server, wanted: WatchedSet, reference: Reference) -> None:
        if server.introduction is None:
            return
        old = self.memory.self_checks.get(wanted.name)
        old = old if old is not None and old.digest == reference.digest else None
        if fingerprint(server.introduction.identity) != reference.fingerprint:
            found = self._changed(reference)
        else:
            asked = await self._drift(server, wanted, reference, old=old)
            if asked is None:
                return
            found = asked
        self.memory.self_checks[wanted.name] = found
        await self.library.reference(wanted)  # what is shown follows at once
        if found.trouble is not None and (old is None or old.trouble is None):
            now = self.clock.now()
            calm = expected(self.memory.pausing(now), now=now) is not None
            tell = log.info if calm else log.warning
            tell("enrolled answers do not count any longer", task_set=wanted.name, reason=found.trouble, rollout=calm)

    def _changed(self, reference: Reference) -> SelfChecked:
        then = reference.baseline
        said = (
            f"reference_changed: another baseline answers than the one that was enrolled ({then.model}, version "
            f"{then.version}); run `{ENROLL}`"
        )
        check = Check(self.clock.now(), sound=False, trouble=said)
        return SelfChecked(reference.digest, ReferenceState.CHANGED, check, said)

    async def _drift(
        self, server: Server, wanted: WatchedSet, reference: Reference, *, old: SelfChecked | None
    ) -> SelfChecked | None:
        """What one prompt says, or a few where it speaks of drift; None where the baseline gave nothing to compare."""
        answers, turn = list(reference.answers[wanted.mode].values()), old.turn if old is not None else 0
        doubted = old is not None and old.trouble is not None
        trouble, drift = None, None
        for count in (SECOND_LOOK,) if doubted or self.thorough else (1, SECOND_LOOK):
            chosen = [answers[(turn + i) % len(answers)] for i in range(min(count, len(answers)))]
            drift = await _divergence(server, chosen, k=wanted.k)
            if drift is None:
                return None
            cure = f"`{ENROLL} --force`"
            trouble = drifted(drift, wanted.limits, since=reference.made, cure=cure)
            if trouble is None:
                break
        said = None if trouble is None else f"reference_drifted: {trouble}"
        check = Check(self.clock.now(), sound=trouble is None, drift=drift, trouble=said)
        state = ReferenceState.STORED if trouble is None else ReferenceState.DRIFTED
        return SelfChecked(reference.digest, state, check, said, turn + 1)


async def _divergence(server: Server, then: Sequence[StoredAnswer], *, k: int) -> float | None:
    """Mean KL(then || now) in nats over the positions of a few answers; None where none was given again."""
    assert server.introduction is not None  # noqa: S101, the caller has checked; this is for the type checker
    pairs = []
    for one in then:
        again = GoldenSequence(one.prompt_id, one.sequence, one.prompt_length)
        places = () if one.mode is ProbeMode.PROMPT_SCORING else tuple(one.distribution.positions)
        now = await server.ask(again, Ask(one.mode, min(k, server.introduction.k, one.k), places))
        if not isinstance(now, Missing) and not now.marks and now.positions == one.distribution.positions:
            pairs.append(Pair(one.distribution, now))
    if not pairs:
        return None
    found = await asyncio.to_thread(measure, pairs, scope=Scope.CONTINUATION, evidence=Evidence.CENSUS)
    return found.kl_mean.value


def _warning(one: WatchedSet) -> float:
    """The warning limit of the mean KL; infinite where there is none."""
    warn = one.limits.get(Metric.KL_MEAN, Limit()).warn
    return float("inf") if warn is None else warn
