"""The pulse: how late the loop is, whether the wall clock jumped, and the sign of life for systemd."""

import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from quantwatch.daemon.heartbeat import REMEMBERED, Heartbeat
from quantwatch.daemon.systemd import Notifier
from quantwatch.expose.meters import Meters


@dataclass(slots=True)
class TwoClocks:
    """A wall clock and a steady one; a sleep moves both, each by what the test says beside the seconds asked for."""

    wall: float = 0.0
    steady: float = 0.0
    late: list[float] = field(default_factory=list)
    jumps: list[float] = field(default_factory=list)

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.wall)

    def monotonic(self) -> float:
        return self.steady

    async def sleep(self, seconds: float) -> None:
        passed = seconds + (self.late.pop(0) if self.late else 0.0)
        self.steady += passed
        self.wall += passed + (self.jumps.pop(0) if self.jumps else 0.0)


@dataclass(slots=True)
class Beating:
    """A heartbeat and what it did."""

    clock: TwoClocks = field(default_factory=TwoClocks)
    meters: Meters = field(default_factory=Meters)
    jumped: list[float] = field(default_factory=list)
    notifier: Notifier = field(default_factory=lambda: Notifier({}))

    async def beat(self, times: int = 1) -> Heartbeat:
        heart = Heartbeat(self.clock, self.meters, self.notifier, jumped=self.jumped.append)
        for _ in range(times):
            await heart.once()
        return heart

    def value(self, name: str) -> float:
        lines = generate_latest(self.meters.registry).decode().splitlines()
        (found,) = [line for line in lines if line.startswith(f"quantwatch_{name} ")]
        return float(found.rpartition(" ")[2])


async def test_the_worst_lag_of_the_last_minute_is_told_and_then_forgotten() -> None:
    beating = Beating(TwoClocks(late=[0.0, 0.75, 0.25]))
    heart = await beating.beat(3)

    assert heart.lag == pytest.approx(0.75)
    for _ in range(REMEMBERED):
        await heart.once()
    assert heart.lag == 0.0


async def test_every_lag_goes_into_the_histogram() -> None:
    beating = Beating(TwoClocks(late=[0.5, 2.0]))

    await beating.beat(3)

    assert beating.value("event_loop_lag_seconds_count") == 3
    assert beating.value("event_loop_lag_seconds_sum") == pytest.approx(2.5)


async def test_before_the_first_beat_there_is_no_lag() -> None:
    assert (await Beating().beat(0)).lag == 0.0


@pytest.mark.parametrize("jump", [3600.0, -3600.0, -365 * 86_400.0, 5.5])
async def test_a_wall_clock_that_was_set_is_counted_and_the_times_are_reckoned_anew_once(jump: float) -> None:
    beating = Beating(TwoClocks(jumps=[0.0, jump]))

    await beating.beat(4)

    assert beating.jumped == [pytest.approx(jump)]
    assert beating.value("clock_jumps_total") == 1


async def test_a_clock_that_is_slewed_by_ntp_is_no_jump() -> None:
    beating = Beating(TwoClocks(jumps=[0.4, -0.4, 4.9]))

    await beating.beat(3)

    assert beating.jumped == []
    assert beating.value("clock_jumps_total") == 0


async def test_a_loop_that_hung_for_a_minute_is_late_and_no_jump() -> None:
    beating = Beating(TwoClocks(late=[60.0]))
    heart = await beating.beat()

    assert heart.lag == pytest.approx(60.0)
    assert beating.jumped == []


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket that systemd listens on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.bind(str(tmp_path / "notify"))
        one.settimeout(5)
        yield one


async def test_systemd_gets_a_sign_of_life_at_every_beat_where_it_watches(
    tmp_path: Path, systemd: socket.socket
) -> None:
    beating = Beating(notifier=Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "30000000"}))

    await beating.beat(2)

    assert [systemd.recv(100), systemd.recv(100)] == [b"WATCHDOG=1", b"WATCHDOG=1"]


async def test_systemd_hears_nothing_where_it_does_not_watch(tmp_path: Path, systemd: socket.socket) -> None:
    beating = Beating(notifier=Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify")}))

    await beating.beat(2)

    systemd.settimeout(0)
    with pytest.raises(BlockingIOError):
        systemd.recv(100)
