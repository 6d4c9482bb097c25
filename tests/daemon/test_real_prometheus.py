"""A real Prometheus scrapes a real daemon, and is told when a target leaves.

QUANTWATCH_PROMETHEUS_SECONDS: how long it watches before anything is changed; minutes where somebody has them.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from support.daemons import Running, site, started
from support.prometheus import Prometheus, scraping, wait
from support.runs import node
from support.served import served
from support.tiny_node import TinyNode

WATCHES = float(os.environ.get("QUANTWATCH_PROMETHEUS_SECONDS", "8"))
TARGETS = ("int8-a", "int8-b")

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None, reason="Prometheus is not installed"
)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[tuple[Running, Prometheus]]:
    """A daemon over two nodes, and a Prometheus that scrapes it."""
    with ExitStack() as stack:
        baseline = stack.enter_context(served(TinyNode()))
        nodes = {name: stack.enter_context(served(node(0.2))) for name in TARGETS}
        where = site(tmp_path, baseline, nodes)
        where.content["task_sets"]["letters"]["schedule"] = {"every": "10s"}
        daemon = stack.enter_context(started(where.write())).ready()
        yield daemon, stack.enter_context(scraping(tmp_path, where.content["server"]["listen"]))


def test_a_real_prometheus_watches_a_real_daemon_and_sees_a_target_leave(
    scene: tuple[Running, Prometheus],
) -> None:
    daemon, prometheus = scene
    wait(lambda: set(prometheus.values("quantwatch_kl_divergence_mean_nats")) == set(TARGETS), "both were measured")
    time.sleep(WATCHES)
    _everything_was_scraped(prometheus)
    _the_page_is_clean(daemon)
    daemon.site.content["targets"] = [one for one in daemon.site.content["targets"] if one["name"] == TARGETS[0]]
    daemon.site.write()
    daemon.send(signal.SIGHUP)
    daemon.until("configuration changed")
    _its_series_end(prometheus)
    time.sleep(2)  # two more scrapes
    assert set(prometheus.values("quantwatch_target_quality == 1")) == {TARGETS[0]}
    _everything_was_scraped(prometheus)
    _the_page_is_clean(daemon)


def _everything_was_scraped(prometheus: Prometheus) -> None:
    """No scrape failed, none was slow, and no label had to be renamed."""
    (target,) = prometheus.ask("targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    assert prometheus.values("min_over_time(up[10m])") == {"": 1.0}
    assert prometheus.values("min_over_time(scrape_samples_scraped[10m])")[""] > 100
    assert [name for name in prometheus.labels() if name.startswith("exported_")] == []
    (largest,) = prometheus.values("max_over_time(scrape_duration_seconds[10m])").values()
    scrapes = prometheus.values("count_over_time(up[10m])")[""]
    print(f"\n{scrapes:.0f} scrapes, the slowest {largest:.3f} s")  # noqa: T201, numbers for the record


def _the_page_is_clean(daemon: Running) -> None:
    page = httpx.get(f"{daemon.site.public}/metrics", timeout=10, trust_env=False).content
    checked = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False)  # noqa: S607
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def _its_series_end(prometheus: Prometheus) -> None:
    """Every series of the target that left is stale at once, not after five minutes; the other's go on."""
    gone, stays = (f'{{__name__=~"quantwatch_.+",target="{name}"}}' for name in reversed(TARGETS))
    before = prometheus.ask("query", query=f"count({stays})")["result"]
    wait(lambda: prometheus.ask("query", query=gone)["result"] == [], "the target's series became stale")
    assert prometheus.ask("query", query=f"count({stays})")["result"][0]["value"][1] == before[0]["value"][1]
