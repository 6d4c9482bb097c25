"""SIGKILL at every point of an action, in real processes, against a gateway that does every call it gets.

Whatever the point: at most two calls in all, one id, one change at the gateway, and a complete record afterwards.
"""

import itertools
import os
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from quantwatch.cli.main import main
from quantwatch.cli.store import app
from quantwatch.flow.decision import Action, Result, Ruling
from quantwatch.flow.state import Axis, Routing
from quantwatch.record.archive import Archive
from quantwatch.record.decisions import StoredDecision
from support.crashing import Life, Point
from support.daemons import PATIENCE, Site, site, write_prompts
from support.gateway import Fault, Gateway, GatewayServer, served_gateway
from support.lives import KILLED, Lives, forked
from support.stored import opened

NODE = "http://node"
TEXTS = ("A lamp", "A ship", "17 + 25", "SELECT", "Dear", "def f")
TASK_SET = {"draw": 24, "k": 5, "continuation_tokens": 6, "limits": {"kl_mean": {"warn": 1e-4, "critical": 2e-4}}}
POOL = {"mode": "enforce", "fallback": "baseline", "release_after": 1, "minimum_hold": "0s"}
POINTS = [one for one in Point if one not in (Point.NEVER, Point.AFTER_LOOK)]
UNSENT = (Point.BEFORE_DECISION, Point.AFTER_DECISION, Point.BEFORE_SEND)
PATHS = {
    Action.ISOLATE: [("in", "leaving"), ("leaving", "out")],
    Action.RELEASE: [("out", "returning"), ("returning", "in")],
}


@pytest.fixture(scope="module")
def lives() -> Iterator[Lives]:
    with forked() as made:
        yield made


@dataclass(frozen=True, slots=True)
class Case:
    """One action that is to happen, whatever befalls the process. site: its files."""

    action: Action
    reads_back: bool
    gateway: Gateway
    site: Site
    lives: Lives
    seeds: Iterator[int] = field(default_factory=lambda: itertools.count(2))

    def life(self, point: Point = Point.NEVER) -> Life:
        """A life in which the action falls due."""
        return Life(str(self.site.file), next(self.seeds), point, sick=self.action is Action.ISOLATE)

    def dies(self, point: Point) -> None:
        """One life that ends at a point."""
        assert self.lives.live(self.life(point)) == KILLED

    def ends(self) -> None:
        """One life that comes to its own end."""
        assert self.lives.live(self.life()) == 0

    def decisions(self) -> list[StoredDecision]:
        """Decisions for the action, oldest first."""
        with Archive.open(self.site.store) as archive:
            return [one for one in reversed(archive.decisions()) if one.action is self.action]

    @property
    def isolates(self) -> bool:
        return self.action is Action.ISOLATE


def prepared(folder: Path, gateway: GatewayServer, *, reads_back: bool) -> Site:
    """A pool of one node that breaches any limit when it is sick, and acts through the gateway."""
    calls = {"driver": "webhook", "url": f"{gateway.url}/act", "timeout": "30s"}
    calls |= {"state_url": f"{gateway.url}/state"} if reads_back else {}
    where = site(folder, "http://baseline", {"node": NODE}, gateway=calls, pools={"chat": POOL})
    where.content["task_sets"]["letters"] |= TASK_SET
    write_prompts(folder, texts=TEXTS)
    return where.write()


@pytest.fixture(scope="module")
def earlier(lives: Lives, tmp_path_factory: pytest.TempPathFactory) -> dict[Action, Path]:
    """Stores of earlier lives: the baseline proven by a clean run, and after that the node isolated."""
    gateway, stores = Gateway(), {}
    with served_gateway(gateway) as server:
        where = prepared(tmp_path_factory.mktemp("earlier"), server, reads_back=True)
        for seed, action in enumerate((Action.ISOLATE, Action.RELEASE), 100):
            assert lives.live(Life(str(where.file), seed, sick=action is Action.RELEASE)) == 0
            stores[action] = Path(shutil.copy(where.store, where.folder / f"{action}.db"))
    assert gateway.changes == [(NODE, True)]
    return stores


@pytest.fixture(params=[True, False], ids=["read back", "not read back"])
def reads_back(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=list(Action))
def case(
    request: pytest.FixtureRequest, reads_back: bool, earlier: dict[Action, Path], lives: Lives, tmp_path: Path
) -> Iterator[Case]:
    gateway = Gateway(isolated={NODE: request.param is Action.RELEASE})
    with served_gateway(gateway) as server:
        where = prepared(tmp_path, server, reads_back=reads_back)
        shutil.copy(earlier[request.param], where.store)
        yield Case(request.param, reads_back, gateway, where, lives)


def check(case: Case, capsys: pytest.CaptureFixture[str], *, calls: int = 2) -> None:
    """One change at the gateway, under one id, in so many calls at most; and nothing is missing in the record."""
    gateway = case.gateway
    assert gateway.changes == [(NODE, case.isolates)]
    assert len(gateway.ids) == 1
    assert 1 <= len(gateway.calls) <= calls
    (decision,) = case.decisions()
    assert gateway.ids == {decision.id}
    _check_decision(decision, case)
    _check_target(decision, case)
    assert main(["check", "--store", str(case.site.store)], commands=app) == 0
    assert "is sound" in capsys.readouterr().out


def _check_decision(decision: StoredDecision, case: Case) -> None:
    assert decision.ruling is Ruling.ACT
    assert decision.objections == ()
    intent = decision.intent
    assert intent is not None
    assert intent.outcome is not None
    assert intent.outcome.result is (Result.VERIFIED if case.reads_back else Result.ACCEPTED)
    assert intent.outcome.attempts == intent.attempts >= len(case.gateway.calls)
    assert not intent.outcome.doubt
    if case.isolates:
        with Archive.open(case.site.store) as archive:
            assert decision.run is not None
            assert archive.run(decision.run).target == "node"
            assert [one["metric"] for one in archive.numbers(decision.run)]


def _check_target(decision: StoredDecision, case: Case) -> None:
    routing = [one for one in decision.transitions if one.axis is Axis.ROUTING]
    assert [(one.old, one.new) for one in routing] == PATHS[case.action]
    assert all(one.reason for one in routing)
    with opened(case.site.folder, name="quantwatch.db") as store:
        (state,) = store.target_states()
        assert store.open_intents() == []
    assert (state.routing, state.owner) == ((Routing.OUT, decision.id) if case.isolates else (Routing.IN, None))
    assert state.ejections == 1


@pytest.mark.parametrize("point", POINTS)
def test_a_process_killed_at_any_point_acts_once_after_its_restart(
    point: Point, case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    case.dies(point)
    assert len(case.gateway.calls) == (0 if point in UNSENT else 1)
    case.ends()
    check(case, capsys, calls=1 if case.reads_back or point in UNSENT else 2)


@pytest.mark.parametrize("reads_back", [True], ids=["read back"], indirect=True)
def test_a_process_killed_after_it_has_read_back_acts_once_after_its_restart(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    case.dies(Point.AFTER_LOOK)
    case.ends()
    check(case, capsys, calls=1)


@pytest.mark.parametrize("fault", [Fault.HANGS_DONE, Fault.HANGS_UNDONE])
def test_a_process_killed_while_it_waits_for_the_reply_acts_once_after_its_restart(
    fault: Fault, case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    case.gateway.faults.append(fault)

    def kill(process: int) -> None:
        until = time.monotonic() + PATIENCE
        while not case.gateway.calls and time.monotonic() < until:
            time.sleep(0.005)
        os.kill(process, signal.SIGKILL)

    assert case.lives.live(case.life(), kill) == KILLED
    assert case.gateway.changes == ([(NODE, case.isolates)] if fault is Fault.HANGS_DONE else [])
    case.ends()
    check(case, capsys)
    assert len(case.gateway.calls) == (1 if fault is Fault.HANGS_DONE and case.reads_back else 2)


@pytest.mark.parametrize("reads_back", [False], ids=["not read back"], indirect=True)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Point.BEFORE_DECISION, Point.AFTER_DECISION),
        (Point.BEFORE_SEND, Point.BEFORE_SEND),
        (Point.AFTER_REPLY, Point.BEFORE_SETTLE),
        (Point.BEFORE_SETTLE, Point.AFTER_SETTLE),
    ],
)
def test_a_process_killed_twice_in_a_row_acts_once(
    first: Point, second: Point, case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    """What cannot be read back may be sent in each of three lives; the gateway sees one id and changes once."""
    case.dies(first)
    case.dies(second)
    case.ends()
    check(case, capsys, calls=3)
