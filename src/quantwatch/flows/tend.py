"""What ends by time alone: a person's word, and proposals that nobody answered. What waits for the store is written."""

from quantwatch.errors import StoreError
from quantwatch.flow.state import Human
from quantwatch.flow.word import Word
from quantwatch.flows.keeper import unbroken
from quantwatch.flows.resting import keep_what_waits
from quantwatch.flows.watch import Watch
from quantwatch.flows.words import put, worded


async def tend(watch: Watch) -> None:
    """End what is over. While the store cannot be written everything stays as it is, and nothing acts."""
    if watch.keeper.trouble is not None:
        return
    try:
        async with watch.one_at_a_time:
            await unbroken(_lapse(watch))
            await watch.proposals.tend()
        await keep_what_waits(watch.memory, watch.keeper)
    except StoreError:
        return  # tried again in a few seconds


async def _lapse(watch: Watch) -> None:
    """End words whose time is over; what follows is up to the verdicts, where the pool's mode lets them."""
    now = watch.clock.now()
    for old in list(watch.memory.targets.values()):
        if old.human is not Human.NONE and old.human_until is not None and now >= old.human_until:
            over = Word(old.target, "quantwatch", f"the word of {old.human_author} has run out: {old.human_reason}")
            await put(watch, old, worded(old, Human.NONE, over, now), over)
