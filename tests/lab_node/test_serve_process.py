"""`quantwatch serve` as a process: sockets, signals, and requests under way."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from quantwatch.errors import InputError
from quantwatch.lab.signals import ends_quietly
from quantwatch.lab.sockets import inherited
from support.serving import Serving, serving

LONG = {"prompt": [5, 6, 7], "max_tokens": 400, "ignore_eos": True, "temperature": 0}


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        yield listening


def url_of(listening: socket.socket) -> str:
    return f"http://127.0.0.1:{listening.getsockname()[1]}"


def served_by(url: str) -> str:
    """Whose connection a new one is."""
    return str(httpx.get(f"{url}/v1/models", timeout=60).json()["data"][0]["id"])


def tries(what: str) -> Iterator[None]:
    """Try again and again, for a minute at most; then fail with what was waited for."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        yield
    pytest.fail(f"after a minute there was still no {what}")


def until_running(url: str) -> None:
    for _ in tries("running request in the metrics"):
        lines = httpx.get(f"{url}/metrics", timeout=60).text.splitlines()
        if any(line.startswith("vllm:num_requests_running{") and line.endswith(" 1.0") for line in lines):
            return


class Asking(threading.Thread):
    """A request under way."""

    def __init__(self, url: str, body: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self._url, self._body = url, body
        self.status = 0
        self.start()

    def run(self) -> None:
        with suppress(httpx.TransportError):  # the status stays 0 where the node is cut off
            self.status = httpx.post(f"{self._url}/v1/completions", json=self._body, timeout=120).status_code


def test_a_free_port_is_taken_and_told(tiny: Path) -> None:
    with serving(tiny, "--port", "0", "--scheme", "w8a8", "--fault", "slow@0") as node:
        url = node.ready()

        card = httpx.get(f"{url}/v1/models", timeout=60).json()["data"][0]
        assert (card["id"], card["root"]) == ("tiny", "w8a8, fault slow@0")
        assert node.said[-1]["fault"] == "slow@0"
        assert node.stop() == 0


def test_a_request_under_way_is_answered_before_the_end(tiny: Path) -> None:
    with serving(tiny, "--port", "0") as node:
        url = node.ready()
        request = Asking(url, LONG)
        until_running(url)

        assert node.stop() == 0
        request.join(60)
        assert request.status == 200


def until_closed(client: httpx.Client) -> None:
    """Ask over one connection until the node says that it ends."""
    for _ in tries("reply that ends the connection"):
        answer = client.get("/health")
        assert answer.status_code == 200
        if answer.headers.get("connection") == "close":
            return


def test_an_open_connection_brings_its_last_request_after_the_signal(tiny: Path) -> None:
    """Whoever sent before hearing of the end is answered, and told that the connection ends."""
    with serving(tiny, "--port", "0") as node, httpx.Client(base_url=node.ready(), timeout=60) as client:
        client.get("/health")
        node.process.terminate()
        until_closed(client)

        with pytest.raises(httpx.ConnectError):
            client.get("/health")
        assert node.process.wait(60) == 0


def test_two_nodes_accept_on_one_socket_and_either_may_go(tiny: Path, listening: socket.socket) -> None:
    url, fd = url_of(listening), listening.fileno()
    inherited = ["--fd", str(fd), "--served-model-name"]
    with serving(tiny, *inherited, "old", fds=[fd]) as old, serving(tiny, *inherited, "new", fds=[fd]) as new:
        old.ready()
        new.ready()
        _until(url, {"old", "new"})
        request = Asking(url, LONG)
        assert old.stop() == 0

        assert {served_by(url) for _ in range(20)} == {"new"}
        request.join(60)
        assert request.status == 200
        assert new.stop() == 0


def _until(url: str, names: set[str]) -> None:
    """Ask until each has answered: the kernel wakes whom it likes."""
    missing = set(names)
    for _ in tries(f"reply of each of {names}"):
        if not missing:
            return
        with ExitStack() as stack:
            for _ in range(8):
                stack.enter_context(httpx.Client()).get(f"{url}/health")
            missing.discard(served_by(url))


def test_a_node_that_is_told_to_die_dies(tiny: Path) -> None:
    with serving(tiny, "--port", "0", "--fault", "die@2") as node:
        url = node.ready()
        body = {"prompt": [5], "max_tokens": 1}
        assert httpx.post(f"{url}/v1/completions", json=body, timeout=60).status_code == 200

        with pytest.raises(httpx.TransportError):
            httpx.post(f"{url}/v1/completions", json=body, timeout=60)
        assert node.process.wait(60) == 70


def ended(node: Serving) -> int:
    return node.process.wait(60)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--port", "0", "--max-model-len", "4096"],
        ["--port", "0", "--fault", "fire"],
        ["--fd", "77"],
        ["--port", "0", "--calibration", "missing.yaml", "--smooth", "0.5"],
        ["--host", "203.0.113.1", "--port", "0"],
    ],
)
def test_what_cannot_be_used_ends_with_code_3(tiny: Path, arguments: list[str]) -> None:
    with serving(tiny, *arguments) as node:
        assert ended(node) == 3


@contextmanager
def a_socket(kind: str) -> Iterator[int]:
    """The number of a socket on which no node can accept."""
    unix = kind == "unix"
    family = socket.AF_UNIX if unix else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM) as one:
        one.bind("" if unix else ("127.0.0.1", 0))
        if unix:
            one.listen()
        yield one.fileno()


@pytest.mark.parametrize("kind", ["udp", "unix", "does not listen"])
def test_a_socket_that_cannot_be_served_is_told_before_a_model_is_loaded(tiny: Path, kind: str) -> None:
    with a_socket(kind) as fd, serving(tiny, "--fd", str(fd), fds=[fd]) as node:
        assert ended(node) == 3
        assert node.said == []


@pytest.mark.parametrize("kind", ["udp", "unix", "does not listen"])
def test_a_socket_that_is_refused_stays_open(kind: str) -> None:
    with a_socket(kind) as fd:
        with pytest.raises(InputError, match=rf"--fd {fd}: this is no TCP socket that listens"):
            inherited(fd)
        os.fstat(fd)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_model_is_loaded_ends_in_order_and_quietly(tiny: Path, number: int) -> None:
    with serving(tiny, "--port", "0", stderr=subprocess.PIPE) as node:
        node.until("loading")
        node.process.send_signal(number)

        assert ended(node) == 0
        assert node.errors() == ""


def test_a_second_signal_ends_at_once(tiny: Path) -> None:
    with serving(tiny, "--port", "0", "--fault", "slow@600") as node:
        url = node.ready()
        Asking(url, {"prompt": [5], "max_tokens": 1})
        with httpx.Client(base_url=url, timeout=60) as client:
            client.get("/health")
            node.process.terminate()
            node.until("stopping")
            node.process.terminate()

            assert ended(node) == 130


def test_a_second_signal_while_loading_ends_at_once() -> None:
    program = """
import os, signal
from quantwatch.lab.signals import ends_quietly
with ends_quietly():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 130  # noqa: S603, our own program


def test_the_handlers_from_before_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with ends_quietly():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_port_in_use_is_told_before_a_model_is_loaded(tiny: Path, listening: socket.socket) -> None:
    with serving(tiny, "--port", str(listening.getsockname()[1])) as node:
        assert ended(node) == 3
        assert node.said == []
