"""Real routers before small servers that speak as much of the OpenAI API as a router asks for."""

import contextlib
import itertools
import json
import os
import shutil
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from quantwatch.act.contract import MemoryNotes, Notes
from quantwatch.act.router import Router
from quantwatch.act.sglang_router import SglangRouter
from quantwatch.act.vllm_router import VllmRouter
from quantwatch.clock import SystemClock
from quantwatch.net import Endpoint, Limits, Link
from support.daemons import PATIENCE, free_port

PROGRAMS = {"vllm_router": "vllm-router", "sglang_router": "sglang-router"}
DRIVERS: dict[str, type[Router]] = {"vllm_router": VllmRouter, "sglang_router": SglangRouter}
CHUNKS = 6
"""Events of a streamed answer, before the last one."""


def program(kind: str) -> str | None:
    """The router's program, beside this Python or on the path; None where it is not installed."""
    return shutil.which(PROGRAMS[kind], path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))


def _seconds(user: str) -> float:
    """How long an answer takes; other users are answered at once."""
    return float(user) if user.replace(".", "", 1).isdigit() else 0.0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Worker"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, the base's signature
        """Say nothing: a router also knocks in dialects that are not spoken here."""

    def do_GET(self) -> None:
        if self.path == "/health":
            self._json({}, 200 if self.server.healthy else 503)
        elif self.path.startswith("/v1/models"):
            self._json({"object": "list", "data": [{"id": "tiny", "object": "model", "created": 1, "owned_by": "x"}]})
        else:
            self._json({"error": "not found"}, 404)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        self.server.asked.append(dict(self.headers))
        seconds = _seconds(str(asked.get("user")))
        self.server.begun.set()
        if asked.get("stream"):
            self._stream(seconds)
            return
        time.sleep(seconds)
        self._json({"id": "x", "object": "text_completion", "choices": [{"index": 0, "text": self.server.url}]})

    def _stream(self, seconds: float) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for number in range(CHUNKS):
            self.wfile.write(b'data: {"choices": [{"index": 0, "text": "%d"}]}\n\n' % number)
            self.wfile.flush()
            time.sleep(seconds / CHUNKS)
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _json(self, content: Any, status: int = 200) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Worker(ThreadingHTTPServer):
    """A node as a router sees one. `user` of a request says how many seconds the answer takes.

    asked: headers of every request for an answer. begun: set by each. healthy: what /health says.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.asked: list[dict[str, str]] = []
        self.begun = threading.Event()
        self.healthy = True

    def server_bind(self) -> None:
        """Bind, without looking up a name for the address."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that leaves is no news."""


@contextmanager
def worker() -> Iterator[Worker]:
    """A node on a free port."""
    one = Worker()
    thread = threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield one
    finally:
        one.shutdown()
        one.server_close()


@dataclass(slots=True)
class Running:
    """A router's process, which can be killed and started again under the same address.

    ranks: data-parallel ranks of each worker. halves: the first worker only prefills, the second only decodes.
    """

    kind: str
    workers: Sequence[str]
    folder: Path
    options: Sequence[str] = ()
    key: str | None = None
    ranks: int = 1
    halves: bool = False
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its root."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> "Running":
        """Start it and wait until it lists every worker."""
        command = [str(program(self.kind)), *(["launch"] if self.kind == "sglang_router" else [])]
        command += ["--host", "127.0.0.1", "--port", str(self.port), "--prometheus-port", str(free_port())]
        command += ["--policy", "round_robin", "--worker-startup-check-interval", "1", *self.options]
        if self.halves:
            command += ["--vllm-pd-disaggregation", "--prefill", self.workers[0], "9000", "--decode", self.workers[1]]
        else:
            command += ["--worker-urls", *self.workers]
        with (self.folder / f"{self.kind}.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)  # noqa: S603
        self.until(lambda: self.healthy() >= self._expected(), "listed its workers")
        return self

    def _expected(self) -> set[str]:
        if self.ranks == 1:
            return set(self.workers)
        return {f"{url}@{rank}" for url in self.workers for rank in range(self.ranks)}

    def stop(self) -> None:
        """Kill it: what it knew is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE)

    def entries(self) -> list[dict[str, Any]]:
        """Its list of workers; empty while it does not answer."""
        with contextlib.suppress(httpx.HTTPError):
            answer = httpx.get(f"{self.url}/workers", headers=self._auth(), timeout=10, trust_env=False)
            found: list[dict[str, Any]] = answer.raise_for_status().json()["workers"]
            return found
        return []

    def listed(self) -> set[str]:
        """URLs of its workers."""
        return {one["url"] for one in self.entries()}

    def healthy(self) -> set[str]:
        """URLs of those that it takes for healthy."""
        return {one["url"] for one in self.entries() if one["is_healthy"]}

    def until(self, met: Any, what: str) -> None:
        """Wait for something that must come."""
        late = time.monotonic() + PATIENCE
        while not met():
            assert self._process is not None
            if time.monotonic() > late or self._process.poll() is not None:
                said = (self.folder / f"{self.kind}.log").read_text(errors="replace")
                raise AssertionError(f"{self.kind} never {what}: {self.entries()}\n{said[-4000:]}")
            time.sleep(0.05)

    def complete(self, **fields: Any) -> httpx.Response:
        """Ask for an answer as a client does."""
        asked = {"model": "tiny", "prompt": "x", **fields}
        url = f"{self.url}/v1/completions"
        return httpx.post(url, json=asked, headers=self._auth(), timeout=PATIENCE, trust_env=False)

    def _auth(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}


@dataclass(slots=True)
class Bench:
    """A router before some workers. notes: what its drivers remember, also the next one."""

    router: Running
    workers: list[Worker]
    notes: Notes = field(default_factory=MemoryNotes)
    _links: list[Link] = field(default_factory=list)

    @property
    def urls(self) -> list[str]:
        """The workers' addresses."""
        return [one.url for one in self.workers]

    def driver(self, *, key: str | None = None, url: str | None = None, timeout: float = 20.0) -> Router:
        """A driver; a new one stands for another life of the process."""
        reach = Limits(connect_seconds=5, total_seconds=timeout, response_bytes=2**20)
        link = Link(Endpoint("router", url or self.router.url, key or self.router.key), reach)
        self._links.append(link)
        return DRIVERS[self.router.kind](link, clock=SystemClock(), notes=self.notes)

    async def close(self) -> None:
        """Close the drivers' connections."""
        while self._links:
            async with self._links.pop():
                pass


@contextmanager
def bench(
    kind: str,
    folder: Path,
    *,
    count: int = 3,
    options: Sequence[str] = (),
    key: str | None = None,
    ranks: int = 1,
    halves: bool = False,
) -> Iterator[Bench]:
    """A running router before that many workers; everything ends with it."""
    with ExitStack() as stack:
        workers = [stack.enter_context(worker()) for _ in range(count)]
        router = Running(kind, [one.url for one in workers], folder, options, key, ranks, halves)
        stack.callback(router.stop)
        router.start()
        yield Bench(router, workers)


@dataclass(slots=True)
class Traffic:
    """What a client saw: statuses, and who answered."""

    statuses: list[int | str] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)

    @property
    def failed(self) -> list[int | str]:
        """Whatever was no 200."""
        return [one for one in self.statuses if one != 200]


@contextmanager
def traffic(router: Running, *, threads: int = 3) -> Iterator[Traffic]:
    """Clients that ask without a pause until the end of the block."""
    seen, stop = Traffic(), threading.Event()

    def ask(numbers: Iterator[int]) -> None:
        with httpx.Client(timeout=PATIENCE, trust_env=False) as client:
            while not stop.is_set():
                asked = {"model": "tiny", "prompt": f"prompt {next(numbers)}", "user": "0.01"}
                try:
                    answer = client.post(f"{router.url}/v1/completions", json=asked)
                except httpx.HTTPError as exc:
                    seen.statuses.append(type(exc).__name__)
                    continue
                seen.statuses.append(answer.status_code)
                if answer.status_code == 200:
                    seen.answered.append(answer.json()["choices"][0]["text"])

    running = [threading.Thread(target=ask, args=(itertools.count(),), daemon=True) for _ in range(threads)]
    for one in running:
        one.start()
    try:
        yield seen
    finally:
        stop.set()
        for one in running:
            one.join(PATIENCE)


def ask(method: str, url: str, **request: Any) -> httpx.Response:
    """A call as an administrator makes it."""
    return httpx.request(method, url, timeout=PATIENCE, trust_env=False, **request)
