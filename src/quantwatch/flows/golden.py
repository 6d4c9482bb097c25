"""A golden prompt becomes a golden sequence: the baseline tokenizes it and answers it once."""

from quantwatch.errors import ReplyInvalid
from quantwatch.flow.prompt import GoldenSequence, Prompt
from quantwatch.measure.corruption import one_id_to_the_limit
from quantwatch.probe.contract import Prober
from quantwatch.record.continuations import Continuations


class GoldenMaker:
    """Makes sequences on a baseline, keeping its answers. limit: tokens of a continuation."""

    def __init__(self, baseline: Prober, kept: Continuations, *, limit: int) -> None:
        self._baseline = baseline
        self._kept = kept
        self._limit = limit

    async def sequence(self, item: Prompt | GoldenSequence) -> GoldenSequence:
        """The ids that both sides will score. Raises a ProbeError of the baseline, ReplyInvalid for no real answer."""
        if isinstance(item, GoldenSequence):
            return item
        ids = await self._baseline.tokenize(item)
        return GoldenSequence(item.id, ids + await self._continuation(item, ids), len(ids))

    async def _continuation(self, prompt: Prompt, ids: tuple[int, ...]) -> tuple[int, ...]:
        if prompt.continuation is not None:
            given = await self._baseline.tokenize_text(prompt.continuation, special=False)
            return self._sound(prompt, given[: self._limit])
        kept = self._kept.get(ids, self._limit)
        if kept is not None and self._fault(kept) is None:
            return kept
        answer = self._sound(prompt, (await self._baseline.generate(ids, limit=self._limit)).ids)
        self._kept.put(ids, self._limit, answer)
        return answer

    def _sound(self, prompt: Prompt, continuation: tuple[int, ...]) -> tuple[int, ...]:
        """The continuation itself. Raises ReplyInvalid when it cannot be what both sides score."""
        fault = self._fault(continuation)
        if fault is not None:
            whose = "the baseline's own answer" if prompt.continuation is None else "the given continuation"
            raise ReplyInvalid(f"{prompt.id}: {whose} {fault}", node=self._baseline.name)
        return continuation

    def _fault(self, answer: tuple[int, ...]) -> str | None:
        """Why an answer cannot be what both sides score; such an answer is never kept."""
        if not answer:
            return "is empty"
        return "is one token over and over" if one_id_to_the_limit(answer, self._limit) else None
