"""Taking over another configuration while the daemon runs, by signal and by call."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from quantwatch.daemon.process import Daemon
from quantwatch.flow.state import Routing, TargetState
from support.daemons import Site, free_port, inside, site, until
from support.runs import node
from support.served import served
from support.tiny_node import TinyNode

OK = "quantwatch_config_last_reload_successful"


@pytest.fixture(scope="module")
def urls() -> Iterator[tuple[str, ...]]:
    """A baseline and two nodes."""
    with served(TinyNode()) as baseline, served(node()) as a, served(node()) as b:
        yield baseline, a, b


@dataclass(slots=True)
class Reloading:
    """A daemon on the test's own loop, its site, and what it logs."""

    daemon: Daemon
    site: Site
    urls: tuple[str, ...]
    caplog: pytest.LogCaptureFixture

    def lines(self, event: str) -> list[dict[str, Any]]:
        """The log lines of an event, with their values."""
        said = [one.msg for one in self.caplog.records if isinstance(one.msg, dict)]
        return [one for one in said if event in one["event"]]

    async def hang_up(self) -> None:
        """Send SIGHUP and wait until it has been dealt with."""
        before = len(self.lines("taken over") + self.lines("was taken over"))
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: len(self.lines("taken over") + self.lines("was taken over")) > before)

    async def post(self) -> httpx.Response:
        """POST /-/reload."""
        async with httpx.AsyncClient() as client:
            return await client.post(f"{self.site.admin}/-/reload")

    async def metric(self, name: str) -> list[str]:
        """The lines of one series on /metrics."""
        async with httpx.AsyncClient() as client:
            page = (await client.get(f"{self.site.public}/metrics")).text
        return [line for line in page.splitlines() if line.startswith(name)]

    def add_target(self) -> None:
        """Write a second target into the file."""
        second = {"name": "b", "url": self.urls[2], "scheme": "int4", "pool": "chat"}
        self.site.content["targets"].append(second)
        self.site.write()


@pytest.fixture
async def reloading(
    tmp_path: Path, urls: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> AsyncIterator[Reloading]:
    """A daemon that watches one target."""
    caplog.set_level("INFO", logger="quantwatch")
    where = site(tmp_path, urls[0], {"a": urls[1]})
    async with inside(where) as daemon:
        yield Reloading(daemon, where, urls, caplog)


async def test_hang_up_takes_a_good_file_over_and_tells_what_changed(reloading: Reloading) -> None:
    reloading.add_target()
    reloading.site.content["task_sets"]["letters"]["draw"] = 41
    reloading.site.write()

    await reloading.hang_up()

    changed = [one["change"] for one in reloading.lines("configuration changed")]
    assert "task_sets.letters.draw: 40 -> 41" in changed
    assert "targets.b.scheme: new, int4" in changed
    assert await reloading.metric(OK) == [f"{OK} 1.0"]
    assert set(reloading.daemon.desk.watch.workers if reloading.daemon.desk.watch else ()) == {"a", "b"}


async def test_the_histogram_of_single_tokens_goes_and_comes_by_the_configuration(reloading: Reloading) -> None:
    histogram = "quantwatch_token_kl_divergence_nats_count"
    assert len(await reloading.metric(histogram)) == 1
    for shown in (False, True):
        reloading.site.content["expose"] = {"token_histogram": shown}
        reloading.site.write()
        assert (await reloading.post()).status_code == 200
        assert len(await reloading.metric(histogram)) == int(shown)


async def test_a_bad_file_leaves_the_old_one_in_force_and_says_why(reloading: Reloading) -> None:
    digest = reloading.daemon.board().own.config_digest
    reloading.site.content["pools"] = {}
    reloading.site.write()

    await reloading.hang_up()

    (line,) = reloading.lines("the old one stays")
    assert "pools" in line["reason"]
    assert str(reloading.site.file) in line["reason"]
    assert await reloading.metric(OK) == [f"{OK} 0.0"]
    assert reloading.daemon.board().own.config_digest == digest
    assert [one.state.target for one in reloading.daemon.board().targets] == ["a"]


async def test_a_file_with_a_secret_that_is_missing_is_a_bad_file(reloading: Reloading) -> None:
    reloading.site.content["targets"][0]["api_key"] = "env:NO_SUCH_KEY"
    reloading.site.write()

    await reloading.hang_up()

    assert "NO_SUCH_KEY" in reloading.lines("the old one stays")[0]["reason"]
    assert await reloading.metric(OK) == [f"{OK} 0.0"]


async def test_a_file_with_a_certificate_that_is_missing_is_a_bad_file(reloading: Reloading) -> None:
    digest = reloading.daemon.board().own.config_digest
    tls = {"ca_file": str(reloading.site.folder / "no.pem")}
    reloading.site.content["baseline"] = {"url": "https://baseline", "tls": tls}
    reloading.site.write()

    await reloading.hang_up()
    answer = await reloading.post()

    assert "certificate files cannot be used" in reloading.lines("the old one stays")[0]["reason"]
    assert answer.status_code == 500
    assert "certificate files cannot be used" in answer.json()["message"]
    assert await reloading.metric(OK) == [f"{OK} 0.0"]
    assert reloading.daemon.board().own.config_digest == digest


async def test_a_file_that_is_gone_is_a_bad_file(reloading: Reloading) -> None:
    reloading.site.file.unlink()

    answer = await reloading.post()

    assert answer.status_code == 500
    assert "no such file" in answer.json()["message"]


async def test_a_good_file_after_a_bad_one_makes_it_good_again(reloading: Reloading) -> None:
    good = reloading.site.file.read_text()
    reloading.site.file.write_text("schema: 1\n")
    await reloading.hang_up()
    reloading.site.file.write_text(good)

    await reloading.hang_up()

    assert await reloading.metric(OK) == [f"{OK} 1.0"]


async def test_a_call_answers_200_with_the_changes_or_500_with_the_reason(reloading: Reloading) -> None:
    reloading.site.content["task_sets"]["letters"]["k"] = 12
    reloading.site.write()
    good = await reloading.post()
    reloading.site.content["task_sets"]["letters"]["k"] = 0
    reloading.site.write()
    bad = await reloading.post()

    assert (good.status_code, bad.status_code) == (200, 500)
    assert good.json()["changes"] == ["task_sets.letters.k: 10 -> 12"]
    assert "task_sets.letters.k" in bad.json()["message"]
    assert await reloading.metric(OK) == [f"{OK} 0.0"]


async def test_a_file_that_has_not_changed_is_taken_over_without_a_change(reloading: Reloading) -> None:
    answer = await reloading.post()

    assert answer.status_code == 200
    assert answer.json()["changes"] == []
    assert len(reloading.lines("the configuration was taken over")) == 1


async def test_what_changed_is_told_without_any_secret(reloading: Reloading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLD_KEY", "0ld-value")
    monkeypatch.setenv("NEW_KEY", "n3w-value")
    for name in ("OLD_KEY", "NEW_KEY"):
        reloading.site.content["targets"][0] |= {"api_key": f"env:{name}", "headers": {"X-Token": f"env:{name}"}}
        reloading.site.write()
        answer = await reloading.post()

    assert "targets.a.headers.X-Token: env:OLD_KEY -> env:NEW_KEY" in answer.json()["changes"]
    everything = answer.text + repr([one.msg for one in reloading.caplog.records])
    assert "0ld-value" not in everything
    assert "n3w-value" not in everything


async def test_what_waits_for_a_restart_is_told(reloading: Reloading) -> None:
    old = reloading.site.content["server"]["listen"]
    reloading.site.content["server"]["listen"] = f"127.0.0.1:{free_port()}"
    reloading.site.write()

    await reloading.hang_up()
    reloading.site.content["server"]["listen"] = old

    assert "server.listen" in reloading.lines("waits for a restart")[0]["change"]
    assert await reloading.metric(OK) == [f"{OK} 1.0"]


async def test_the_series_of_a_target_that_left_are_gone(reloading: Reloading) -> None:
    reloading.add_target()
    await reloading.hang_up()
    assert any('target="b"' in line for line in await reloading.metric("quantwatch_"))
    reloading.site.content["targets"].pop()
    reloading.site.write()

    await reloading.hang_up()

    assert not [line for line in await reloading.metric("quantwatch_") if 'target="b"' in line]


async def test_a_target_that_leaves_while_it_is_isolated_keeps_its_isolation_and_is_told_of(
    reloading: Reloading,
) -> None:
    reloading.site.content["pools"] = {"chat": {"mode": "enforce", "max_isolated": "50%", "fallback": "baseline"}}
    reloading.add_target()
    await reloading.hang_up()
    reloading.daemon.memory.targets["b"] = TargetState("b", "chat", Routing.OUT, owner="d-1")
    reloading.site.content["targets"].pop()
    reloading.site.write()

    await reloading.hang_up()

    assert reloading.lines("its isolation stays")[0]["target"] == "b"
    async with httpx.AsyncClient() as client:
        verdict = await client.get(f"{reloading.site.public}/verdict/b")
    assert verdict.status_code == 503
    assert [line for line in await reloading.metric("quantwatch_") if 'target="b"' in line]


async def test_reloads_at_the_same_time_follow_one_another(reloading: Reloading) -> None:
    reloading.add_target()

    answers = await asyncio.gather(*(reloading.post() for _ in range(4)))

    assert [one.status_code for one in answers] == [200] * 4
    assert sum(bool(one.json()["changes"]) for one in answers) == 1


async def test_a_new_target_runs_soon_and_the_others_do_not_run_again(reloading: Reloading) -> None:
    await reloading.daemon.desk.run_now("a", None)
    await until(lambda: reloading.daemon.board().targets[0].sets[0].state.run)
    reloading.add_target()

    await reloading.hang_up()

    jobs = {job.id for job in reloading.daemon._timetable._scheduler.get_jobs()}
    assert "b/letters (first)" in jobs
    assert {"a/letters", "b/letters"} <= jobs


async def test_while_it_starts_a_reload_is_refused_and_the_start_goes_on(tmp_path: Path, urls: tuple[str, ...]) -> None:
    where = site(tmp_path, urls[0], {"a": urls[1]})
    daemon = Daemon(where.file, where.settings(), cache=where.cache)

    told = await daemon.reload()

    assert not told.ok
    assert "still starting" in told.message
    assert daemon.board().own.reload_ok
