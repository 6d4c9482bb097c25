"""Are the two ends comparable? Asked before any number is computed; a mismatch is never the node's quality."""

import math
from collections.abc import Awaitable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from quantwatch.errors import OverCap, ProbeError, ReplyCorrupted, ReplyInvalid
from quantwatch.flow.distribution import NO_ID, Distribution
from quantwatch.flow.handshake import Point
from quantwatch.flow.identity import Identity, moment
from quantwatch.flow.prompt import GoldenSequence, ProbeMode
from quantwatch.probe.contract import Ask, Prober
from quantwatch.probe.ledger import Ledger
from quantwatch.probe.modes import WARM, LogprobsMode, are_logits, changed, tell_mode
from quantwatch.probe.past import Known
from quantwatch.probe.tokenizers import AWKWARD, differs_at, fingerprint, piece

T = TypeVar("T")

PROMPT_TOKENS = 16
"""Tokens of the prompt that the handshake's probes share."""

RAW = "Start the server with --logprobs-mode raw_logprobs, its default"
OWN_ADDRESS = "Give every server its own address; a balancer hides the sick one behind the others"


@dataclass(frozen=True, slots=True)
class Introduction:
    """A server that has introduced itself. k: how many logprobs it gives, at most what was asked for."""

    identity: Identity
    k: int


async def introduce(
    prober: Prober, *, k: int, modes: Collection[ProbeMode] = (), ledger: Ledger | None = None
) -> Introduction:
    """Ask a server who it is, how it tokenizes awkward texts, and whether it gives raw log-probabilities.

    modes: in which it will be asked. What cannot change while its process runs is asked once a process; a small part
    is asked again each time. Raises a ProbeError; ReplyCorrupted when the first log-probabilities are broken numbers.
    """
    return await _Meeting(prober, ledger or Ledger(), k, frozenset(modes)).hold()


@dataclass(slots=True)
class _Meeting:
    """One handshake. known: what was learned of this very process before. ids: the prompt of its probes.

    engines: how many answer, 0 where that is not told. proven: the modes in which the fields asked for were seen.
    """

    prober: Prober
    ledger: Ledger
    k: int
    modes: frozenset[ProbeMode]
    known: Known | None = None
    ids: tuple[int, ...] = ()
    engines: int = 0
    proven: frozenset[ProbeMode] = frozenset()

    async def hold(self) -> Introduction:
        identity = await self._who()
        tokenizer = await self._tokenizer()
        await self._still(identity)
        first = await self._listed()
        await self._mode(first)
        await self._fields(first.k)
        identity = replace(identity, tokenizer=tokenizer, vocabulary=await self._vocabulary())
        await self._still(identity)
        self.ledger.note(Point.ONE_SERVER, _one(identity), ok=None if identity.started is None else True)
        self._remember(identity, first.k)
        self.ledger.complete = True
        return Introduction(identity, first.k)

    async def _who(self) -> Identity:
        """Model card, version and process; another process than last time is met as a stranger."""
        with self.ledger.at(Point.MODEL):
            identity = await self.prober.identify()
        self.ledger.identity = identity
        self.ledger.note(Point.MODEL, f"serves {identity.model}" + (f" ({identity.root})" if identity.root else ""))
        self.ledger.note(Point.VERSION, " ".join(filter(None, (identity.engine, identity.version))) or "not told")
        longest = identity.max_model_len
        self.ledger.note(Point.LENGTH, "not told" if longest is None else f"takes {longest} tokens (max_model_len)")
        self._one_server(identity.started)
        past = self.prober.past
        if past.known is not None and past.known.identity.same_process(identity):
            self.known = past.known
        elif past.known is not None and identity.started is not None:
            past.known, self.prober.raw_proven = None, False
        return identity

    def _one_server(self, started: float | None) -> None:
        other = self.prober.past.meet(started)
        if other is None or started is None:
            return
        with self.ledger.at(Point.ONE_SERVER):
            raise ReplyInvalid(
                f"several servers answer at this URL: their processes started {moment(other)} and {moment(started)}",
                node=self.prober.name,
                advice=OWN_ADDRESS,
            )

    async def _still(self, identity: Identity) -> None:
        """Look over a fresh connection whether the same process answers, and how many engines it has."""
        load = await self.prober.glimpse()
        self.engines = len(load.engines) if load is not None else 0
        if load is None or load.started is None or identity.started is None:
            return
        self._one_server(load.started)
        again = replace(identity, started=load.started, born=load.born)
        if identity.same_process(again):
            return
        with self.ledger.at(Point.ONE_SERVER):
            raise ReplyInvalid(
                f"the process changed within one handshake: started {moment(identity.started)}, "
                f"then {moment(load.started)}; a restart, or several servers at this URL",
                node=self.prober.name,
                advice=OWN_ADDRESS,
            )

    async def _tokenizer(self) -> str:
        with self.ledger.at(Point.TOKENIZER):
            told = await (self._one_text(self.known) if self.known is not None else self._all_texts())
            if len(self.ids) < 2:
                said = f"the tokenizer gave {len(self.ids)} ids for a whole sentence"
                raise ReplyInvalid(said, node=self.prober.name, advice="Check the tokenizer files of this server")
        self.ledger.note(Point.TOKENIZER, f"{len(AWKWARD)} awkward texts, {_total(told)} ids")
        return told

    async def _all_texts(self) -> str:
        tokens = [await self.prober.tokenize_text(text, special=True) for text in AWKWARD.values()]
        self.ids = tokens[0][:PROMPT_TOKENS]
        return fingerprint(tokens)

    async def _one_text(self, known: Known) -> str:
        """One text a handshake, in turn: a process that cuts it otherwise than before is not one process."""
        texts, before = list(AWKWARD.values()), known.identity.tokenizer or ""
        index = known.rounds % len(texts)
        first = await self.prober.tokenize_text(texts[0], special=True)
        again = first if index == 0 else await self.prober.tokenize_text(texts[index], special=True)
        self.ids = first[:PROMPT_TOKENS]
        if differs_at(before, piece(first), 0) or differs_at(before, piece(again), index):
            self.prober.past.known = None
            raise ReplyInvalid(
                "the same text gives other ids than before, and the process has not changed",
                node=self.prober.name,
                advice=OWN_ADDRESS,
            )
        return before

    def _ranks(self) -> Sequence[int | None]:
        """Whom to ask: every data-parallel rank of a process once, later one of them in turn."""
        ranks = self.prober.ranks
        if ranks < 2:
            return [None]
        return range(ranks) if self.known is None else [self.known.rounds % ranks]

    async def _listed(self) -> Distribution:
        """The first token's list, of every rank that is asked, with as many entries as the server gives."""
        asked = self._ranks()
        with self.ledger.at(Point.TOP_K):
            first = await self._first(asked[0])
        self.ledger.note(Point.TOP_K, f"gives {first.k}" + (f", asked for {self.k}" if first.k < self.k else ""))
        with self.ledger.at(Point.RANKS):
            for rank in asked[1:]:
                _refuse_broken(await self._distribution(first.k, rank), node=f"{self.prober.name} (rank {rank})")
        self._tell_engines(asked)
        return first

    def _tell_engines(self, asked: Sequence[int | None]) -> None:
        ranks, engines = self.prober.ranks, self.engines
        if engines > max(ranks, 1):
            told = (
                f"{engines} engines answer at this URL, and {ranks} of them are asked by rank"
                if ranks > 1
                else (f"{engines} engines answer at this URL, and a probe meets any one of them")
            )
            advice = f"A target with data_parallel_size: {engines} has each of its ranks probed"
            self.ledger.note(Point.RANKS, told, ok=None, advice=advice)
        elif ranks > 1:
            self.ledger.note(Point.RANKS, f"{ranks} ranks; asked now: {', '.join(map(str, asked))}")
        else:
            self.ledger.note(Point.RANKS, "one engine" if engines else "not told", ok=True if engines else None)

    async def _first(self, rank: int | None) -> Distribution:
        k = min(self.k, self.known.cap or self.k) if self.known is not None else self.k
        try:
            first = await self._distribution(k, rank)
        except OverCap as exc:
            if not exc.allowed or exc.allowed >= k:
                raise ReplyInvalid(exc.reason, node=exc.node, advice=exc.advice) from exc
            first = await self._distribution(exc.allowed, rank)
        _refuse_broken(first, node=self.prober.name)
        return first

    async def _distribution(self, k: int, rank: int | None) -> Distribution:
        """One token's list; where it cannot be log-probabilities, the error names the server's mode."""
        sequence = GoldenSequence("handshake", self.ids, len(self.ids))
        try:
            self.ledger.tokens += len(self.ids) + 1
            return await self.prober.distribution(sequence, Ask(ProbeMode.FIRST_TOKEN, k, (len(self.ids),), rank))
        except ReplyInvalid as exc:
            mode = await self._logits(k, rank)
            with self.ledger.at(Point.FIELDS if mode is None else Point.LOGPROBS_MODE):
                if mode is None:
                    raise
                raise self._wrong(mode) from exc

    async def _logits(self, k: int, rank: int | None) -> LogprobsMode | None:
        """Which kind of logits a server answers; None where its list is something else."""
        try:
            cold = await self._row(k, rank, temperature=0.0)
            if not _finite(cold) or not are_logits(cold):
                return None
            warm = await self._row(k, rank, temperature=WARM)
        except ProbeError:
            return None
        return tell_mode(cold, warm) if _finite(warm) else None

    def _wrong(self, mode: LogprobsMode) -> ReplyInvalid:
        return ReplyInvalid(f"the server answers {mode}, not raw_logprobs", node=self.prober.name, advice=RAW)

    async def _row(self, k: int, rank: int | None, *, temperature: float) -> dict[int, float]:
        self.ledger.tokens += len(self.ids) + 1
        return await self.prober.listed(self.ids, k=k, temperature=temperature, rank=rank)

    async def _mode(self, first: Distribution) -> None:
        """Prove raw mode: another temperature must not change the list of the same prompt."""
        if self.known is None or not self.prober.raw_proven:
            with self.ledger.at(Point.LOGPROBS_MODE):
                self.prober.raw_proven = await self._raw(first)
        if self.prober.raw_proven:
            self.ledger.note(Point.LOGPROBS_MODE, "raw_logprobs; sampling parameters do not change the list")
        else:
            self.ledger.note(Point.LOGPROBS_MODE, "log-probabilities; the probe that proves raw ones failed", ok=None)

    async def _raw(self, first: Distribution) -> bool:
        """Whether the numbers are proven raw. Raises ReplyInvalid when they are proven processed."""
        cold, warm = _row_of(first), await self._quiet(self._row(first.k, first.rank, temperature=WARM))
        if warm is None or not _finite(warm):
            return False
        if not changed(cold, warm):
            return True
        # A node whose numbers change from one request to the next is unsteady, whatever its mode.
        again = await self._quiet(self._row(first.k, first.rank, temperature=0.0))
        if again is None or not _finite(again) or changed(cold, again):
            return False
        raise self._wrong(LogprobsMode.PROCESSED_LOGPROBS)

    async def _fields(self, k: int) -> None:
        """See that the fields of prompt scoring come back where they will be asked for; of the others they did."""
        self.proven = self.modes - {ProbeMode.PROMPT_SCORING} | (self.known.modes if self.known else frozenset())
        if self.modes <= self.proven:
            self.ledger.note(Point.FIELDS, "everything asked for comes back")
            return
        sequence, ask = GoldenSequence("handshake", self.ids, 1), Ask(ProbeMode.PROMPT_SCORING, k, (), self._ranks()[0])
        self.ledger.tokens += len(self.ids) + 1
        with self.ledger.at(Point.FIELDS):
            scored = await self._quiet(self.prober.distribution(sequence, ask))
        if scored is None:
            self.ledger.note(Point.FIELDS, "the probe that looks for prompt_logprobs failed", ok=None)
            return
        self.proven |= self.modes
        self.ledger.note(Point.FIELDS, "everything asked for comes back, prompt_logprobs too")

    async def _quiet(self, probe: Awaitable[T]) -> T | None:
        """An answer that the handshake can do without. Whatever is wrong will show where it is needed.

        Raises ReplyInvalid: an answer that came and cannot be used is what a handshake is for.
        """
        try:
            return await probe
        except ReplyInvalid:
            raise
        except ProbeError:
            return None

    async def _vocabulary(self) -> int | None:
        size = self.known.identity.vocabulary if self.known is not None else await self.prober.vocabulary()
        told = "not told" if size is None else f"{size} tokens"
        self.ledger.note(Point.VOCABULARY, told, ok=None if size is None else True)
        return size

    def _remember(self, identity: Identity, k: int) -> None:
        """What holds for as long as the process runs; one that does not tell its start is asked everything again."""
        if identity.started is None:
            return
        old = self.known or Known(identity, k)
        self.prober.past.known = Known(
            identity=identity,
            k=max(k, old.k),
            cap=k if k < self.k else old.cap,
            modes=self.proven,
            rounds=old.rounds + 1,
        )


def _one(identity: Identity) -> str:
    if identity.started is None:
        return "not told: its /metrics names no process start"
    return f"one process, started {moment(identity.started)}"


def _refuse_broken(first: Distribution, *, node: str) -> None:
    if first.marks:
        raise ReplyCorrupted(f"the first reply is corrupted: {first.marks[0].detail}", node=node)


def _row_of(first: Distribution) -> dict[int, float]:
    """The only position of a distribution by token id."""
    pairs = zip(first.ids, first.logprobs, strict=True)
    return {token: value for token, value in pairs if token != NO_ID}


def _finite(row: dict[int, float]) -> bool:
    return bool(row) and all(map(math.isfinite, row.values()))


def _total(told: str) -> int:
    return sum(int(one.partition(":")[0]) for one in told.split())
