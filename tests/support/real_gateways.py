"""Real gateways on free ports before small servers, and clients that never stop asking.

Every gateway names in a header who answered. All processes are ended with their children.
"""

import contextlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from support.daemons import PATIENCE, free_port

HAS_HAPROXY = shutil.which("haproxy") is not None
HAS_NGINX = shutil.which("nginx") is not None
SERVED_BY = "x-served-by"
AGAIN_SECONDS = 3.0


class _Server(ThreadingHTTPServer):
    """A gateway may cut a connection that it keeps; nobody is to hear of it."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing."""


class _Hello(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002, the library's name
        """Say nothing."""


@contextlib.contextmanager
def small_servers(*names: str) -> Iterator[dict[str, str]]:
    """A server for each name; gives their URLs."""
    with contextlib.ExitStack() as stack:
        urls = {}
        for name in names:
            server = _Server(("127.0.0.1", 0), _Hello)
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
            thread.start()
            stack.callback(thread.join, 10)
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            urls[name] = f"http://127.0.0.1:{server.server_address[1]}"
        yield urls


@dataclass(slots=True)
class Traffic:
    """What clients have met so far: who answered, and every failure. Anything but a 200 is one."""

    clients: int
    answers: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    _asked: Counter[int] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stop: threading.Event = field(default_factory=threading.Event)

    def next(self, count: int = 100) -> Counter[str]:
        """Who answers so many requests, all of them begun from now on."""
        before = Counter(self._asked)
        self._wait(lambda: all(self._asked[i] > before[i] for i in range(self.clients)))  # none of before is under way
        with self._lock:
            met = Counter(self.answers)
        self._wait(lambda: self.answers.total() >= met.total() + count)
        with self._lock:
            return self.answers - met

    def only(self, *names: str, within: float = PATIENCE) -> None:
        """Wait until these and no others answer; a gateway that was told takes a moment."""
        late = time.monotonic() + within
        while (now := self.next()).keys() != set(names):
            assert time.monotonic() < late, f"{dict(now)} answer, not {names} alone"

    def stop(self) -> None:
        """Ask no more."""
        self._stop.set()

    def ask(self, number: int, port: int, path: str, *, keep: bool) -> None:
        """One client, until stopped. keep: on one connection for as long as it lasts."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        while not self._stop.is_set():
            status, told = _asked(connection, path, keep=keep)
            with self._lock:
                self._asked[number] += 1
                if status == 200:
                    self.answers[told] += 1
                else:
                    self.failures.append(f"{status} {told}")
            self._stop.wait(0.003)
        connection.close()

    def _wait(self, met: Callable[[], bool]) -> None:
        late = time.monotonic() + PATIENCE
        while not met():
            assert time.monotonic() < late, f"the traffic has stopped: {self.failures[-3:]}"
            time.sleep(0.005)


def _asked(connection: http.client.HTTPConnection, path: str, *, keep: bool) -> tuple[int, str]:
    """The status of one request, and who answered it or what went wrong."""
    try:
        connection.request("GET", path, headers={} if keep else {"Connection": "close"})
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException) as exc:
        connection.close()
        return 0, repr(exc)
    return answer.status, answer.headers.get(SERVED_BY, "nobody")


@contextlib.contextmanager
def traffic(port: int, *, clients: int = 4, keep: int = 0, path: str = "/") -> Iterator[Traffic]:
    """Clients that ask one request after another; the first `keep` of them on connections that stay open."""
    met = Traffic(clients)
    threads = [
        threading.Thread(target=met.ask, args=(i, port, path), kwargs={"keep": i < keep}, daemon=True)
        for i in range(clients)
    ]
    for one in threads:
        one.start()
    try:
        met.next(clients)
        yield met
    finally:
        met.stop()
        for one in threads:
            one.join(PATIENCE)


def wait_until(met: Callable[[], object], what: str) -> None:
    """Wait for something that must come."""
    late = time.monotonic() + PATIENCE
    while not met():
        assert time.monotonic() < late, f"never {what}"
        time.sleep(0.02)


@contextlib.contextmanager
def running(command: Sequence[str], folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A process with whatever it starts, all of which end here."""
    with (folder / "out").open("ab") as out:
        process = subprocess.Popen(  # noqa: S603, a gateway of these tests
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    try:
        yield process
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.terminate()
            process.wait(5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)


def is_open(port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@dataclass(slots=True)
class Haproxy:
    """A running HAProxy with the backend llm, another that nobody reaches, and its runtime sockets.

    process: the master.
    """

    folder: Path
    port: int
    runtime_port: int
    process: "subprocess.Popen[bytes]"

    @property
    def socket(self) -> str:
        """The runtime socket with level admin."""
        return str(self.folder / "admin.sock")

    @property
    def operator_socket(self) -> str:
        """The same with level operator."""
        return str(self.folder / "operator.sock")

    def ask(self, command: str) -> str:
        """What the runtime socket says."""
        with socket.socket(socket.AF_UNIX) as one:
            one.settimeout(PATIENCE)
            one.connect(self.socket)
            one.sendall(f"{command}\n".encode())
            return b"".join(iter(lambda: one.recv(65_536), b"")).decode()

    def worker(self) -> str | None:
        """The worker's process id; None while nobody answers."""
        with contextlib.suppress(OSError):
            return next((line for line in self.ask("show info").splitlines() if line.startswith("Pid:")), None)
        return None

    def keep_states(self) -> None:
        """What a reload script does first, for `server-state-file`."""
        (self.folder / "states").write_text(self.ask("show servers state"))

    def reload(self) -> None:
        """Let a new worker take over, as `systemctl reload haproxy` does.

        A master that has just started loses the signal, although its worker serves already, so it is told again.
        """
        before, told = self.worker(), 0.0

        def taken_over() -> bool:
            nonlocal told
            if time.monotonic() - told > AGAIN_SECONDS:
                self.process.send_signal(signal.SIGUSR2)
                told = time.monotonic()
            return self.worker() not in (before, None)

        wait_until(taken_over, "a new worker answered")


HAPROXY = """\
global
  stats socket {folder}/admin.sock mode 600 level admin expose-fd listeners
  stats socket {folder}/operator.sock mode 600 level operator
  stats socket ipv4@127.0.0.1:{runtime_port} level admin
  server-state-file {folder}/states
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
  {states}
frontend in
  bind 127.0.0.1:{port}
  default_backend llm
backend llm
  balance roundrobin
  {named}
{servers}
backend unused
{servers}
"""


@contextlib.contextmanager
def haproxy(
    urls: Mapping[str, str],
    *,
    keeps_states: bool = False,
    options: Mapping[str, str] | None = None,
    names_servers: bool = True,
) -> Iterator[Haproxy]:
    """A HAProxy before these servers. keeps_states: a new worker reads the file of states.

    options: what stands behind a server's address. names_servers: in a header of the answer.
    """
    with tempfile.TemporaryDirectory(prefix="qw") as made:  # a socket's path must be short
        folder, port, runtime_port = Path(made), free_port(), free_port()
        behind = options or {}
        lines = [f"  server {name} {urlsplit(url).netloc} {behind.get(name, '')}" for name, url in urls.items()]
        servers = "\n".join(lines)
        states = "load-server-state-from-file global" if keeps_states else ""
        named = f"http-response set-header {SERVED_BY} %s" if names_servers else ""
        text = HAPROXY.format(
            folder=folder, port=port, runtime_port=runtime_port, states=states, servers=servers, named=named
        )
        (folder / "haproxy.cfg").write_text(text)
        with running(["haproxy", "-W", "-f", str(folder / "haproxy.cfg")], folder) as process:
            made_here = Haproxy(folder, port, runtime_port, process)
            wait_until(lambda: is_open(port) and made_here.worker(), "HAProxy was up")
            yield made_here


@dataclass(slots=True)
class Nginx:
    """A running nginx that includes upstream.conf, which defines the upstream llm."""

    folder: Path
    port: int
    process: "subprocess.Popen[bytes]"

    @property
    def file(self) -> Path:
        """What it includes."""
        return self.folder / "upstream.conf"

    def command(self, *arguments: str) -> list[str]:
        """A command line about it, for the configuration."""
        return [*_nginx(self.folder), *arguments]


NGINX = """\
daemon off;
pid {folder}/nginx.pid;
worker_processes 1;
events {{}}
http {{
  access_log off;
  {temporary}
  include {folder}/upstream.conf;
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://llm; add_header {header} $upstream_addr always; }}
  }}
}}
"""


def _nginx(folder: Path) -> list[str]:
    return ["nginx", "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf")]


@contextlib.contextmanager
def nginx(folder: Path, upstream: str) -> Iterator[Nginx]:
    """An nginx with this upstream.conf."""
    port = free_port()
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    (folder / "upstream.conf").write_text(upstream)
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port, temporary=temporary, header=SERVED_BY))
    with running(_nginx(folder), folder) as process:
        wait_until(lambda: is_open(port), "nginx answered")
        yield Nginx(folder, port, process)
