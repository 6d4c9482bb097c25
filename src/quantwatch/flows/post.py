"""Notices on their way: a queue for each channel, bounded, each sent beside everything else and given up in the end."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Mapping, Sequence

from quantwatch.act.carry_out import Waits
from quantwatch.act.channel import Reply, Subscriber
from quantwatch.clock import Clock
from quantwatch.errors import StoreError
from quantwatch.expose.meters import Meters
from quantwatch.flow.notice import Notice
from quantwatch.flows.keeper import Keeper, unbroken
from quantwatch.log import logger
from quantwatch.record.notices import Change, Delivery

log = logger()

MOST_WAITING = 200
"""Notices that wait for one channel; over this the least severe go first, and of those the oldest."""

TASK = "notices "
"""Begins the name of a channel's task."""


class Post:
    """Carries notices to the channels of the configuration in force. waiting: by channel, in their order."""

    def __init__(
        self,
        keeper: Keeper,
        meters: Meters,
        clock: Clock,
        *,
        channels: Callable[[], Mapping[str, Subscriber]],
        most: int = MOST_WAITING,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.waiting: dict[str, list[Notice]] = {}
        self._keeper = keeper
        self._meters = meters
        self._clock = clock
        self._channels = channels
        self._most = most
        self._chance = chance
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._turn: dict[str, asyncio.Lock] = {}

    def planned(self, notices: Sequence[Notice]) -> Change:
        """What is to be written so that these are told: their deliveries, and the older ones that give way."""
        queues = {name: list(self.waiting.get(name, ())) for name in self._channels()}
        for name, one in self._channels().items():
            whole = [*queues[name], *(notice for notice in notices if one.wants(notice))]
            queues[name] = self._bounded(whole, sending=name in self._tasks)
        before = {(name, one.id) for name, queue in self.waiting.items() for one in queue}
        after = {(name, one.id) for name, queue in queues.items() for one in queue}
        added = [Delivery(name, one) for name, queue in queues.items() for one in queue if (name, one.id) not in before]
        return Change(told=notices, added=added, done=sorted(before - after))

    def _bounded(self, queue: list[Notice], *, sending: bool) -> list[Notice]:
        """As many as may wait. sending: the first is on its way just now, so it stays."""
        free = queue[1:] if sending else queue
        least = sorted(free, key=lambda one: one.matter.severity.rank)[: max(0, len(queue) - self._most)]
        gone = {one.id for one in least}
        return [one for one in queue if one.id not in gone]

    def take(self, change: Change) -> None:
        """Follow a change that is written."""
        gone = set(change.done)
        for name in {name for name, _ in gone}:
            self.waiting[name] = [one for one in self.waiting[name] if (name, one.id) not in gone]
        self.waiting = {name: queue for name, queue in self.waiting.items() if queue}
        for add in change.added:
            self.waiting.setdefault(add.channel, []).append(add.notice)
        self.start()

    def lose(self, channel: str, count: int, why: str) -> None:
        """Say that notices were not told."""
        for _ in range(count if channel in self._channels() else 0):
            self._meters.notice_failed(channel)
        log.error("notices were not told", channel=channel, notices=count, reason=why)

    def start(self) -> None:
        """Set every channel to work that has something to tell."""
        for name in self._channels():
            if self.waiting.get(name) and name not in self._tasks:
                task = self._tasks[name] = asyncio.create_task(self._carry(name), name=f"{TASK}{name}")
                task.add_done_callback(self._ended)

    async def idle(self) -> None:
        """Wait until nothing is on its way."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))
            await asyncio.sleep(0)  # lets _ended hear of it

    async def stop(self) -> None:
        """Leave what is on its way in the store, for the next life or the next configuration."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def say(self, one: Subscriber, notices: Sequence[Notice]) -> Reply:
        """Tell a channel once, one call at a time, so that nothing old overtakes what is new."""
        async with self._turn.setdefault(one.name, asyncio.Lock()):
            return await one.channel.send(notices)

    async def _carry(self, name: str) -> None:
        while (queue := self.waiting.get(name)) and (one := self._channels().get(name)) is not None:
            notice = queue[0]
            await unbroken(self._done(name, notice, await self._tried(one, notice)))

    async def _tried(self, one: Subscriber, notice: Notice) -> Reply:
        """Try until it is told, refused or given up; at least once, however old it is."""
        age = max(0.0, (self._clock.now() - notice.at).total_seconds())
        end = self._clock.monotonic() + one.give_up_seconds - age
        waits, first = Waits(self._clock, self._chance, end), True
        while True:
            reply = await self.say(one, [notice])
            if reply.ok or not reply.again or not await waits.once(reply.retry_after):
                return reply
            if first:
                log.warning("a notice is tried again", channel=one.name, notice=notice.id, reason=reply.said)
            first = False

    async def _done(self, name: str, notice: Notice, reply: Reply) -> None:
        self.waiting[name] = [one for one in self.waiting.get(name, ()) if one.id != notice.id]
        if reply.ok:
            self._meters.notice_told(name)
        else:
            self.lose(name, 1, f"{notice.matter.key}: given up: {reply.said}")
        with contextlib.suppress(StoreError):  # at worst the next life tells it once more, under the same id
            await self._keeper.write(lambda store: store.tell(Change(done=[(name, notice.id)])))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks = {name: one for name, one in self._tasks.items() if one is not task}
        if not task.cancelled() and (fault := task.exception()) is not None:
            name = task.get_name().removeprefix(TASK)
            log.error("a channel broke off by a fault in quantwatch", channel=name, fault=repr(fault))
            self.waiting[name] = self.waiting.get(name, [])[1:]  # or it would break off at the same one for ever
            self.lose(name, 1, "a fault in quantwatch")
