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
            return given[: self._limit]
        kept = self._kept.get(ids, self._limit)
        if kept is not None and self._fault(kept) is None:
            return kept
        answer = await self._baseline.generate(ids, limit=self._limit)
        fault = self._fault(answer)
        if fault is not None:
            raise ReplyInvalid(f"{prompt.id}: the baseline's own answer {fault}", node=self._baseline.name)
        self._kept.put(ids, self._limit, answer)
        return answer

    def _fault(self, answer: tuple[int, ...]) -> str | None:
        """Why an answer cannot be what both sides score; such an answer is never kept."""
        if not answer:
            return "is empty"
        return "is one token over and over" if one_id_to_the_limit(answer, self._limit) else None
