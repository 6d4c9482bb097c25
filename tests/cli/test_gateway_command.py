"""`quantwatch gateway show`, `gateway test` and `drill`: against a webhook's receiver, and against real routers."""

import io
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from quantwatch.act.contract import Abilities, Seen
from quantwatch.cli.gateway_tables import show_standings, standings_json
from quantwatch.cli.main import main
from quantwatch.clock import SystemClock
from quantwatch.flow.state import Routing, TargetState
from quantwatch.flows.rehearse import Part
from quantwatch.flows.standings import Standings
from quantwatch.record.place import only_writer
from quantwatch.record.store import Store
from support.daemons import PATIENCE, Site, site, started
from support.gateway import Fault, Gateway, GatewayServer, served_gateway
from support.routers import DRIVERS, bench, program
from support.served import served
from support.tiny_node import TinyNode

URLS = {"a": "http://127.0.0.1:1", "b": "http://127.0.0.1:2"}


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


@pytest.fixture
def server(gateway: Gateway) -> Iterator[GatewayServer]:
    with served_gateway(gateway) as running:
        yield running


@pytest.fixture
def where(tmp_path: Path, server: GatewayServer) -> Site:
    """Two targets of one pool behind a webhook that can be read back."""
    hook = {"driver": "webhook", "url": f"{server.url}/act", "state_url": f"{server.url}/state"}
    return site(tmp_path, "http://127.0.0.1:9", URLS, gateway=hook)


def said(capsys: pytest.CaptureFixture[str], where: Site, *arguments: object, code: int = 0) -> str:
    """What a command says, standard output and error together, on one line."""
    first, *more = map(str, arguments)
    capsys.readouterr()
    assert main([*first.split(), "--config", str(where.file), *more]) == code
    out, err = capsys.readouterr()
    return " ".join((out + err).split())


def test_a_rehearsal_tells_each_step_and_ends_with_0(
    where: Site, gateway: Gateway, capsys: pytest.CaptureFixture[str]
) -> None:
    out = said(capsys, where, "gateway test", "--target", "a", "--yes")

    assert "driver webhook at http" in out
    assert "reads back; not proven: rehearse it" in out
    assert all(word in out for word in ("s look routable", "s isolate gateway answered 200", "s read back isolated"))
    assert "a went out and came back, both verified, within" in out
    assert gateway.changes == [(URLS["a"], True), (URLS["a"], False)]
    assert not where.store.exists()


def test_json_carries_the_steps_with_their_seconds(
    where: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said(capsys, where, "gateway test", "--target", "a", "--yes", "--json", tmp_path / "out.json")
    told = json.loads((tmp_path / "out.json").read_text())
    (one,) = told["rehearsals"]

    assert (told["schema"], told["proven"], one["target"], one["proven"]) == (1, True, "a", True)
    assert [step["what"] for step in one["steps"]] == ["look", "isolate", "read back", "release", "read back"]
    assert all(step["seconds"] >= 0 for step in one["steps"])
    assert (one["out"]["result"], one["back"]["result"], one["by_hand"]) == ("verified", "verified", None)


def test_json_on_standard_output_is_alone_there(where: Site, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["gateway", "test", "--config", str(where.file), "--target", "b", "--yes", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["proven"] is True


def test_a_gateway_that_cannot_be_read_back_ends_with_2(
    where: Site, gateway: Gateway, capsys: pytest.CaptureFixture[str]
) -> None:
    del where.content["gateway"]["state_url"]
    out = said(capsys, where.write(), "gateway test", "--target", "a", "--yes", code=2)

    assert "out: accepted" in out
    assert "back: accepted" in out
    assert gateway.changes == [(URLS["a"], True), (URLS["a"], False)]


def test_a_refusal_ends_with_1(where: Site, gateway: Gateway, capsys: pytest.CaptureFixture[str]) -> None:
    gateway.always = Fault.REFUSED
    out = said(capsys, where, "gateway test", "--target", "a", "--yes", code=1)

    assert "out: refused, gateway answered 403" in out
    assert "MAY STILL BE OUT" not in out


def test_what_stays_out_is_said_loudly(where: Site, gateway: Gateway, capsys: pytest.CaptureFixture[str]) -> None:
    gateway.faults = [None, Fault.REFUSED]
    out = said(capsys, where, "gateway test", "--target", "a", "--yes", code=1)

    assert "out: verified" in out
    assert "back: refused, gateway answered 403" in out
    assert f"a MAY STILL BE OUT OF TRAFFIC. To bring it back: take {URLS['a']} back into traffic at the gateway" in out


def test_an_isolated_target_is_left_alone(where: Site, gateway: Gateway, capsys: pytest.CaptureFixture[str]) -> None:
    gateway.isolated[URLS["a"]] = True
    out = said(capsys, where, "gateway test", "--target", "a", "--yes", code=2)

    assert "nothing was done: a is isolated at the gateway already" in out
    assert gateway.calls == []


@pytest.mark.parametrize("routing", [Routing.OUT, Routing.CONTRADICTED, Routing.LEAVING])
def test_a_target_that_is_out_by_record_is_left_alone(
    routing: Routing, where: Site, gateway: Gateway, capsys: pytest.CaptureFixture[str]
) -> None:
    """A gateway that cannot be read back would not tell."""
    with Store.open(where.store, clock=SystemClock()) as store:
        store.save_target(replace(TargetState("a", "chat"), routing=routing, owner="d-1"))
    out = said(capsys, where, "gateway test", "--target", "a", "--yes", code=3)

    assert f"by the record a is {routing.value}, and a rehearsal would bring it back" in out
    assert gateway.calls == []
    said(capsys, where, "gateway test", "--target", "b", "--yes")


def test_a_store_that_somebody_writes_to_and_no_daemon_that_answers_is_refused(
    where: Site, gateway: Gateway, capsys: pytest.CaptureFixture[str]
) -> None:
    with only_writer(where.store):
        out = said(capsys, where, "gateway test", "--target", "a", "--yes", code=3)

    assert "no daemon answers" in out
    assert gateway.calls == []


def test_beside_a_daemon_only_a_pool_that_is_observed_is_rehearsed(
    tmp_path: Path, server: GatewayServer, gateway: Gateway, capsys: pytest.CaptureFixture[str]
) -> None:
    hook = {"driver": "webhook", "url": f"{server.url}/act", "state_url": f"{server.url}/state"}
    with served(TinyNode()) as baseline, served(TinyNode()) as one, served(TinyNode()) as two:
        where = site(tmp_path, baseline, {"a": one, "b": two}, gateway=hook)
        with started(where) as daemon:
            daemon.ready()
            out = said(capsys, where, "gateway test", "--target", "a", "--yes")
            assert "both verified" in out
            calls = len(gateway.calls)
            where.content["pools"]["chat"]["mode"] = "dry_run"
            where.write()
            daemon.send(signal.SIGHUP)
            daemon.until("the configuration was taken over")
            out = said(capsys, where, "gateway test", "--target", "a", "--yes", code=3)

            assert f"process {daemon.process.pid} writes to this store already" in out
            assert "stop the daemon, or set pool chat to mode observe" in out
            assert len(gateway.calls) == calls


@pytest.mark.parametrize(
    ("changes", "arguments", "words"),
    [
        ({}, ["--target", "a"], "nobody can be asked here: --yes allows that a (http://127.0.0.1:1) goes out"),
        ({}, ["--yes"], "--target is missing; known: a, b"),
        ({}, ["--target", "c", "--yes"], "--target c: not in the configuration; known: a, b"),
        ({"driver": "dry_run"}, ["--target", "a", "--yes"], "driver dry_run calls no gateway"),
        ({"driver": "verdict"}, ["--target", "a", "--yes"], "driver verdict calls no gateway"),
    ],
)
def test_what_cannot_be_rehearsed_is_refused(
    changes: dict[str, Any],
    arguments: list[str],
    words: str,
    where: Site,
    gateway: Gateway,
    capsys: pytest.CaptureFixture[str],
) -> None:
    where.content["gateway"] = changes or where.content["gateway"]
    assert words in said(capsys, where.write(), "gateway test", *arguments, code=3)
    assert gateway.calls == []


@pytest.mark.parametrize(("answer", "code", "calls"), [("y", 0, 2), ("n", 3, 0)])
def test_on_a_terminal_it_asks(answer: str, code: int, calls: int, where: Site, gateway: Gateway) -> None:
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        done = subprocess.run(  # noqa: S603, ours
            command(where, "gateway", "test", "--target", "a"),
            stdin=theirs,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
    finally:
        os.close(ours)
        os.close(theirs)

    assert (done.returncode, len(gateway.calls)) == (code, calls), done.stderr
    assert "Take a (http://127.0.0.1:1) out of traffic at the gateway for a moment?" in done.stderr


def command(where: Site, *arguments: str) -> list[str]:
    """A command as a process of its own."""
    return [sys.executable, "-m", "quantwatch", *arguments, "--config", str(where.file)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_who_breaks_it_off_finds_the_node_back(number: signal.Signals, where: Site, gateway: Gateway) -> None:
    """The gateway says yes and would only do it an hour later, so the read-back goes on until the signal."""
    gateway.faults, gateway.delay = [Fault.QUEUED], 3600.0
    process = subprocess.Popen(  # noqa: S603, ours
        command(where, "gateway", "test", "--target", "a", "--yes"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        late = time.monotonic() + PATIENCE
        while gateway.looks < 3 and time.monotonic() < late:
            time.sleep(0.02)
        process.send_signal(number)
        out, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()

    assert process.returncode == 2, out
    assert "interrupted; what is out comes back first" in out
    assert "back: verified" in out
    assert [call.body["action"] for call in gateway.calls] == ["isolate", "release"]


def test_a_drill_takes_each_target_in_turn_and_ends_at_the_first_that_fails(
    where: Site, gateway: Gateway, capsys: pytest.CaptureFixture[str]
) -> None:
    out = said(capsys, where, "drill", "--pool", "chat", "--yes")
    assert "a went out and came back" in out
    assert "b went out and came back" in out
    assert [node for node, _ in gateway.changes] == [URLS["a"]] * 2 + [URLS["b"]] * 2

    gateway.always = Fault.REFUSED
    out = said(capsys, where, "drill", "--pool", "chat", "--yes", code=2)
    assert "a: out: refused" in out
    assert "b: out" not in out
    said(capsys, where, "drill", "--pool", "code", "--yes", code=3)


def test_show_tells_how_each_target_stands(where: Site, gateway: Gateway, capsys: pytest.CaptureFixture[str]) -> None:
    gateway.isolated[URLS["b"]] = True
    out = said(capsys, where, "gateway show")

    assert f"│ a │ chat │ {URLS['a']} │ routable │" in out
    assert f"│ b │ chat │ {URLS['b']} │ isolated │" in out
    assert "driver webhook: reads back; not proven" in out
    assert gateway.calls == []


def test_show_says_when_nothing_can_be_told(
    where: Site, server: GatewayServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.stop()
    said(capsys, where, "gateway show", "--json", tmp_path / "out.json", code=2)
    told = json.loads((tmp_path / "out.json").read_text())

    assert [one["stands"] for one in told["targets"]] == ["unknown", "unknown"]
    assert told["abilities"] == {"reads_back": True, "proven": False, "acts": True}


@pytest.mark.parametrize("driver", ["dry_run", "verdict"])
def test_show_knows_nothing_of_a_gateway_that_is_not_called(
    driver: str, where: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    where.content["gateway"] = {"driver": driver}
    assert "unknown" in said(capsys, where.write(), "gateway show", code=2)


@pytest.mark.parametrize("kind", DRIVERS)
def test_a_real_router_is_shown_and_rehearsed(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if program(kind) is None:
        pytest.skip(f"{kind} is not installed")
    with bench(kind, tmp_path, count=2) as one:
        where = site(
            tmp_path,
            "http://127.0.0.1:9",
            {"a": one.urls[0], "b": f"{one.urls[1]}/"},
            gateway={"driver": kind, "url": one.router.url},
        )
        out = said(capsys, where, "gateway show", code=2)
        assert f"also listed there: {one.urls[1]}" in out
        assert f"driver {kind}: reads back; proven against the real program" in out

        out = said(capsys, where, "gateway test", "--target", "b", "--yes", code=1)
        assert f"Give the target gateway_name: {one.urls[1]}" in out
        out = said(capsys, where, "gateway test", "--target", "a", "--yes")
        assert "a went out and came back, both verified" in out
        assert one.router.healthy() == set(one.urls)

        where.content["targets"][1]["gateway_name"] = one.urls[1]
        where.write()
        out = said(capsys, where, "drill", "--pool", "chat", "--yes")
        assert "b went out and came back, both verified" in out
        said(capsys, where, "gateway show")


def test_check_config_tells_what_the_driver_can_do(where: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-config", str(where.file)]) == 0
    assert "gateway: driver webhook: reads back; not proven: rehearse it" in capsys.readouterr().out
    assert main(["check-config", str(where.file), "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)["gateway"]
    assert (told["driver"], told["reads_back"], told["proven"]) == ("webhook", True, False)
    where.content["gateway"] = {"driver": "vllm_router", "url": "http://127.0.0.1:3"}
    assert main(["check-config", str(where.write().file)]) == 0
    assert "driver vllm_router: reads back; proven against the real program" in capsys.readouterr().out


def test_who_gets_no_traffic_by_the_gateways_own_list_is_named() -> None:
    parts = [Part(name, "chat", f"http://{name}:8000") for name in ("a", "b")]
    stands = tuple((one, Seen.ROUTABLE) for one in parts)
    can = Abilities(reads_back=True, proven=True, calls=True)
    out = Console(width=200, file=io.StringIO(), highlight=False)

    show_standings(Standings(can, stands, missing=("b",)), "haproxy", out)
    show_standings(Standings(can, stands), "haproxy", out)

    assert isinstance(out.file, io.StringIO)
    assert out.file.getvalue().count("gets no traffic by the gateway's own list: b") == 1
    assert standings_json(Standings(can, stands, missing=("b",)), "haproxy")["missing"] == ["b"]
