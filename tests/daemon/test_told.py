"""A real daemon tells a real receiver of a breach once, over a kill and a restart, and shows an open window."""

import json
import signal
import subprocess
import sys
from pathlib import Path

from support.daemons import Running, site, started
from support.receiver import Receiver, received
from support.runs import node
from support.served import served
from support.tiny_node import TinyNode

WINDOW = {
    "name": "works",
    "from": "2020-01-01T00:00:00Z",
    "until": "2999-01-01T00:00:00Z",
    "scope": "target:b",
    "reason": "power work",
}


def measured(daemon: Running) -> bool:
    """Whether both targets have been measured in this life."""
    said = [one for one in daemon.log() if one.get("run_id") and one.get("trigger")]
    return {one["target"] for one in said} == {"a", "b"}


def test_a_breach_is_told_once_and_a_window_is_shown(tmp_path: Path) -> None:
    receiver = Receiver(statuses=[503])
    with served(TinyNode()) as baseline, served(node(1.5)) as bad, served(node()) as good, received(receiver) as url:
        channel = {"name": "ops", "kind": "webhook", "url": f"{url}/in", "min_severity": "info"}
        where = site(tmp_path, baseline, {"a": bad, "b": good}, notifications=[channel], windows=[WINDOW])
        with started(where) as daemon:
            daemon.ready()
            daemon.wait(lambda: len(receiver.taken) == 1, "told of the breach")
            daemon.wait(lambda: measured(daemon), "measured both")
            status = [sys.executable, "-m", "quantwatch", "status", "--config", str(where.file), "--json", "-"]
            board = json.loads(subprocess.run(status, capture_output=True, check=False).stdout)  # noqa: S603, ours
            daemon.process.kill()
        told = receiver.bodies[0]
        assert (told["topic"], told["target"], told["standing"]) == ("quality", "a", True)
        assert [one.headers["webhook-id"] for one in receiver.posts] == [told["id"]] * 2
        assert [(one["id"], one["scope"], one["author"]) for one in board["pauses"]] == [
            ("window:works", "target:b", "window works")
        ]
        assert board["own"]["notices_waiting"] == {"ops": 0}

        with started(where, name="again") as daemon:
            daemon.ready()
            daemon.wait(lambda: measured(daemon) or daemon.log()[-1]["event"] == "watching", "went on")

            daemon.send(signal.SIGHUP)
            daemon.until("the configuration was taken over")
        assert len(receiver.posts) == 2
