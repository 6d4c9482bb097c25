"""The daemon, its store and a real router together: a bad node goes out by itself, and no death of either hides it."""

import contextlib
import signal
import sqlite3
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from quantwatch.clock import SystemClock
from quantwatch.flow.state import Routing
from quantwatch.record.store import Store
from support.daemons import PATIENCE, Running, Site, site, started
from support.routers import DRIVERS, program
from support.routers import Running as Router
from support.runs import node
from support.served import served
from support.tiny_node import TinyNode

LIMITS = {"kl_mean": {"warn": 1e-4, "critical": 2e-4}}


def run_now(daemon: Running, target: str) -> None:
    """Let a target be measured."""
    httpx.post(f"{daemon.site.admin}/api/v1/runs", json={"target": target}, timeout=PATIENCE).raise_for_status()


def routing(where: Site, target: str) -> str:
    """How a target stands by the record."""
    board: dict[str, Any] = httpx.get(f"{where.admin}/api/v1/status", timeout=PATIENCE).json()
    return next(str(one["routing"]) for one in board["targets"] if one["target"] == target)


def doubted(where: Site, routing: Routing = Routing.CONTRADICTED) -> None:
    """Between two lives: the record says of the bad node that the gateway contradicts it."""
    with Store.open(where.store, clock=SystemClock()) as store:
        (state,) = [one for one in store.target_states() if one.target == "bad"]
        store.save_target(replace(state, routing=routing))


def life(where: Site, name: str) -> str:
    """A short life of the daemon, which ends by SIGKILL; how the bad node stands in it once it has looked."""
    with started(where, name=name) as daemon:
        daemon.ready()
        stands = routing(where, "bad")
        daemon.send(signal.SIGKILL)
        daemon.end()
    return stands


@pytest.mark.parametrize("kind", DRIVERS)
def test_a_bad_node_goes_out_and_the_record_outlives_daemon_and_router(kind: str, tmp_path: Path) -> None:
    if program(kind) is None:
        pytest.skip(f"{kind} is not installed")
    with ExitStack() as stack:
        baseline, good, bad = [stack.enter_context(served(one)) for one in (TinyNode(), node(), node(1.5))]
        router = Router(kind, [good, bad], tmp_path)
        stack.callback(router.stop)
        router.start()
        where = site(
            tmp_path,
            baseline,
            {"good": good, "bad": bad},
            gateway={"driver": kind, "url": router.url},
            pools={"chat": {"mode": "enforce", "max_isolated": "50%"}},
        )
        where.content["task_sets"]["letters"] |= {"k": 5, "continuation_tokens": 6, "limits": LIMITS}
        where.write()

        with started(where, name="first") as daemon:
            daemon.ready()
            run_now(daemon, "good")
            daemon.until("letters on good")
            run_now(daemon, "bad")
            daemon.until("isolate: verified")
            assert router.listed() == {good}
            assert routing(where, "bad") == "out"
            daemon.send(signal.SIGKILL)
            daemon.end()

        doubted(where)
        assert life(where, "second") == "out"  # the note in the store tells that the absence is ours
        doubted(where)
        with contextlib.closing(sqlite3.connect(where.store)) as connection, connection:
            assert connection.execute("DELETE FROM meta WHERE key LIKE 'note: %'").rowcount == 1
        assert life(where, "third") == "contradicted"  # and without it nothing does

        doubted(where, Routing.OUT)
        router.stop()
        router.start()
        with started(where, name="fourth") as daemon:
            daemon.ready()
            daemon.until("routing is contradicted now: the gateway says routable, and on record it is isolated")
