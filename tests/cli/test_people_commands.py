"""A person's commands against a running daemon and a gateway on a socket: every word, and what `status` says of it."""

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from quantwatch.cli.main import main
from support.daemons import Running, Site, site, started
from support.gateway import Fault, Gateway, served_gateway
from support.runs import node
from support.served import served
from support.tiny_node import TinyNode


def said(capsys: pytest.CaptureFixture[str], where: Site, *arguments: str, code: int = 0) -> str:
    """What a command says, standard output and error together, on one line."""
    command, *more = arguments
    capsys.readouterr()
    assert main([command, "--config", str(where.file), *more]) == code
    out, err = capsys.readouterr()
    return " ".join((out + err).split())


def measure_now(daemon: Running, target: str) -> None:
    """Let a target run and wait for what came of it."""
    done = sum(f"letters on {target}" in one for one in daemon.events())
    httpx.post(f"{daemon.site.admin}/api/v1/runs", json={"target": target}).raise_for_status()
    daemon.until(f"letters on {target}", times=done + 1)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[Site, Gateway]]:
    """A pool of mode approve over a sound node a and a bad node b, with a gateway that can be read back."""
    gateway = Gateway()
    with ExitStack() as stack:
        server = stack.enter_context(served_gateway(gateway))
        urls = [stack.enter_context(served(one)) for one in (TinyNode(), node(), node(1.5))]
        acting: dict[str, Any] = {
            "pools": {"chat": {"mode": "approve", "max_isolated": "50%", "fallback": "baseline"}},
            "gateway": {"driver": "webhook", "url": f"{server.url}/act", "state_url": f"{server.url}/state"},
        }
        yield site(tmp_path, urls[0], {"a": urls[1], "b": urls[2]}, **acting), gateway


def test_a_proposal_outlives_a_kill_and_is_approved_once(
    place: tuple[Site, Gateway], capsys: pytest.CaptureFixture[str]
) -> None:
    where, gateway = place
    with started(where) as daemon:
        daemon.ready()
        measure_now(daemon, "a")
        measure_now(daemon, "b")
        waits = daemon.until("isolate waits for approval")
        daemon.send(signal.SIGKILL)
        daemon.end()
    with started(where, name="again") as daemon:
        daemon.ready()
        shown = said(capsys, where, "status", code=1)
        assert f"isolate b: {waits['event'].partition(': ')[2]} ({waits['decision_id']})" in shown
        assert gateway.calls == []

        early = said(capsys, where, "approve", waits["decision_id"], code=3)
        assert "stays open: the baseline is not proven sound" in early  # nothing was measured in this life yet
        measure_now(daemon, "a")
        measure_now(daemon, "b")
        told = said(capsys, where, "approve", waits["decision_id"], "--author", "ada")
        assert told == f"approved: {waits['decision_id']}"
        daemon.until("isolate: verified")
        assert [call.id for call in gateway.calls] == [waits["decision_id"]]
        assert "no open proposal" in said(capsys, where, "approve", waits["decision_id"], code=3)
        capsys.readouterr()
        assert main(["show", waits["decision_id"], "--config", str(where.file)]) == 0
        assert "by ada: letters is degraded" in " ".join(capsys.readouterr().out.split())
        whole = json.loads(_json(capsys, where, waits["decision_id"]))
        assert (whole["decision"]["proposal"]["author"], whole["decision"]["outcome"]["result"]) == ("ada", "verified")
    assert len(gateway.changes) == 1


def test_every_word_is_heard_shown_and_kept(place: tuple[Site, Gateway], capsys: pytest.CaptureFixture[str]) -> None:
    where, gateway = place
    why = ("--reason", "smoke", "--author", "ada")
    with started(where) as daemon:
        daemon.ready()
        measure_now(daemon, "a")
        measure_now(daemon, "b")
        waits = daemon.until("isolate waits for approval")
        assert said(capsys, where, "reject", waits["decision_id"], *why) == f"rejected: {waits['decision_id']}"

        assert said(capsys, where, "hold", "a", *why, "--hours", "2") == "a is held as it is"
        shown = said(capsys, where, "status", code=1)
        assert "a person has said: held until" in shown
        assert "by ada" in shown
        assert "because: smoke" in shown
        assert said(capsys, where, "release", "a", *why).startswith("a is free")

        told = said(capsys, where, "isolate", "b", *why, "--hours", "1")
        line = daemon.until("isolate: verified")
        assert told.startswith(f"isolation ordered: {line['decision_id']}")
        told = said(capsys, where, "isolate", "a", *why, code=3)
        assert "2 of 2 members of chat would be away" in told
        assert "--force isolates it all the same" in told
        said(capsys, where, "isolate", "a", *why, "--force")
        daemon.until("isolate: verified", times=2)

        said(capsys, where, "confirm-healthy", "b", *why)
        daemon.until("release: verified")
        said(capsys, where, "release", "a", *why)
        daemon.until("release: verified", times=2)
        assert said(capsys, where, "confirm-healthy", "a", *why) == "a starts anew; later breaches count"

        listed = json.loads(_json(capsys, where, "--changes", command="history"))["changes"]
        human = [(one["target"], one["old"], one["new"], one["author"]) for one in said_of(listed)]
        assert human[::-1] == [
            ("a", "none", "held", "ada"),
            ("a", "held", "none", "ada"),
            ("b", "none", "forced_out", "ada"),
            ("a", "none", "forced_out", "ada"),
            ("b", "forced_out", "none", "ada"),
            ("a", "forced_out", "none", "ada"),
            ("a", "none", "none", "ada"),
        ]
        assert "forced_out" in said(capsys, where, "history", "--changes")
    assert [isolated for _, isolated in gateway.changes] == [True, True, False, False]


def test_every_isolation_is_released_by_one_command(
    place: tuple[Site, Gateway], capsys: pytest.CaptureFixture[str]
) -> None:
    where, gateway = place
    why = ("--reason", "uninstalled", "--author", "ada")
    with started(where) as daemon:
        daemon.ready()
        assert said(capsys, where, "release", "--all-owned", *why) == "nothing is isolated by quantwatch"
        for one in ("a", "b"):
            said(capsys, where, "isolate", one, *why, "--force")
        daemon.until("isolate: verified", times=2)
        both = ((*why, "a", "--all-owned"), why)
        for wrong in both:
            assert "name one target, or give --all-owned" in said(capsys, where, "release", *wrong, code=3)
        assert len(gateway.changes) == 2

        gateway.always = Fault.BUSY
        told = said(capsys, where, "release", "--all-owned", *why)
        again = said(capsys, where, "release", "--all-owned", *why)
        assert again == "a is on its way back already b is on its way back already"
        gateway.always = None
        daemon.until("release: verified", times=2)
        assert told.count("release ordered: d-") == 2
        assert sorted(gateway.changes[2:]) == sorted((node, False) for node, _ in gateway.changes[:2])

        for one in ("a", "b"):
            said(capsys, where, "isolate", one, *why, "--force")
        daemon.until("isolate: verified", times=4)
        where.content["gateway"] = {"driver": "verdict"}
        where.write()
        said(capsys, where, "reload")
        refused = said(capsys, where, "release", "--all-owned", *why, code=3)
        for one in ("a", "b"):
            assert f"{one} was isolated through webhook, and the configuration names verdict now" in refused


def said_of(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What people said about targets; that somebody asked for a run stands beside it."""
    return [one for one in changes if one["axis"] == "human" and not one["reason"].startswith("run ")]


def _json(capsys: pytest.CaptureFixture[str], where: Site, *arguments: str, command: str = "show") -> str:
    capsys.readouterr()
    assert main([command, *arguments, "--config", str(where.file), "--json", "-"]) == 0
    return capsys.readouterr().out
