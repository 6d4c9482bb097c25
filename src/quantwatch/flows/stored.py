"""A baseline that need not be there: it answers out of a reference, as it once did."""
# ruff: noqa: ARG002, arguments that a stored answer has no use for belong to the contract of a prober

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from quantwatch.errors import OverBudget, ReplyInvalid
from quantwatch.flow.distribution import Distribution
from quantwatch.flow.identity import Identity
from quantwatch.flow.load import Load
from quantwatch.flow.prompt import GoldenSequence, ProbeMode, Prompt
from quantwatch.probe.contract import Ask, Generation, Prober
from quantwatch.probe.handshake import Introduction
from quantwatch.probe.past import Past
from quantwatch.record.reference_file import Reference
from quantwatch.record.references import StoredAnswer

NOT_ENROLLED = "Run `quantwatch enroll --config FILE`; only what was enrolled can be asked of a stored baseline"


class StoredBaseline:
    """Answers what was enrolled, and nothing else. reference: what it answers out of."""

    blind = False
    ranks = 1
    restarts = 0
    resting: str | None = None

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self.past = Past()
        self.raw_proven = True
        whole = {name: one for answers in reference.answers.values() for name, one in answers.items()}
        self._sequences = {name: GoldenSequence(name, one.sequence, one.prompt_length) for name, one in whole.items()}
        known = self._sequences.values()
        self._free = {one.ids[: one.prompt_length]: reference.free.get(one.prompt_id, ()) for one in known}

    @property
    def name(self) -> str:
        """How messages call the baseline."""
        return self.reference.baseline.name

    def introduction(self, k: int) -> Introduction:
        """Who it was when it was enrolled, and how many log-probabilities it can give of k."""
        return Introduction(self.reference.baseline, min(k, self.reference.k))

    def sequence(self, prompt_id: str) -> GoldenSequence:
        """The golden sequence of a prompt. Raises OverBudget where it was left out, ReplyInvalid for an unknown one."""
        found = self._sequences.get(prompt_id)
        if found is None:
            raise self._missing(prompt_id, self.reference.modes[0])
        return found

    def places(self, sequence: GoldenSequence, ask: Ask) -> Ask:
        """The same question at positions that were enrolled, as many as were asked for where there are so many."""
        stored = self.reference.answers.get(ask.mode, {}).get(sequence.prompt_id)
        if stored is None or ask.mode is ProbeMode.PROMPT_SCORING:
            return ask
        known, wanted = list(stored.distribution.positions), len(ask.positions)
        if wanted >= len(known):
            return replace(ask, positions=tuple(known))
        # The positions asked for are drawn from the run's seed, so this draw follows from it as well.
        chosen = Random(f"{ask.positions}:{sequence.prompt_id}").sample(known, wanted)  # noqa: S311, sampling
        return replace(ask, positions=tuple(sorted(chosen)))

    def passed(self) -> None:
        """Nobody is asked, so nobody can restart."""

    def insisting(self) -> "StoredBaseline":
        """It is never busy."""
        return self

    async def identify(self) -> Identity:
        """Who it was when it was enrolled."""
        return self.reference.baseline

    async def tokenize(self, prompt: Prompt) -> tuple[int, ...]:
        """The stored ids of a golden prompt."""
        found = self.sequence(prompt.id)
        return found.ids[: found.prompt_length]

    async def tokenize_text(self, text: str, *, special: bool) -> tuple[int, ...]:
        """Raises ReplyInvalid: bare texts are not enrolled."""
        raise ReplyInvalid("a stored baseline has no tokenizer", node=self.name, advice=NOT_ENROLLED)

    async def token_strings(self, text: str) -> tuple[tuple[int, str], ...]:
        """Raises ReplyInvalid, as above."""
        raise ReplyInvalid("a stored baseline has no tokenizer", node=self.name, advice=NOT_ENROLLED)

    async def token_text(self, token: int) -> str:
        """Raises ReplyInvalid, as above."""
        raise ReplyInvalid("a stored baseline has no tokenizer", node=self.name, advice=NOT_ENROLLED)

    async def generate(self, ids: Sequence[int], *, limit: int, rank: int | None = None) -> Generation:
        """The stored free answer to a golden prompt. Raises ReplyInvalid where none of this length was enrolled.

        One that ended by itself within its own limit is the answer for every limit that it does not reach.
        """
        given = self._free.get(tuple(ids), ())
        for one in given:
            if one.limit == limit or len(one.ids) < min(limit, one.limit):
                return Generation(one.ids, one.text, one.finish_reason)
        raise ReplyInvalid("no free answer of this length was enrolled", node=self.name, advice=NOT_ENROLLED)

    async def distribution(self, sequence: GoldenSequence, ask: Ask) -> Distribution:
        """The stored rows at the positions asked for, all columns of them. Raises as `sequence` does."""
        stored = self.reference.answers.get(ask.mode, {}).get(sequence.prompt_id)
        if stored is None:
            raise self._missing(sequence.prompt_id, ask.mode)
        if stored.sequence != sequence.ids:
            raise ReplyInvalid(f"{sequence.prompt_id}: other ids were enrolled", node=self.name, advice=NOT_ENROLLED)
        if ask.mode is ProbeMode.PROMPT_SCORING or tuple(stored.distribution.positions) == ask.positions:
            return stored.distribution
        return self._rows(stored, ask)

    async def listed(
        self,
        ids: Sequence[int],
        *,
        k: int,
        temperature: float,
        rank: int | None = None,
    ) -> dict[int, float]:
        """Raises ReplyInvalid: its mode was proven when it was enrolled."""
        raise ReplyInvalid("a stored baseline answers golden prompts alone", node=self.name, advice=NOT_ENROLLED)

    async def vocabulary(self) -> int | None:
        """As it was when it was enrolled."""
        return self.reference.baseline.vocabulary

    async def glimpse(self) -> Load | None:
        """None: nobody is asked."""
        return None

    async def load(self) -> Load | None:
        """None: nobody is asked."""
        return None

    def _rows(self, stored: StoredAnswer, ask: Ask) -> Distribution:
        d = stored.distribution
        place = {position: row for row, position in enumerate(d.positions)}
        if not set(ask.positions) <= set(place):
            raise ReplyInvalid(f"{d.prompt_id}: other positions were enrolled", node=self.name, advice=NOT_ENROLLED)
        rows, width = [place[position] for position in ask.positions], d.width
        ids, logprobs = d.ids[:0], d.logprobs[:0]
        for row in rows:
            ids.extend(d.ids[row * width : (row + 1) * width])
            logprobs.extend(d.logprobs[row * width : (row + 1) * width])
        chosen = {name: getattr(d, name)[:0] for name in ("positions", "actual", "floor")}
        for name, column in chosen.items():
            column.extend(getattr(d, name)[row] for row in rows)
        return replace(d, ids=ids, logprobs=logprobs, **chosen)

    def _missing(self, prompt_id: str, mode: ProbeMode) -> OverBudget | ReplyInvalid:
        """Why there is no answer: left out on purpose, or never asked."""
        said = self.reference.left_out.get(mode, {}).get(prompt_id)
        if said is not None:
            return OverBudget(f"{prompt_id} was left out when the baseline was enrolled: {said}", node=self.name)
        return ReplyInvalid(f"{prompt_id} is not enrolled in mode {mode}", node=self.name, advice=NOT_ENROLLED)


class StoredMaker:
    """Golden sequences out of a reference: what both sides score was settled when it was enrolled."""

    def __init__(self, baseline: StoredBaseline) -> None:
        self._baseline = baseline

    async def sequence(self, item: Prompt | GoldenSequence) -> GoldenSequence:
        """The sequence of a golden prompt. Raises a ProbeError where none was enrolled."""
        return item if isinstance(item, GoldenSequence) else self._baseline.sequence(item.id)


def stored_maker(baseline: Prober) -> StoredMaker | None:
    """What makes the golden sequences of a stored baseline; None for one that can be asked."""
    return StoredMaker(baseline) if isinstance(baseline, StoredBaseline) else None


def places(baseline: Prober, sequence: GoldenSequence, ask: Ask) -> Ask:
    """A question as this baseline can be asked it: at the positions that are enrolled, if it is a stored one."""
    return baseline.places(sequence, ask) if isinstance(baseline, StoredBaseline) else ask
