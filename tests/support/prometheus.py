"""Real programs beside a daemon: a Prometheus that scrapes it, and an Alertmanager that passes alerts on."""

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from support.daemons import PATIENCE, free_port

PROMETHEUS = shutil.which("prometheus")
ALERTMANAGER = next(filter(None, map(shutil.which, ("prometheus-alertmanager", "alertmanager"))), None)


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running Prometheus. client: speaks to its root."""

    client: httpx.Client

    def ask(self, path: str, **query: str) -> Any:
        """The data of an answer of its API."""
        document = self.client.get(f"/api/v1/{path}", params=query).json()
        assert document["status"] == "success", document
        return document["data"]

    def series(self, query: str) -> list[dict[str, str]]:
        """The labels of everything that an instant query gives."""
        return [one["metric"] for one in self.ask("query", query=query)["result"]]

    def values(self, query: str) -> dict[str, float]:
        """An instant query's values by the label `target`."""
        result = self.ask("query", query=query)["result"]
        return {one["metric"].get("target", ""): float(one["value"][1]) for one in result}

    def labels(self) -> set[str]:
        """Every label name it has seen."""
        return set(self.ask("labels"))


def wait(met: Callable[[], Any], what: str) -> Any:
    """Wait for something that must come."""
    late = time.monotonic() + PATIENCE
    while time.monotonic() < late:
        if result := met():
            return result
        time.sleep(0.1)
    raise AssertionError(f"never {what}")


@contextmanager
def scraping(
    folder: Path, target: str, *, rules: Path | None = None, alertmanager: str | None = None
) -> Iterator[Prometheus]:
    """A Prometheus that scrapes an address once a second; rules: looked at as often. alertmanager: HOST:PORT."""
    job = {"job_name": "quantwatch", "static_configs": [{"targets": [target]}]}
    content: dict[str, Any] = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "scrape_configs": [job],
    }
    if rules is not None:
        content["rule_files"] = [str(rules)]
    if alertmanager is not None:
        content["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(content))
    listen = f"127.0.0.1:{free_port()}"
    command = [
        str(PROMETHEUS),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address={listen}",
        "--enable-feature=exemplar-storage",
    ]
    with _running(command, f"http://{listen}", folder / "prometheus.log") as client:
        yield Prometheus(client)


@contextmanager
def passing_on(folder: Path, content: dict[str, Any]) -> Iterator[str]:
    """An Alertmanager with this configuration; gives its HOST:PORT."""
    (folder / "alertmanager.yml").write_text(yaml.safe_dump(content))
    listen = f"127.0.0.1:{free_port()}"
    command = [
        str(ALERTMANAGER),
        f"--config.file={folder / 'alertmanager.yml'}",
        f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address={listen}",
        "--cluster.listen-address=",
    ]
    with _running(command, f"http://{listen}", folder / "alertmanager.log"):
        yield listen


@contextmanager
def _running(command: Sequence[str], url: str, said: Path) -> Iterator[httpx.Client]:
    """A program until it is needed no more; gives what speaks to it."""
    with said.open("wb") as log, httpx.Client(base_url=url, timeout=10, trust_env=False) as client:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)  # noqa: S603, ours
        try:
            wait(lambda: process.poll() is not None or _answers(client), f"answered: {command[0]}")
            assert process.poll() is None, said.read_text()
            yield client
        finally:
            process.terminate()
            process.wait(PATIENCE)


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/-/ready").status_code == 200
    except httpx.HTTPError:
        return False
