"""The driver of docs/gateways.md, installed as the page says, takes a node out of a real server and brings it back."""

import json
import re
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from quantwatch.cli.main import main
from support.daemons import Site, site
from support.installed import install, on_the_path

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "gateways.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n## A driver of your own\n")[2].partition("\n## ")[0]
TOKEN = "acme-token"  # noqa: S105, of a server that lives for one test


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", SECTION, re.DOTALL)
    return str(found)


class Acme(BaseHTTPRequestHandler):
    """Acme's gateway. enabled: by name; calls: what was put."""

    enabled: dict[str, bool]
    calls: list[tuple[str, bool]]

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        self._say(200 if name in self.enabled else 404, {"enabled": self.enabled.get(name)})

    def do_PUT(self) -> None:
        name = self.path.rpartition("/")[2]
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            self._say(403, {})
            return
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.enabled[name] = body["enabled"]
        self.calls.append((name, body["enabled"]))
        self._say(200, {})

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002, the library's name
        """Say nothing."""

    def _say(self, status: int, body: object) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


@pytest.fixture
def acme() -> Iterator[tuple[str, type[Acme]]]:
    handler = type("OneAcme", (Acme,), {"enabled": {"gpu-a": True, "gpu-b": True}, "calls": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", handler
    server.shutdown()
    server.server_close()


@pytest.fixture
def where(acme: tuple[str, type[Acme]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """The package as installed, and the page's configuration for it."""
    project = tomllib.loads(block("toml"))["project"]
    ((name, point),) = project["entry-points"]["quantwatch.drivers"].items()
    install(tmp_path / "site", project["name"], point.partition(":")[0], block("python"), **{name: point})
    monkeypatch.setenv("ACME_TOKEN", TOKEN)
    gateway = yaml.safe_load(block("yaml"))["gateway"]
    gateway["options"]["url"] = acme[0]
    made = site(tmp_path, "http://127.0.0.1:9", {"a": "http://127.0.0.1:1", "b": "http://127.0.0.1:2"}, gateway=gateway)
    for target in made.content["targets"]:
        target["gateway_name"] = f"gpu-{target['name']}"
    made.write()
    with on_the_path(tmp_path / "site"):
        yield made


def test_the_example_is_short() -> None:
    assert len([line for line in block("python").splitlines() if line.strip()]) <= 40


def test_the_example_takes_a_node_out_and_brings_it_back(
    where: Site, acme: tuple[str, type[Acme]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check-config", str(where.file)]) == 0
    assert main(["gateway", "test", "--config", str(where.file), "--target", "a", "--yes"]) == 0

    told = " ".join(capsys.readouterr().out.split())
    assert "driver acme: reads back; not proven: rehearse it before you rely on it" in told
    assert "isolate acme answered 200" in told
    assert "a went out and came back, both verified" in told
    assert acme[1].calls == [("gpu-a", False), ("gpu-a", True)]


def test_how_nodes_stand_is_shown_and_trouble_is_unknown(
    where: Site, acme: tuple[str, type[Acme]], capsys: pytest.CaptureFixture[str]
) -> None:
    acme[1].enabled = {"gpu-a": False}
    assert main(["gateway", "show", "--config", str(where.file)]) == 2

    told = capsys.readouterr().out
    assert re.search(r"gpu-a\b.*isolated", told)
    assert re.search(r"gpu-b\b.*unknown", told)


def test_a_wrong_token_is_refused_and_nothing_goes_out(
    where: Site, acme: tuple[str, type[Acme]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ACME_TOKEN", "another")
    assert main(["gateway", "test", "--config", str(where.file), "--target", "a", "--yes"]) == 1
    assert "acme answered 403" in capsys.readouterr().out
    assert acme[1].calls == []


def test_options_that_the_example_does_not_take_are_told(where: Site, capsys: pytest.CaptureFixture[str]) -> None:
    where.content["gateway"]["options"] = {"url": "http://acme"}
    where.write()
    assert main(["check-config", str(where.file)]) == 3
    assert "acme_quantwatch:AcmeDriver) cannot use them: url and token are wanted" in capsys.readouterr().err
