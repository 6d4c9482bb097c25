"""Makes a reference of a baseline: every golden prompt of a task set, in every mode that its runs ask in.

What is answered is kept at once, so that an enrolment that breaks off goes on where it was. The reference counts only
when it is complete, when a second asking gave the same, and when it was one and the same baseline from first to last.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from quantwatch.clock import Clock
from quantwatch.errors import OverBudget, ReplyInvalid, StoreError
from quantwatch.flow.identity import Identity
from quantwatch.flows.enrolling import Enrolling, NotEnrolled, patiently, refuse_repeats
from quantwatch.flows.fit import misfit, modes_of
from quantwatch.flows.golden import GoldenMaker
from quantwatch.flows.plan import Progress
from quantwatch.flows.watched import WatchedSet
from quantwatch.judge.conclude import MAX_MISSING
from quantwatch.probe.contract import Prober
from quantwatch.probe.handshake import Introduction, introduce
from quantwatch.record.continuations import Continuations, fingerprint
from quantwatch.record.reference_file import Reference, load
from quantwatch.record.reference_folder import Parts, ReferenceFolder, joined


class Ending(StrEnum):
    """How the enrolment of a task set ended. KEPT: there was a reference that fits already."""

    ENROLLED = "enrolled"
    KEPT = "kept"
    REFUSED = "refused"
    UNFINISHED = "unfinished"


@dataclass(frozen=True, slots=True)
class Enrolled:
    """What came of one task set. there: prompts that had their answers from an earlier attempt. reason: in words.

    misconfigured: a person has to correct key, address or model name.
    """

    task_set: str
    ending: Ending
    reason: str
    reference: Reference | None = None
    there: int = 0
    misconfigured: bool = False


@dataclass(frozen=True, slots=True)
class Enroller:
    """Enrols one baseline. asked_k: log-probabilities a position. anew: also where a reference fits already."""

    baseline: Prober
    folder: ReferenceFolder
    clock: Clock
    asked_k: int
    anew: bool = False
    tell: Callable[[Progress], None] = lambda _: None

    async def enroll(self, wanted: WatchedSet) -> Enrolled:
        """Make the reference of a task set. Raises StoreError for trouble with the disk."""
        self.tell(Progress(0, len(wanted.prompts.prompts), f"{wanted.name}: handshake"))
        try:
            met = await self._greeted(wanted)
        except NotEnrolled as exc:
            return _ended(wanted, exc)
        kept = self._kept(wanted, met)
        if kept is not None:
            return Enrolled(wanted.name, Ending.KEPT, "it fits already; --force enrols it again", kept)
        blank = self._blank(wanted, met)
        parts = self.folder.parts(_key(blank))
        there = sum(_answered(parts.get(prompt.id)) for prompt in wanted.prompts.prompts)
        try:
            whole = self.folder.put(await self._whole(wanted, blank, parts))
        except NotEnrolled as exc:
            if exc.final:
                self.folder.remove(parts.folder)  # the next attempt must not build on what is in doubt
            return replace(_ended(wanted, exc), there=there)
        self.folder.remove(parts.folder)
        return Enrolled(wanted.name, Ending.ENROLLED, _told(whole), whole, there)

    async def _greeted(self, wanted: WatchedSet) -> Introduction:
        """Let the baseline introduce itself. Raises NotEnrolled."""
        modes = modes_of(wanted)
        try:
            return await patiently(lambda: introduce(self.baseline, k=self.asked_k, modes=modes), self.clock)
        except (OverBudget, ReplyInvalid) as exc:
            raise NotEnrolled(str(exc), final=False) from exc

    def _kept(self, wanted: WatchedSet, met: Introduction) -> Reference | None:
        """The reference that counts, where it is of this baseline and fits; a damaged one is made anew."""
        path = self.folder.path(wanted.name)
        if self.anew or not path.is_file():
            return None
        try:
            known = load(path)
        except StoreError:
            return None
        same = known.fingerprint == fingerprint(met.identity) and known.asked_k >= self.asked_k
        return known if same and misfit(known, wanted) is None else None

    def _blank(self, wanted: WatchedSet, met: Introduction) -> Reference:
        return Reference(
            name=wanted.name,
            baseline=met.identity,
            pool=wanted.prompts.digest,
            k=met.k,
            asked_k=self.asked_k,
            modes=modes_of(wanted),
            continuation_tokens=wanted.continuation_tokens,
            positions=wanted.positions,
            made=self.clock.now(),
            prompts=(),
            answers={},
            left_out={},
        )

    async def _whole(self, wanted: WatchedSet, blank: Reference, parts: Parts) -> Reference:
        answers = Continuations(parts.folder, blank.baseline)
        maker = GoldenMaker(self.baseline, answers, limit=wanted.continuation_tokens)
        work = Enrolling(self.baseline, maker, blank, self.clock)
        prompts, found = wanted.prompts.prompts, []
        for done, prompt in enumerate(prompts):
            self.tell(Progress(done, len(prompts), f"{wanted.name}: {prompt.id}"))
            part = parts.get(prompt.id)
            if part is None or not _answered(part):
                part = await work.part(prompt)
                parts.put(part)
            found.append(part)
            refuse_repeats(found, pool=len(prompts))
        whole = joined(found, made=self.clock.now())
        _refuse_gaps(whole)
        self.tell(Progress(len(prompts), len(prompts), f"{wanted.name}: asking again"))
        await work.steady(whole)
        await self._still(wanted, blank.baseline)
        return whole

    async def _still(self, wanted: WatchedSet, identity: Identity) -> None:
        """Whoever answered first must be who answers now. Raises NotEnrolled."""
        met = await self._greeted(wanted)
        if fingerprint(met.identity) != fingerprint(identity):
            raise NotEnrolled("another baseline answered at the end than at the beginning", final=True)


def _answered(part: Reference | None) -> bool:
    """Whether a prompt has all its answers; what was left out is asked again in the next attempt."""
    return part is not None and not any(part.left_out.values())


def _key(blank: Reference) -> str:
    """What must be equal for single prompts of an earlier attempt to be taken over."""
    asked = [blank.pool, blank.k, blank.modes, blank.continuation_tokens, blank.positions]
    whose = [blank.name, blank.fingerprint, *asked]
    return f"{blank.name}-{hashlib.sha256(json.dumps(whose).encode()).hexdigest()[:16]}"


def _ended(wanted: WatchedSet, exc: NotEnrolled) -> Enrolled:
    ending = Ending.REFUSED if exc.final else Ending.UNFINISHED
    return Enrolled(wanted.name, ending, exc.reason, misconfigured=exc.misconfigured)


def _refuse_gaps(whole: Reference) -> None:
    """A reference that lacks too many prompts does not stand for the pool. Raises NotEnrolled."""
    for mode, said in whole.left_out.items():
        if len(said) > MAX_MISSING * len(whole.prompts):
            (reason, _), *_ = Counter(said.values()).most_common(1)
            gap = f"{len(said)} of {len(whole.prompts)} prompts gave nothing in mode {mode}, most of them: {reason}"
            raise NotEnrolled(gap, final=True)


def _told(whole: Reference) -> str:
    """What was enrolled, in words, with whatever is less than what was asked for."""
    said = f"{len(whole.prompts)} prompts, {whole.k} log-probabilities a position, {' and '.join(whole.modes)}"
    if whole.k < whole.asked_k:
        said += f"; the server gives {whole.k} of the {whole.asked_k} asked for (--max-logprobs)"
    gaps = {name for left_out in whole.left_out.values() for name in left_out}
    return said + (f"; left out in a mode: {', '.join(sorted(gaps))}" if gaps else "")
