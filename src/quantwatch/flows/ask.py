"""Asks one server and keeps its record: what it refused, signs of broken numbers, when to stop asking it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from quantwatch.errors import ProbeError
from quantwatch.flow.distribution import Distribution
from quantwatch.flow.observation import Missing
from quantwatch.flow.prompt import GoldenSequence
from quantwatch.flow.verdict import Quality
from quantwatch.judge.blame import hopeless, quality_of
from quantwatch.measure.corruption import one_id_to_the_limit
from quantwatch.probe.confirm import sight
from quantwatch.probe.contract import Ask, Prober
from quantwatch.probe.cost import CANARY_TOKENS
from quantwatch.probe.handshake import Introduction, introduce
from quantwatch.probe.strikes import Strikes

T = TypeVar("T")


@dataclass(slots=True)
class Server:
    """One server in a run. stopped: why it is asked nothing more. corruption: the first sign of broken numbers."""

    prober: Prober
    introduction: Introduction | None = None
    stopped: Missing | None = None
    misconfigured: bool = False
    corruption: str | None = None
    confirmed: bool = False
    repeats_itself: bool = False
    strikes: Strikes = field(default_factory=Strikes)

    @property
    def name(self) -> str:
        """How messages call the server."""
        return self.prober.name

    async def greet(self, k: int) -> None:
        """Let the server introduce itself; a broken first answer is asked for once more."""
        met = await self.guarded("handshake", lambda: introduce(self.prober, k=k))
        if isinstance(met, Missing) and self.corruption is not None:
            met = await self.guarded("handshake", lambda: introduce(self.prober, k=k))
        if isinstance(met, Missing):
            self.stopped = self.stopped or met
        else:
            self.introduction = met

    async def ask(self, sequence: GoldenSequence, ask: Ask) -> Distribution | Missing:
        """The distribution of a sequence, or why there is none."""
        if self.stopped is not None:
            return Missing(sequence.prompt_id, self.stopped.quality, self.stopped.reason)
        seen = await self.guarded(sequence.prompt_id, lambda: sight(lambda: self.prober.distribution(sequence, ask)))
        if isinstance(seen, Missing):
            return seen
        if seen.corruption is not None:
            self._suspect(seen.corruption, confirmed=seen.confirmed)
        if seen.distribution is None:
            return Missing(sequence.prompt_id, self._doubt, seen.corruption or "")
        return seen.distribution

    @property
    def _doubt(self) -> Quality:
        """What a corrupted answer stands for: corruption once confirmed, before that nothing that can be told."""
        return Quality.CORRUPTED if self.confirmed else Quality.INCONCLUSIVE

    async def canary(self, sequence: GoldenSequence, control: "Server") -> None:
        """Let the server answer freely: one id to the limit is a sign of broken numbers, unless the control does it.

        Asked where a task set begins, and once more on the next sequence after a sign. control: the baseline, asked the
        same only when the server repeated itself; without its answer there is no sign.
        """
        answer = await self.free_answer(sequence)
        if not answer:
            return
        self.repeats_itself = one_id_to_the_limit(answer, CANARY_TOKENS)
        if not self.repeats_itself:
            return
        reference = await control.free_answer(sequence)
        self.repeats_itself = bool(reference) and not one_id_to_the_limit(reference, CANARY_TOKENS)
        if self.repeats_itself:
            self._suspect(f"{self.name}: a free answer is token {answer[0]}, {len(answer)} times over")

    async def free_answer(self, sequence: GoldenSequence) -> tuple[int, ...]:
        """A short greedy answer to the sequence's prompt; empty where there is none."""
        prompt = sequence.ids[: sequence.prompt_length]
        answer = await self.guarded(sequence.prompt_id, lambda: self.prober.generate(prompt, limit=CANARY_TOKENS))
        return () if isinstance(answer, Missing) else answer

    async def guarded(self, prompt_id: str, action: Callable[[], Awaitable[T]], *, clears: bool = True) -> T | Missing:
        """Do something with the server, turning its trouble into a record.

        clears: success wipes out earlier failures; not so where it may have come without asking the model.
        """
        try:
            result = await action()
        except ProbeError as exc:
            return self._note(prompt_id, exc)
        if clears:
            self.strikes.answered()
        return result

    def _note(self, prompt_id: str, error: ProbeError) -> Missing:
        missing = Missing(prompt_id, quality_of(error), str(error))
        if missing.quality is Quality.CORRUPTED:
            self._suspect(missing.reason)
            return replace(missing, quality=self._doubt)
        if hopeless(error) or self.strikes.failed(error):
            self.misconfigured = hopeless(error)
            said = missing.reason if self.misconfigured else f"{missing.reason} (left alone after repeated failures)"
            self.stopped = replace(missing, reason=said)
        return missing

    def signs(self) -> tuple[str | None, bool, Missing | None]:
        """What is held against the server so far."""
        return self.corruption, self.confirmed, self.stopped

    def forgive(self, signs: tuple[str | None, bool, Missing | None]) -> None:
        """Take back what was held against the server since: its baseline showed the same."""
        self.corruption, self.confirmed, self.stopped = signs

    def _suspect(self, said: str, *, confirmed: bool = False) -> None:
        """A second sign, from a repeated or another probe, confirms the first."""
        self.confirmed = confirmed or self.corruption is not None
        self.corruption = self.corruption or said
        if self.confirmed:
            reason = f"not asked: {self.name} computes broken numbers, and more probes could spread them"
            self.stopped = Missing("", Quality.SKIPPED, reason)
