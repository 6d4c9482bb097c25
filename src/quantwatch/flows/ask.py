"""Asks one server and keeps its record: what it refused, signs of broken numbers, when to stop asking it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
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
from quantwatch.probe.handshake import Introduction, introduce
from quantwatch.probe.strikes import Strikes

CANARY_TOKENS = 32

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
            return Missing(sequence.prompt_id, Quality.CORRUPTED, seen.corruption or "")
        return seen.distribution

    async def canary(self, sequence: GoldenSequence) -> None:
        """Let the server answer freely: one id to the limit is a sign of broken numbers, unless the baseline does it.

        Asked where a task set begins, and once more on the next sequence after a sign.
        """
        prompt = sequence.ids[: sequence.prompt_length]
        if one_id_to_the_limit(sequence.continuation[:CANARY_TOKENS], CANARY_TOKENS):
            return
        answer = await self.guarded(sequence.prompt_id, lambda: self.prober.generate(prompt, limit=CANARY_TOKENS))
        self.repeats_itself = not isinstance(answer, Missing) and one_id_to_the_limit(answer.ids, CANARY_TOKENS)
        if self.repeats_itself and not isinstance(answer, Missing):
            self._suspect(f"{self.name}: a free answer is token {answer.ids[0]}, {len(answer.ids)} times over")

    async def guarded(self, prompt_id: str, action: Callable[[], Awaitable[T]]) -> T | Missing:
        """Do something with the server, turning its trouble into a record."""
        try:
            result = await action()
        except ProbeError as exc:
            return self._note(prompt_id, exc)
        self.strikes.answered()
        return result

    def _note(self, prompt_id: str, error: ProbeError) -> Missing:
        missing = Missing(prompt_id, quality_of(error), str(error))
        if missing.quality is Quality.CORRUPTED:
            self._suspect(missing.reason)
        elif hopeless(error) or self.strikes.failed(error):
            self.misconfigured = hopeless(error)
            self.stopped = missing
        return missing

    def _suspect(self, said: str, *, confirmed: bool = False) -> None:
        """A second sign, from a repeated or another probe, confirms the first."""
        self.confirmed = confirmed or self.corruption is not None
        self.corruption = self.corruption or said
        if self.confirmed:
            reason = f"not asked: {self.name} computes broken numbers, and more probes could spread them"
            self.stopped = Missing("", Quality.SKIPPED, reason)
