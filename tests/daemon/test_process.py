"""`quantwatch run` as a process of its own: start, signals, end, and what it refuses to start with."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from quantwatch.record.archive import Archive
from quantwatch.record.care import check
from support.builders import FakeClock
from support.daemons import PATIENCE, Running, Site, site, started
from support.gateway import Fault, Gateway, served_gateway
from support.runs import TEXTS, node
from support.served import served
from support.tiny_node import TinyNode

NODE_KEY, ADMIN_TOKEN, SIGNING = "node-k3y-value", "admin-t0ken-value", "signing-s3cret-value"
SECRETS = {"NODE_KEY": NODE_KEY, "ADMIN_TOKEN": ADMIN_TOKEN, "SIGNING_SECRET": SIGNING}


@dataclass(slots=True)
class Place:
    """Two servers behind a site, and what was asked of the daemon while it started."""

    site: Site
    node: TinyNode
    baseline: TinyNode
    daemon: Running
    starting: dict[str, httpx.Response] = field(default_factory=dict)


@contextmanager
def place(folder: Path, one: TinyNode, **sections: Any) -> Iterator[tuple[Site, TinyNode]]:
    """A site with one served node, and its baseline."""
    baseline = TinyNode()
    with served(baseline) as reference, served(one) as url:
        yield site(folder, reference, {"a": url}, **sections), baseline


def run_now(where: Site, target: str = "a", **headers: str) -> None:
    """Let the daemon run all task sets of a target."""
    answer = httpx.post(f"{where.admin}/api/v1/runs", json={"target": target}, headers=headers)
    assert answer.status_code == 202, answer.text


def refused(where: Site) -> tuple[int, str]:
    """Start a daemon that cannot start: its exit code and its words."""
    with started(where, name="refused") as daemon:
        return daemon.end(), " ".join((daemon.errors() + daemon.out.read_text()).split())


@pytest.fixture(scope="module")
def watching(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A daemon full of secrets that has run once; what is asked of it changes nothing."""
    folder = tmp_path_factory.mktemp("watching")
    reference, one = TinyNode(api_key=NODE_KEY), node(api_key=NODE_KEY)
    with served(reference) as baseline_url, served(one) as url, served_gateway(Gateway()) as gateway:
        where = site(folder, baseline_url, {"a": url})
        where.content["baseline"]["api_key"] = where.content["targets"][0]["api_key"] = "env:NODE_KEY"
        where.content["targets"][0]["headers"] = {"X-Auth-Token": "env:NODE_KEY"}
        where.content["server"] |= {"admin_token": "env:ADMIN_TOKEN"}
        where.content["gateway"] = {
            "driver": "webhook",
            "url": f"{gateway.url}/act",
            "api_key": "env:NODE_KEY",
            "signing_secret": "env:SIGNING_SECRET",
        }
        with started(where.write(), **SECRETS) as daemon:
            found = Place(where, one, reference, daemon)
            daemon.wait(lambda: _answers(where), "answered at all")
            for path in ("/-/healthy", "/-/ready", "/metrics", "/verdict/a", "/"):
                found.starting[path] = httpx.get(where.public + path)
            daemon.ready()
            run_now(where, Authorization=f"Bearer {ADMIN_TOKEN}")
            daemon.until("letters on a: ok")
            yield found


def _answers(where: Site) -> bool:
    address = where.content["server"]["listen"].split(":")
    with socket.socket() as one:
        return one.connect_ex((address[0], int(address[1]))) == 0


def test_while_torch_is_imported_the_listener_answers_healthy_and_not_ready(watching: Place) -> None:
    starting = watching.starting

    assert starting["/-/healthy"].status_code == 200
    assert starting["/-/ready"].status_code == 503
    assert starting["/-/ready"].json()["reasons"][0] == "the recorded state has not been read yet"
    assert starting["/metrics"].status_code == 200
    assert "quantwatch_" in starting["/metrics"].text
    assert starting["/"].status_code == 200


def test_while_it_starts_no_gateway_hears_a_word_against_a_node(watching: Place) -> None:
    assert watching.starting["/verdict/a"].status_code == 200


def test_no_secret_is_in_the_log_or_on_any_page(watching: Place) -> None:
    bearer = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    pages = [httpx.get(watching.site.public + path).text for path in ("/", "/metrics", "/verdict/a", "/-/ready")]
    pages += [
        httpx.get(watching.site.admin + path, headers=bearer).text for path in ("/", "/api/v1/status", "/api/v1/pauses")
    ]
    everything = "\n".join([watching.daemon.out.read_text(), watching.daemon.errors(), *pages])

    assert watching.node.completions(), "the keys were used"
    assert not [one for one in (NODE_KEY, ADMIN_TOKEN, SIGNING) if one in everything]


def test_no_prompt_is_in_the_log_or_on_any_page(watching: Place) -> None:
    bearer = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    pages = [
        httpx.get(f"{watching.site.public}/metrics").text,
        httpx.get(f"{watching.site.admin}/api/v1/status", headers=bearer).text,
    ]
    everything = "\n".join([watching.daemon.out.read_text(), watching.daemon.errors(), *pages])

    assert "letters" in everything
    assert not [text for text in TEXTS if text[:12] in everything]


def test_each_run_is_one_sentence_with_the_two_numbers_that_decided(watching: Place) -> None:
    (line,) = [one for one in watching.daemon.log() if one["event"].startswith("letters on a")]

    assert line["event"] == "letters on a: ok (mean KL 0, limit 0.01)"
    assert line["run_id"].startswith("r-")


def test_usr1_shows_every_stack_and_the_daemon_goes_on(watching: Place) -> None:
    watching.daemon.send(signal.SIGUSR1)

    watching.daemon.wait(lambda: "in work" in watching.daemon.errors(), "showed the worker's task")
    assert "Thread 0x" in watching.daemon.errors()
    assert "chores.py" in watching.daemon.errors()
    assert httpx.get(f"{watching.site.public}/-/ready").status_code == 200


def test_a_second_daemon_on_one_store_is_refused_and_told_by_whom(watching: Place, tmp_path: Path) -> None:
    other = site(tmp_path, watching.site.content["baseline"]["url"], {"a": watching.site.content["targets"][0]["url"]})
    other.content["store"]["path"] = str(watching.site.store)

    code, said = refused(other.write())

    assert code == 3
    assert f"process {watching.daemon.process.pid} writes to this store already" in said


@pytest.mark.parametrize("key", ["listen", "admin_listen"])
def test_a_port_in_use_is_told_by_its_key(tmp_path: Path, key: str) -> None:
    where = site(tmp_path, "http://127.0.0.1:9", {"a": "http://127.0.0.1:10"})
    host, port = where.content["server"][key].split(":")
    with socket.create_server((host, int(port))):
        code, said = refused(where)

    assert code == 3
    assert f"server.{key}: cannot listen on {host}:{port}: Address already in use" in said
    assert not where.store.exists()


def test_a_missing_secret_is_told_by_its_place(tmp_path: Path) -> None:
    where = site(tmp_path, "http://127.0.0.1:9", {"a": "http://127.0.0.1:10"})
    where.content["targets"][0]["api_key"] = "env:NO_SUCH_KEY"

    code, said = refused(where.write())

    assert code == 3
    assert "the environment variable NO_SUCH_KEY is not set or empty" in said
    assert "Traceback" not in said


def test_a_file_that_is_wrong_is_told_with_its_line(tmp_path: Path) -> None:
    where = site(tmp_path, "http://127.0.0.1:9", {"a": "http://127.0.0.1:10"})
    where.content["pools"] = {"chta": {}}

    code, said = refused(where.write())

    assert code == 3
    assert "targets[0].pool: no pool chat; did you mean chta?" in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_end_during_a_run_waits_for_the_run_and_records_it(tmp_path: Path, number: signal.Signals) -> None:
    with place(tmp_path, node(delay=0.05)) as (where, _), started(where) as daemon:
        daemon.ready()
        run_now(where)
        daemon.wait(lambda: _running(where), "ran")
        daemon.send(number)

        assert daemon.end() == 0
    assert daemon.errors() == ""
    with Archive.open(where.store) as archive:
        (run,) = archive.history(limit=None)
    assert run.quality == "ok"
    assert daemon.events()[-1] == "stopped"
    assert check(where.store, now=FakeClock().now()) == []


def slow() -> tuple[TinyNode, list[str]]:
    """A node that takes seconds to answer, and the paths that it was asked for."""
    seen: list[str] = []
    return node(delay=3.0, replace=seen.append), seen


def _running(where: Site) -> bool:
    board = httpx.get(f"{where.admin}/api/v1/status").json()
    return board["targets"][0]["running"] is not None


def test_a_run_that_outlasts_the_drain_is_cut_off_and_leaves_nothing(tmp_path: Path) -> None:
    one, seen = slow()
    with place(tmp_path, one, server={"drain": "100ms"}) as (where, _), started(where) as daemon:
        daemon.ready()
        run_now(where)
        daemon.wait(lambda: "/v1/completions" in seen, "asked the node")
        daemon.send(signal.SIGTERM)

        assert daemon.end() == 0
    with Archive.open(where.store) as archive:
        assert archive.history(limit=None) == []
        assert archive.decisions(limit=None) == []
    assert check(where.store, now=FakeClock().now()) == []
    assert daemon.errors() == ""


def test_a_second_signal_ends_at_once_although_a_node_hangs(tmp_path: Path) -> None:
    one, seen = slow()
    with place(tmp_path, one, server={"drain": "1h"}) as (where, _), started(where) as daemon:
        daemon.ready()
        run_now(where)
        daemon.wait(lambda: "/v1/completions" in seen, "asked the node")
        daemon.send(signal.SIGTERM)
        daemon.until("stopping")
        daemon.send(signal.SIGTERM)

        assert daemon.end() == 130
    assert daemon.events()[-1] == "ending at once: a second signal"
    assert check(where.store, now=FakeClock().now()) == []


def test_an_order_under_way_at_the_end_stays_open_and_the_next_life_finishes_it_once(tmp_path: Path) -> None:
    gateway = Gateway(always=Fault.HANGS_UNDONE)
    with ExitStack() as stack:
        server = stack.enter_context(served_gateway(gateway))
        urls = [stack.enter_context(served(one)) for one in (TinyNode(), node(), node(1.5))]
        where = site(tmp_path, urls[0], {"a": urls[1], "b": urls[2]}, **_enforcing(server.url))
        with started(where) as daemon:
            daemon.ready()
            run_now(where)  # a clean run proves the baseline's answers
            daemon.until("letters on a: ok")
            run_now(where, "b")
            daemon.wait(lambda: gateway.calls, "called the gateway")
            daemon.send(signal.SIGTERM)
            assert daemon.end() == 0
        assert check(where.store, now=FakeClock().now()) == []
        gateway.always = None
        with started(where, name="next") as daemon:
            daemon.until("taking up an order of an earlier life")
            daemon.until("isolate: verified")
            daemon.send(signal.SIGTERM)
            assert daemon.end() == 0

    assert gateway.changes == [(urls[2], True)]
    assert len(gateway.ids) == 1
    assert check(where.store, now=FakeClock().now()) == []


def _enforcing(gateway: str) -> dict[str, Any]:
    return {
        "pools": {"chat": {"mode": "enforce", "max_isolated": "50%"}},
        "gateway": {"driver": "webhook", "url": f"{gateway}/act", "state_url": f"{gateway}/state"},
        "task_sets": {"letters": {"prompts": "letters.yaml", "k": 10, "draw": 40, "continuation_tokens": 12}},
    }


def test_systemd_hears_of_every_turn(tmp_path: Path) -> None:
    name = str(tmp_path / "notify")
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
        place(tmp_path, node()) as (where, _),
    ):
        manager.bind(name)
        manager.settimeout(PATIENCE)
        environment = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "20000000"}
        with started(where, **environment) as daemon:
            heard = [manager.recv(1000).decode()]
            while not heard[-1].startswith("WATCHDOG"):
                heard.append(manager.recv(1000).decode())
            daemon.send(signal.SIGHUP)
            while heard[-1] != "READY=1":
                heard.append(manager.recv(1000).decode())
            daemon.send(signal.SIGTERM)
            while not heard[-1].startswith("STOPPING"):
                heard.append(manager.recv(1000).decode())
            assert daemon.end() == 0

    told = [one for one in heard if not one.startswith("WATCHDOG")]
    assert told[0] == "READY=1\nSTATUS=watching 1 targets"
    assert told[1].startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert told[1].rpartition("=")[2].isdecimal()
    assert told[2:] == ["READY=1", "STOPPING=1\nSTATUS=finishing what is under way"]


def test_cuda_is_never_touched_and_torch_has_one_thread_of_each_kind(tmp_path: Path) -> None:
    script = (
        "import asyncio, json, sys\n"
        "from pathlib import Path\n"
        "import httpx\n"
        "from support.daemons import Site, inside, until\n"
        "import yaml\n"
        "async def main():\n"
        "    where = Site(Path(sys.argv[1]), yaml.safe_load(Path(sys.argv[1], 'quantwatch.yaml').read_text()))\n"
        "    async with inside(where) as daemon:\n"
        "        await daemon.desk.run_now('a', None)\n"
        "        await until(lambda: daemon.board().targets[0].sets[0].state.run)\n"
        "    import torch\n"
        "    threads = [torch.get_num_threads(), torch.get_num_interop_threads()]\n"
        "    print(json.dumps([torch.cuda.is_initialized(), *threads]))\n"
        "asyncio.run(main())\n"
    )
    with place(tmp_path, node()) as (where, _):
        told = subprocess.run(  # noqa: S603, our own script
            [sys.executable, "-c", script, str(where.folder)],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
            env={"PYTHONPATH": str(Path(__file__).resolve().parents[1])},
        )

    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout.splitlines()[-1]) == [False, 1, 1]
