"""Tells people what has changed: what stands now is held against what they were told last.

Everything is told by its state and not by its events: what is the same is not told twice, also after a restart, and
what was missed in a crash is found at the next look.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from quantwatch.act.channel import Subscriber
from quantwatch.clock import Clock
from quantwatch.errors import StoreError
from quantwatch.expose.meters import Meters
from quantwatch.flow.notice import Matter, Notice
from quantwatch.flow.run import stamp
from quantwatch.flows.generation import Generation
from quantwatch.flows.keeper import Keeper
from quantwatch.flows.matters import matters, over, with_evidence
from quantwatch.flows.memory import Memory
from quantwatch.flows.post import Post
from quantwatch.flows.view import View
from quantwatch.log import logger
from quantwatch.record.notices import Kept

log = logger()

LOOKING = "looking for what is new"
REPEATING = "repeating what stands"
"""Names of tasks."""


class Notices:
    """What people were told, and how they are told more. told: by the key of each matter, its latest notice."""

    def __init__(
        self,
        memory: Memory,
        keeper: Keeper,
        meters: Meters,
        clock: Clock,
        *,
        generation: Callable[[], Generation],
    ) -> None:
        self.told: dict[str, Notice] = {}
        self.post = Post(keeper, meters, clock, channels=self._channels)
        self._memory = memory
        self._keeper = keeper
        self._meters = meters
        self._clock = clock
        self._generation = generation
        self._known: set[str] = set()
        self._silent: set[str] = set()
        self._one_at_a_time = asyncio.Lock()
        self._under_way: set[asyncio.Task[None]] = set()

    def _channels(self) -> Mapping[str, Subscriber]:
        return self._generation().channels

    @property
    def waiting(self) -> dict[str, int]:
        """How many notices wait for each channel."""
        return {name: len(self.post.waiting.get(name, ())) for name in self._channels()}

    async def begin(self) -> None:
        """Take up what an earlier life has left, and follow the channels of the configuration. Raises nothing."""
        try:
            kept = await self._keeper.write(lambda store: store.notices())
        except StoreError as exc:
            log.error("what people were told cannot be read, so it is told anew", reason=str(exc))
            kept = Kept({}, ())
        self.told = dict(kept.told)
        self.post.waiting = {}
        for one in kept.waiting:
            self.post.waiting.setdefault(one.channel, []).append(one.notice)
        await self.renew()

    async def renew(self) -> None:
        """Go on with the channels of the configuration in force; what waits for others is forgotten."""
        await self._cut(REPEATING)  # its connections are about to be closed
        await self.post.stop()
        for name in self._known - set(self._channels()):
            self._meters.forget_channel(name)
        self._known = set(self._channels())
        for name in self._known:
            self._meters.expect_channel(name)
        await self.look()

    async def look(self) -> None:
        """Find out what has changed since people were told last, write it down, and tell it. Raises nothing.

        Without a channel nothing is noted: whoever configures the first hears of everything that stands then.
        """
        if self._channels() or self.post.waiting:
            await self._apart(self._in_turn(), name=LOOKING)

    async def stop(self) -> None:
        """Leave everything as it is in the store, for the next life."""
        await self._cut(LOOKING, REPEATING)
        await self.post.stop()

    async def _cut(self, *names: str) -> None:
        tasks = [one for one in self._under_way if one.get_name() in names]
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _apart(self, action: Coroutine[Any, Any, None], *, name: str) -> None:
        """Do something in a task of its own, to its end: a fault of ours in it ends neither a run nor the daemon."""
        task = asyncio.create_task(action, name=name)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        await asyncio.wait([task])
        if not task.cancelled() and (fault := task.exception()) is not None:
            log.error("telling people broke off by a fault in quantwatch", fault=repr(fault))

    async def _in_turn(self) -> None:
        async with self._one_at_a_time:
            await self._look()

    async def _look(self) -> None:
        view = View(self._memory, self._generation().watchlist, self._clock.now())
        new = self._new(view) if self._channels() else []
        change = self.post.planned(new)
        if new or change.done:
            try:
                await self._keeper.write(lambda store: store.tell(change))
            except StoreError as exc:
                log.warning("nobody is told, because nothing can be written down", reason=str(exc))
                return
            self.told |= {one.matter.key: one for one in new}
            for name, count in Counter(name for name, _ in change.done).items():
                self.post.lose(name, count, "too many wait for it" if name in self._channels() else "the channel left")
        self.post.take(change)

    async def repeat(self) -> None:
        """Send what stands to those channels that take it for over otherwise. Raises nothing."""
        names = [name for name, one in self._channels().items() if one.channel.repeats]
        await asyncio.gather(*(self._apart(self._repeat(name), name=REPEATING) for name in names))

    async def _repeat(self, name: str) -> None:
        one = self._channels()[name]
        standing = [notice for notice in self.told.values() if notice.matter.standing and one.wants(notice)]
        if not standing or self.post.waiting.get(name):
            return  # what waits goes first, and is tried again anyway
        reply = await self.post.say(one, standing)
        if not reply.ok and name not in self._silent:
            log.warning("what stands could not be repeated", channel=name, reason=reply.said)
        (self._silent.discard if reply.ok else self._silent.add)(name)

    def _new(self, view: View) -> list[Notice]:
        """What is to be told: matters that have begun, changed or ended."""
        now = {one.key: one for one in matters(view)}
        left = [one.matter for key, one in self.told.items() if one.matter.standing and key not in now]
        now |= {one.key: one for matter in left if (one := over(matter, view)) is not None}
        return [self._notice(one, view) for one in now.values() if self._is_news(one)]

    def _is_news(self, matter: Matter) -> bool:
        last = self.told.get(matter.key)
        if last is None or not last.matter.standing:
            return matter.standing
        return not matter.standing or matter.state != last.matter.state

    def _notice(self, matter: Matter, view: View) -> Notice:
        last = self.told.get(matter.key)
        since = last.since if last is not None and last.matter.standing else view.now
        mark = hashlib.sha256(f"{matter.key} {matter.state} {view.now.isoformat()}".encode()).hexdigest()
        return Notice(stamp("n", view.now, mark[:8]), view.now, since, with_evidence(matter, view.memory))
