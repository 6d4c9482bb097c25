"""Asks one server and keeps its record: what it refused, signs of broken numbers, when to stop asking it."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field, replace
from typing import TypeVar

from quantwatch.errors import NodeBusy, NodeRestarted, ProbeError
from quantwatch.flow.distribution import Distribution
from quantwatch.flow.identity import Identity
from quantwatch.flow.load import Load
from quantwatch.flow.observation import Missing
from quantwatch.flow.prompt import GoldenSequence, ProbeMode
from quantwatch.flow.verdict import Quality
from quantwatch.flows.spans import asking, role
from quantwatch.flows.stored import StoredBaseline
from quantwatch.judge.blame import hopeless, quality_of
from quantwatch.probe.budget import RESTARTED, RESTARTED_ADVICE
from quantwatch.probe.confirm import sight
from quantwatch.probe.contract import Ask, Generation, Prober
from quantwatch.probe.handshake import Introduction, introduce
from quantwatch.probe.ledger import Ledger
from quantwatch.probe.strikes import Strikes
from quantwatch.trace import step

T = TypeVar("T")


@dataclass(slots=True)
class Server:
    """One server in a run. stopped: why it is asked nothing more. corruption: the first sign of broken numbers.

    identity: who it says it is, without the tokenizer where its introduction failed further on. turns: sequences asked
    so far, from a number of the draw on, which decides the data-parallel rank of the next one. before, after: its load
    at both ends of the run. busy: whether it had better things to do at least once. restarts: how often it had been met
    as another process when the run began.
    """

    prober: Prober
    turns: int = 0
    identity: Identity | None = None
    introduction: Introduction | None = None
    stopped: Missing | None = None
    misconfigured: bool = False
    corruption: str | None = None
    confirmed: bool = False
    strikes: Strikes = field(default_factory=Strikes)
    ledger: Ledger = field(default_factory=Ledger)
    before: Load | None = None
    after: Load | None = None
    busy: bool = False
    restarts: int | None = None

    @property
    def name(self) -> str:
        """How messages call the server."""
        return self.prober.name

    async def greet(self, k: int, modes: Collection[ProbeMode] = ()) -> None:
        """Let the server introduce itself; a broken first answer is asked for once more.

        modes: in which it will be asked.
        """
        if isinstance(self.prober, StoredBaseline):
            self.introduction = self.prober.introduction(k)
            self.identity = self.introduction.identity
            return
        if not await self.begin():
            return
        met = await self._introduced(k, modes)
        if isinstance(met, Missing) and self.corruption is not None:
            met = await self._introduced(k, modes)
        if isinstance(met, Missing):
            self.stopped = self.stopped or met
        else:
            self.introduction, self.identity = met, met.identity

    async def _introduced(self, k: int, modes: Collection[ProbeMode]) -> Introduction | Missing:
        self.ledger = Ledger()
        met = await self.guarded("handshake", lambda: introduce(self.prober, k=k, modes=modes, ledger=self.ledger))
        self.identity = self.ledger.identity or self.identity
        return met

    async def begin(self) -> bool:
        """Note load and process; whether it may be asked. One that restarted under probes is left alone for a while."""
        self.before, self.restarts = await self.prober.load(), self.prober.restarts
        resting = self.prober.resting
        if resting is not None:
            self.stopped = Missing("", Quality.SKIPPED, f"{self.name}: {resting}")
        return resting is None

    def restarted(self) -> bool:
        """Whether another process answers than at the beginning of the run."""
        return self.restarts is not None and self.prober.restarts != self.restarts

    async def look_back(self) -> None:
        """See how busy it is at the end of the run, and whether it is still the process that was asked."""
        if self.restarts is None:
            return  # it was never asked anything
        self.after = await self.prober.load()
        if self.restarted():
            self._gone("")
        elif self.after is not None and self.introduction is not None:
            self.prober.passed()

    def _gone(self, prompt_id: str) -> Missing:
        """Ask nothing more, and hold nothing against a process that is no longer there."""
        reason = str(NodeRestarted(RESTARTED, node=self.name, advice=RESTARTED_ADVICE))
        self.forgive((None, False, Missing(prompt_id, Quality.UNKNOWN, reason)))
        return Missing(prompt_id, Quality.UNKNOWN, reason)

    async def ask(self, sequence: GoldenSequence, ask: Ask) -> Distribution | Missing:
        """The distribution of a sequence, or why there is none. A rank that is named answers, else whose turn it is."""
        if self.stopped is not None:
            return Missing(sequence.prompt_id, self.stopped.quality, self.stopped.reason)
        if ask.rank is None:
            self.turns += 1
            ask = replace(ask, rank=self._rank())
        with step(f"ask {role(self.name)}", asking(self.identity, sequence, ask), outward=True) as span:
            seen = await self.guarded(
                sequence.prompt_id, lambda: sight(lambda: self.prober.distribution(sequence, ask))
            )
            if isinstance(seen, Missing):
                span.fail(seen.reason)
                return seen
        if seen.corruption is not None:
            self.suspect(seen.corruption, confirmed=seen.confirmed)
        if seen.distribution is None:
            return Missing(sequence.prompt_id, self._doubt, seen.corruption or "")
        return seen.distribution

    def _rank(self) -> int | None:
        """The rank whose turn it is; a confirming probe and a free answer go to the same one."""
        return None if self.prober.ranks < 2 else self.turns % self.prober.ranks

    @property
    def _doubt(self) -> Quality:
        """What a corrupted answer stands for: corruption once confirmed, before that nothing that can be told."""
        return Quality.CORRUPTED if self.confirmed else Quality.INCONCLUSIVE

    async def free_answer(self, sequence: GoldenSequence, *, limit: int) -> Generation | None:
        """A greedy answer of at most `limit` tokens to the sequence's prompt; None where there is none."""
        if self.stopped is not None:
            return None
        prompt = sequence.ids[: sequence.prompt_length]
        rank = self._rank()
        answer = await self.guarded(sequence.prompt_id, lambda: self.prober.generate(prompt, limit=limit, rank=rank))
        return None if isinstance(answer, Missing) else answer

    async def guarded(self, prompt_id: str, action: Callable[[], Awaitable[T]], *, clears: bool = True) -> T | Missing:
        """Do something with the server, turning its trouble into a record.

        clears: success wipes out earlier failures; not so where it may have come without asking the model.
        """
        if self.restarted():
            return self._gone(prompt_id)
        try:
            result = await action()
        except ProbeError as exc:
            return self._note(prompt_id, exc)
        if self.restarted():
            return self._gone(prompt_id)  # half of it may come from either process
        if clears:
            self.strikes.answered()
        return result

    def _note(self, prompt_id: str, error: ProbeError) -> Missing:
        if self.restarted() or isinstance(error, NodeRestarted):
            return self._gone(prompt_id)
        self.busy = self.busy or isinstance(error, NodeBusy)
        missing = Missing(prompt_id, quality_of(error), str(error))
        if missing.quality is Quality.CORRUPTED:
            self.suspect(missing.reason)
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

    def suspect(self, said: str, *, confirmed: bool = False) -> None:
        """Hold a sign of broken numbers against the server; a second one, from another probe, confirms the first."""
        self.confirmed = confirmed or self.corruption is not None
        self.corruption = self.corruption or said
        if self.confirmed:
            reason = f"not asked: {self.name} computes broken numbers, and more probes could spread them"
            self.stopped = Missing("", Quality.SKIPPED, reason)
