"""What token ids mean: asked of the baseline beside the runs, an id at a time, and kept for those who look later.

Verdicts and orders never wait for it. A server that is at rest is not asked, and its trouble ends the attempt.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from quantwatch.errors import ProbeError, StoreError
from quantwatch.flow.identity import Identity
from quantwatch.flow.tokens import PromptsShown
from quantwatch.flows.cycle import Ran
from quantwatch.flows.keeper import Keeper
from quantwatch.probe.contract import Prober
from quantwatch.record.evidence import ids_in

if TYPE_CHECKING:
    from quantwatch.flows.watch import Watch

MOST_IDS = 256
"""New ids of one run that are asked at a stretch; the rest of them waits for the next one."""

MOST_RUNS = 64
"""Runs that wait; over this the oldest are shown without texts that no other run brings."""

AT_ONCE = 4
"""Requests in flight; each is small and goes past the model."""

SECONDS = 30.0
"""Longest time at a stretch; what was learned until then is kept."""


@dataclass(frozen=True, slots=True)
class Unread:
    """Ids of a run, the most wanted first, and the baseline whose ids they are."""

    baseline: Identity
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Texts:
    """Runs whose ids have yet to be looked up."""

    unread: deque[Unread] = field(default_factory=lambda: deque(maxlen=MOST_RUNS))

    def note(self, ran: Ran, shown: PromptsShown) -> None:
        """Take in a run whose words may be shown."""
        if shown is PromptsShown.FULL and ran.tokens is not None and ran.record.baseline is not None:
            self.unread.append(Unread(ran.record.baseline, ids_in(ran.tokens.prompts)))


async def learn(watch: "Watch", *, seconds: float = SECONDS, most: int = MOST_IDS) -> None:
    """Look up the ids of runs that wait, as long as the configuration in force lets words be shown.

    seconds, most: the longest time, and ids of one run; what is left is looked up the next time.
    """
    generation, unread = watch.generation, watch.turns.texts.unread
    if generation.turn.shown is not PromptsShown.FULL:
        unread.clear()
    end, baseline = watch.clock.monotonic() + seconds, generation.turn.baseline
    later: list[Unread] = []
    generation.users += 1
    try:
        while unread and baseline.resting is None and (left := end - watch.clock.monotonic()) > 0:
            later += await _look_up(unread.popleft(), baseline, watch.keeper, seconds=left, most=most)
    finally:
        unread.extend(later)
        await generation.leave()


async def _look_up(one: Unread, baseline: Prober, keeper: Keeper, *, seconds: float, most: int) -> list[Unread]:
    """Learn some of what a run's ids mean; what is left to learn of it, nothing after trouble."""
    tokenizer = one.baseline.tokens
    with contextlib.suppress(StoreError, ProbeError):
        missing = await keeper.write(lambda store: store.without_text(tokenizer, one.ids))
        if not missing:
            return []
        who = await baseline.identify()
        if (who.model, who.root) != (one.baseline.model, one.baseline.root):
            return []  # another model answers by now, and to it these ids mean something else
        now, rest = missing[:most], tuple(missing[most:])
        found = await _asked(baseline, now, seconds)
        await keeper.write(lambda store: store.keep_texts(tokenizer, found))
        return [replace(one, ids=rest)] if rest and len(found) == len(now) else []
    return []


async def _asked(baseline: Prober, ids: Sequence[int], seconds: float) -> dict[int, str]:
    """What could be learned until the first trouble or the end of the time."""
    found: dict[int, str] = {}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            for start in range(0, len(ids), AT_ONCE):
                some = ids[start : start + AT_ONCE]
                answers = await asyncio.gather(*(_text(baseline, one) for one in some))
                found |= {key: text for key, text in zip(some, answers, strict=True) if text is not None}
                if None in answers:
                    break
    return found


async def _text(baseline: Prober, token: int) -> str | None:
    try:
        return await baseline.token_text(token)
    except ProbeError:
        return None
