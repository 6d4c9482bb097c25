"""A real Envoy with one EDS cluster that it reads from a file, before servers that can fail their health checks."""

import contextlib
import json
import os
import shutil
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from support.daemons import free_port
from support.real_gateways import SERVED_BY, running, wait_until

BINARY = os.environ.get("QUANTWATCH_ENVOY") or shutil.which("envoy")

FILTERS = "type.googleapis.com/envoy.extensions.filters"
CONFIG = """\
node: {{id: quantwatch, cluster: tests}}
admin: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {admin}}}}}}}
static_resources:
  listeners:
    - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": {filters}.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: in
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config: {{"@type": {filters}.http.router.v3.Router}}
                route_config:
                  response_headers_to_add:
                    - header: {{key: {served_by}, value: "%UPSTREAM_REMOTE_ADDRESS%"}}
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      routes: [{{match: {{prefix: /}}, route: {{cluster: llm}}}}]
  clusters:
    - name: llm
      type: EDS
      eds_cluster_config: {{eds_config: {{path_config_source: {{path: {folder}/llm.yaml}}}}}}
      {threshold}
      health_checks:
        - timeout: 2s
          interval: 0.2s
          no_traffic_interval: 0.2s
          unhealthy_threshold: 1
          healthy_threshold: 1
          http_health_check: {{path: /health}}
"""


@dataclass(slots=True)
class Servers:
    """Small servers on loopback. urls: by name; ill: whose health check fails now; all else they answer well."""

    urls: dict[str, str] = field(default_factory=dict)
    ill: set[str] = field(default_factory=set)


@contextlib.contextmanager
def servers(*names: str) -> Iterator[Servers]:
    """A server for each name."""
    made = Servers()
    with contextlib.ExitStack() as stack:
        for name in names:
            server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(made, name))
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            made.urls[name] = f"http://127.0.0.1:{server.server_port}"
        yield made


def _handler(made: Servers, name: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(503 if self.path == "/health" and name in made.ill else 200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002, the library's name
            """Say nothing."""

    return Handler


@dataclass(slots=True)
class Envoy:
    """A running Envoy. file: what it reads its cluster's hosts from."""

    folder: Path
    port: int
    admin: str

    @property
    def file(self) -> Path:
        """The hosts of its cluster."""
        return self.folder / "llm.yaml"

    def gauge(self, name: str) -> int:
        """One number of its cluster."""
        (found,) = self.ask(f"/stats?format=json&filter=^cluster.llm.{name}$")["stats"]
        return int(found["value"])

    def ask(self, path: str) -> Any:
        """What its admin interface says."""
        with urllib.request.urlopen(f"{self.admin}{path}", timeout=10) as answer:  # noqa: S310, a port of ours
            return json.loads(answer.read())

    def live(self) -> bool:
        """Whether it takes requests."""
        try:
            return bool(self.ask("/server_info")["state"] == "LIVE") and self.gauge("membership_healthy") > 0
        except (OSError, ValueError):
            return False


@contextlib.contextmanager
def envoy(folder: Path, hosts: str, *, panic_threshold: int | None = None) -> Iterator[Envoy]:
    """An Envoy with these hosts in its file. panic_threshold: its own, in percent, where None is given."""
    made = Envoy(folder, free_port(), f"http://127.0.0.1:{(admin := free_port())}")
    threshold = panic_threshold
    common = "" if threshold is None else f"common_lb_config: {{healthy_panic_threshold: {{value: {threshold}}}}}"
    made.file.write_text(hosts)
    names = {"filters": FILTERS, "served_by": SERVED_BY}
    config = CONFIG.format(folder=folder, port=made.port, admin=admin, threshold=common, **names)
    (folder / "envoy.yaml").write_text(config)
    command = [
        str(BINARY),
        "-c",
        str(folder / "envoy.yaml"),
        "--disable-hot-restart",
        "--concurrency",
        "1",
        "-l",
        "error",
    ]
    with running(command, folder):
        wait_until(made.live, "Envoy was up")
        yield made
