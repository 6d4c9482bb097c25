"""Notices on their way to one channel: retries, giving up, and how many may wait."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from quantwatch.act.channel import Reply, Subscriber
from quantwatch.expose.meters import Meters
from quantwatch.flow.notice import Notice, Severity, Topic
from quantwatch.flows.keeper import Keeper
from quantwatch.flows.post import MOST_WAITING, Post
from quantwatch.record.notices import Change
from quantwatch.record.store import Store
from support.builders import FakeClock
from support.notices import BEGAN, notice
from support.stored import opened

OK = Reply(ok=True, said="answered 200")
DOWN = Reply(ok=False, said="cannot connect", again=True)
BUSY = Reply(ok=False, said="answered 429", again=True, retry_after=30.0)
REFUSED = Reply(ok=False, said="answered 400")


@dataclass
class Talker:
    """A channel that answers as it is told."""

    replies: list[Reply] = field(default_factory=list)
    always: Reply = OK
    heard: list[str] = field(default_factory=list)
    kind: str = "webhook"
    repeats: bool = False

    async def send(self, notices: Sequence[Notice]) -> Reply:
        """Remember, and answer."""
        self.heard += [one.id for one in notices]
        return self.replies.pop(0) if self.replies else self.always


class Broken(Talker):
    """A channel with a fault of ours, the first time."""

    async def send(self, notices: Sequence[Notice]) -> Reply:
        """Break off, or answer."""
        if notices[0] == notice():
            raise RuntimeError("boom")
        return await super().send(notices)


@dataclass
class Office:
    """A post over a real store."""

    post: Post
    store: Store
    talker: Talker
    meters: Meters
    clock: FakeClock
    channels: dict[str, Subscriber]

    async def tell(self, *notices: Notice) -> None:
        """Write them down and send them off."""
        change = self.post.planned(notices)
        self.store.tell(change)
        self.post.take(change)

    def count(self, name: str) -> float | None:
        """A counter of the channel."""
        return self.meters.registry.get_sample_value(f"quantwatch_{name}_total", {"channel": "ops"})


@contextlib.asynccontextmanager
async def office(folder: Path, talker: Talker, *, give_up: float = 3600.0, most: int = 5) -> AsyncIterator[Office]:
    clock, meters = FakeClock((BEGAN - FakeClock().now()).total_seconds()), Meters()
    meters.expect_channel("ops")
    channels = {"ops": Subscriber("ops", talker, Severity.INFO, None, give_up)}
    with ThreadPoolExecutor(1) as executor, opened(folder) as store:
        keeper = Keeper(store, executor, meters)
        post = Post(keeper, meters, clock, channels=lambda: channels, most=most, chance=lambda: 0.0)
        yield Office(post, store, talker, meters, clock, channels)
        await post.stop()


async def test_a_notice_is_sent_once_and_forgotten(tmp_path: Path) -> None:
    async with office(tmp_path, Talker()) as at:
        await at.tell(notice())
        await at.post.idle()
        assert at.talker.heard == [notice().id]
        assert at.store.notices().waiting == []
        assert list(at.store.notices().told.values()) == [notice()]
        assert (at.count("notifications"), at.count("notification_failures")) == (1, 0)


async def test_a_busy_channel_is_asked_again_when_it_says_and_then_ever_more_slowly(tmp_path: Path) -> None:
    async with office(tmp_path, Talker([BUSY, DOWN, DOWN])) as at:
        await at.tell(notice())
        await at.post.idle()
        assert at.talker.heard == [notice().id] * 4
        assert at.clock.waits == [30.0, 2.0, 4.0]
        assert at.count("notifications") == 1


async def test_a_refusal_is_given_up_at_once_and_the_next_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with office(tmp_path, Talker([REFUSED])) as at:
        await at.tell(notice(), notice(number=2, state="corrupted"))
        await at.post.idle()
        assert at.talker.heard == [notice().id, notice(number=2).id]
        assert at.clock.waits == []
        assert (at.count("notifications"), at.count("notification_failures")) == (1, 1)
        assert at.store.notices().waiting == []
    assert "notices were not told" in caplog.text
    assert "answered 400" in caplog.text


async def test_a_dead_channel_is_given_up_in_time_and_never_before_one_try(tmp_path: Path) -> None:
    async with office(tmp_path, Talker(always=DOWN), give_up=600.0) as at:
        await at.tell(notice(), notice(number=2, minutes=-20))
        await at.post.idle()
        waited = sum(at.clock.waits)
        assert 500 < waited <= 600
        assert at.talker.heard.count(notice(number=2).id) == 1
        assert at.talker.heard.count(notice().id) > 5
        assert at.count("notification_failures") == 2
        assert at.store.notices().waiting == []


async def test_the_oldest_of_the_least_severe_give_way(tmp_path: Path) -> None:
    kinds = [Topic.ROUTING, Topic.WOULD_HAVE, Topic.QUALITY, Topic.WOULD_HAVE, Topic.ROUTING, Topic.QUALITY]
    async with office(tmp_path, Talker(), most=3) as at:
        change = at.post.planned([notice(topic, number=i) for i, topic in enumerate(kinds)])
        assert [one.notice.matter.topic for one in change.added] == [Topic.QUALITY, Topic.ROUTING, Topic.QUALITY]
        assert change.added[1].notice.id == notice(number=4).id


async def test_ten_thousand_changes_with_a_dead_channel_stay_bounded(tmp_path: Path) -> None:
    async with office(tmp_path, Talker(always=DOWN), most=MOST_WAITING) as at:
        for i in range(100):
            await at.tell(*(notice(number=100 * i + j, subject=f"t{j}", state=f"{i}") for j in range(100)))
        kept = at.store.notices()
        assert len(kept.waiting) == MOST_WAITING == len(at.post.waiting["ops"])
        assert len(kept.told) == 100
        assert [one.notice.id for one in kept.waiting] == [one.id for one in at.post.waiting["ops"]]
        assert kept.waiting[-1].notice.id == notice(number=9999).id


async def test_a_fault_of_ours_costs_one_notice_and_not_the_channel(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with office(tmp_path, Broken()) as at:
        await at.tell(notice(), notice(number=2))
        await at.post.idle()
        at.post.start()
        await at.post.idle()
        assert at.talker.heard == [notice(number=2).id]
        assert at.count("notification_failures") == 1
    assert "a channel broke off by a fault in quantwatch" in caplog.text


async def test_what_is_kept_is_kept_once(tmp_path: Path) -> None:
    async with office(tmp_path, Talker(always=DOWN)) as at:
        change = at.post.planned([notice()])
        at.store.tell(change)
        at.store.tell(change)
        assert len(at.store.notices().waiting) == 1
        at.store.tell(Change(done=[("ops", notice().id), ("gone", "x")]))
        assert at.store.notices().waiting == []


async def test_what_waits_for_a_channel_that_left_is_forgotten_without_a_count(tmp_path: Path) -> None:
    async with office(tmp_path, Talker(always=DOWN)) as at:
        change = at.post.planned([notice()])
        at.store.tell(change)
        at.channels.clear()
        at.post.waiting = {"ops": [notice()]}
        gone = at.post.planned([])
        assert gone.done == [("ops", notice().id)]
        at.store.tell(gone)
        at.post.take(gone)
        at.post.lose("ops", 1, "the channel left")
        assert at.post.waiting == {}
        assert at.count("notification_failures") == 0
