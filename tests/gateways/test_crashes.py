"""SIGKILL within an order at a real gateway: afterwards one effect, the gateway as decided, one complete record.

tests/daemon/test_crash_matrix.py has the webhook, with faults of its gateway besides; here is every real program.
"""

import itertools
import shutil
import threading
from collections.abc import Iterator
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
from support.lives import KILLED, Lives, forked
from support.places import PLACES, Place
from support.stored import opened

POINTS = [one for one in Point if one is not Point.NEVER]
UNSENT = (Point.BEFORE_DECISION, Point.AFTER_DECISION, Point.BEFORE_SEND)
TEXTS = ("A lamp", "A ship", "17 + 25", "SELECT", "Dear", "def f")
TASK_SET = {"draw": 24, "k": 5, "continuation_tokens": 6, "limits": {"kl_mean": {"warn": 1e-4, "critical": 2e-4}}}
POOL = {"mode": "enforce", "fallback": "baseline", "release_after": 1, "minimum_hold": "0s"}
PATHS = {
    Action.ISOLATE: [("in", "leaving"), ("leaving", "out")],
    Action.RELEASE: [("out", "returning"), ("returning", "in")],
}


@pytest.fixture(scope="module")
def lives() -> Iterator[Lives]:
    with forked() as made:
        yield made


@pytest.fixture(scope="module", params=[one for one in PLACES if one != "webhook"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    installed, maker = PLACES[request.param]
    if not installed:
        pytest.skip(f"what {request.param} speaks to is not installed")
    with maker(tmp_path_factory.mktemp(request.param)) as made:
        yield made


def prepared(folder: Path, place: Place) -> Site:
    """A pool of one node that breaches any limit when it is sick, and acts through the gateway."""
    write_prompts(folder, texts=TEXTS)
    urls, server = {"node": "http://node"}, dict(place.server)
    where = site(folder, "http://baseline", urls, gateway=dict(place.gateway), pools={"chat": POOL}, server=server)
    write_prompts(folder, texts=TEXTS)
    where.content["task_sets"]["letters"] |= TASK_SET
    where.content["targets"][0]["gateway_name"] = place.node
    for name, text in place.files.items():
        (folder / name).write_text(text)
    return where.write()


@pytest.fixture(scope="module")
def earlier(place: Place, lives: Lives, tmp_path_factory: pytest.TempPathFactory) -> dict[Action, Path]:
    """Stores of earlier lives: the baseline proven by a clean run, and after that the node isolated."""
    place.stands(out=False)
    where, stores = prepared(tmp_path_factory.mktemp("earlier"), place), {}
    for seed, action in enumerate((Action.ISOLATE, Action.RELEASE), 100):
        assert lives.live(Life(str(where.file), seed, sick=action is Action.RELEASE)) == 0
        stores[action] = Path(shutil.copy(where.store, where.folder / f"{action}.db"))
    place.until(out=True)
    return stores


class Changes:
    """Looks at the gateway all the time; seen: how our node stood, one after another."""

    def __init__(self, place: Place) -> None:
        self._look_now, self._stop = place.told or place.out, threading.Event()
        self.seen = [self._look_now()]
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Changes":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE)

    def _look(self) -> None:
        while not self._stop.wait(0.04):
            out = self._look_now()
            if out is not self.seen[-1]:
                self.seen.append(out)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("action", list(Action))
def test_a_process_killed_within_an_order_acts_once_after_its_restart(
    point: Point,
    action: Action,
    place: Place,
    earlier: dict[Action, Path],
    lives: Lives,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    isolates, seeds = action is Action.ISOLATE, itertools.count(2)
    where = prepared(tmp_path, place)
    shutil.copy(earlier[action], where.store)
    place.stands(out=not isolates)

    def life(end: Point) -> int:
        return lives.live(Life(str(where.file), next(seeds), end, sick=isolates))

    with Changes(place) as changes:
        assert life(point) == KILLED
        if point in UNSENT and place.gateway["driver"] != "verdict":  # there the record is all that HAProxy hears
            assert place.out() is not isolates
        assert life(Point.NEVER) == 0
        place.until(out=isolates)
    assert changes.seen in ([not isolates, isolates], [not isolates])  # it may have ended between two looks
    check_record(where, action, sent=point not in UNSENT)
    assert main(["check", "--store", str(where.store)], commands=app) == 0
    assert "is sound" in capsys.readouterr().out


def check_record(where: Site, action: Action, *, sent: bool) -> None:
    """One decision, one order with its end, one way of the routing."""
    with Archive.open(where.store) as archive:
        (decision,) = [one for one in archive.decisions() if one.action is action]
    intent = decision.intent
    assert (decision.ruling, decision.objections) == (Ruling.ACT, ())
    assert intent is not None
    assert intent.outcome is not None
    assert (intent.outcome.result, intent.outcome.doubt) == (Result.VERIFIED, False)
    assert intent.outcome.attempts == intent.attempts
    assert intent.attempts == 1 if sent else intent.attempts in (1, 2)
    routing = [one for one in decision.transitions if one.axis is Axis.ROUTING]
    assert [(one.old, one.new) for one in routing] == PATHS[action]
    _check_target(where, decision, isolates=action is Action.ISOLATE)


def _check_target(where: Site, decision: StoredDecision, *, isolates: bool) -> None:
    with opened(where.folder, name="quantwatch.db") as store:
        (state,) = store.target_states()
        assert store.open_intents() == []
    assert (state.routing, state.owner) == ((Routing.OUT, decision.id) if isolates else (Routing.IN, None))
    assert state.ejections == 1
