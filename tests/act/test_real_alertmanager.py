"""A real Alertmanager receives an alert, shows it while it stands, and resolves it."""

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from quantwatch.act.alertmanager import PATH, STANDS, Alertmanager
from quantwatch.act.channel import Line
from quantwatch.clock import SystemClock
from quantwatch.flow.notice import Notice, Topic
from quantwatch.net import Endpoint, Link
from support.daemons import PATIENCE, free_port
from support.notices import matter
from support.prometheus import wait
from support.receiver import Receiver, received

PROGRAM = next(filter(None, map(shutil.which, ("prometheus-alertmanager", "alertmanager"))), None)
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="the Alertmanager is not installed")


@contextmanager
def alertmanager(folder: Path, told: str) -> Iterator[str]:
    """An Alertmanager that passes everything on at once; gives its URL."""
    hook = {"name": "all", "webhook_configs": [{"url": told, "send_resolved": True}]}
    route = {"receiver": "all", "group_by": ["..."], "group_wait": "0s", "group_interval": "1s"}
    # Nothing may hang on it: quantwatch gives every alert an end of its own.
    content = {"global": {"resolve_timeout": "2s"}, "route": route, "receivers": [hook]}
    (folder / "alertmanager.yml").write_text(yaml.safe_dump(content))
    listen = f"127.0.0.1:{free_port()}"
    command = [
        str(PROGRAM),
        f"--config.file={folder / 'alertmanager.yml'}",
        f"--storage.path={folder / 'data'}",
        f"--web.listen-address={listen}",
        "--cluster.listen-address=",
    ]
    with (folder / "alertmanager.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)  # noqa: S603, ours
        try:
            wait(lambda: _answers(f"http://{listen}"), "it answered")
            yield f"http://{listen}"
        finally:
            process.terminate()
            process.wait(PATIENCE)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/-/ready", timeout=5, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def shown(url: str) -> list[dict[str, Any]]:
    """What it holds for active."""
    answer = httpx.get(f"{url}{PATH}", params={"active": "true"}, timeout=10, trust_env=False)
    alerts: list[dict[str, Any]] = answer.json()
    return alerts


def at(seconds: float, *, standing: bool = True, since: float = 60.0, **given: Any) -> Notice:
    """A breach that began `since` seconds ago, in a state that it took so many seconds ago."""
    now = datetime.now(UTC)
    whole = matter(**given, standing=standing)
    return Notice("n-1", now - timedelta(seconds=seconds), now - timedelta(seconds=since), whole)


async def test_an_alert_is_shown_repeated_reworded_and_resolved(tmp_path: Path) -> None:
    passed_on = Receiver()
    with received(passed_on) as told, alertmanager(tmp_path, told) as url:
        async with Link(Endpoint("am", f"{url}{PATH}")) as link:
            channel = Alertmanager(Line(link, SystemClock()), runbook_url="https://wiki.test/rb")
            began = at(60)
            other = at(60, topic=Topic.STORM, target=None, task_set=None, subject="chat")
            assert (await channel.send([began, other])).ok
            first = {one["labels"]["alertname"]: one for one in shown(url)}
            assert set(first) == {"QuantwatchQuality", "QuantwatchStorm"}
            breach = first["QuantwatchQuality"]
            assert (breach["status"]["state"], breach["labels"]["severity"]) == ("active", "critical")
            assert breach["annotations"]["runbook_url"] == "https://wiki.test/rb#alert-target-bad"
            assert "0.21 (0.18 to 0.24)" in breach["annotations"]["description"]
            ends = datetime.fromisoformat(breach["endsAt"]) - datetime.now(UTC)
            assert STANDS / 2 < ends <= STANDS

            await asyncio.sleep(3)  # longer than its resolve_timeout
            assert len(shown(url)) == 2
            worse = Notice(began.id, began.at, began.since, matter(state="corrupted", reason="NaN"))
            assert (await channel.send([worse])).ok
            (again,) = [one for one in shown(url) if one["labels"]["alertname"] == "QuantwatchQuality"]
            assert again["fingerprint"] == breach["fingerprint"]
            assert again["startsAt"] == breach["startsAt"]
            assert again["endsAt"] > breach["endsAt"]
            assert "corrupted" in again["annotations"]["summary"]

            over = Notice("n-2", datetime.now(UTC), began.since, matter(state="ok", standing=False))
            assert (await channel.send([over])).ok
            assert {one["labels"]["alertname"] for one in shown(url)} == {"QuantwatchStorm"}
        wait(lambda: any(one["status"] == "resolved" for one in passed_on.bodies), "the end was passed on")
    names = {one["alerts"][0]["labels"]["alertname"] for one in passed_on.bodies if one["status"] == "resolved"}
    assert names == {"QuantwatchQuality"}


async def test_an_end_that_comes_as_soon_as_the_beginning_is_taken(tmp_path: Path) -> None:
    with received(Receiver()) as told, alertmanager(tmp_path, told) as url:
        async with Link(Endpoint("am", f"{url}{PATH}")) as link:
            channel = Alertmanager(Line(link, SystemClock()))
            reply = await channel.send([at(0, since=0, standing=False)])
    assert reply.said == "answered 200"


async def test_another_path_is_refused_and_final(tmp_path: Path) -> None:
    with received(Receiver()) as told, alertmanager(tmp_path, told) as url:
        async with Link(Endpoint("am", f"{url}/api/v1/alerts/none")) as link:
            reply = await Alertmanager(Line(link, SystemClock())).send([at(0)])
    assert (reply.ok, reply.again) == (False, False)
