"""The daemon on real vLLM nodes (marker `vllm`): a node goes bad, is isolated, is repaired, and comes back.

Addresses as in test_real_nodes.py; SMOOTH serves as the healthy node, OUTLIER and NAN as the bad ones. The limits lie
between the two, since the starting limits are made for models fifty times as large.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from quantwatch.flow.state import Axis
from quantwatch.flow.verdict import Quality
from quantwatch.record.archive import Archive
from support.daemons import Running, Site, site, started
from support.gateway import Gateway, served_gateway
from support.switch import Switch, switch

pytestmark = pytest.mark.vllm

PATIENCE = 600.0

LIMITS = {
    "kl_mean": {"warn": 0.08, "critical": 0.15},
    "top1_agreement": {"warn": "75%", "critical": "60%"},
    "perplexity_ratio": {"warn": 1.3, "critical": 1.5},
}
SETS = {"math": {"schedule": {"every": "30s"}, "draw": 8, "k": 20, "continuation_tokens": 24, "limits": LIMITS}}


def address(name: str) -> str:
    url = os.environ.get(f"QUANTWATCH_LAB_{name}")
    if not url:
        pytest.skip(f"QUANTWATCH_LAB_{name} is not set")
    return url


def arranged(folder: Path, node: Switch, gateway_url: str) -> Site:
    pool = {"chat": {"mode": "enforce", "fallback": "baseline", "release_after": 2, "minimum_hold": "1s"}}
    gateway = {"driver": "webhook", "url": f"{gateway_url}/act", "release_url": f"{gateway_url}/return"}
    gateway["state_url"] = f"{gateway_url}/state"
    where = site(folder, address("BASELINE"), {"a": node.url}, pools=pool, gateway=gateway)
    where.content["task_sets"] = SETS
    where.content["probe"] = {"patience": "60s", "timeout": "2m", "run_timeout": "5m"}
    return where.write()


def until(running: Running, met: Callable[[Archive], bool]) -> None:
    """Wait for something in the store; real nodes on two cores take their time."""
    late = time.monotonic() + PATIENCE
    while time.monotonic() < late:
        if running.site.store.is_file():
            with Archive.open(running.site.store) as archive:
                if met(archive):
                    return
        time.sleep(1)
    raise AssertionError(f"it never came: {running.events()}")


def measured(archive: Archive) -> bool:
    return any(one.quality is Quality.OK for one in archive.history(target="a"))


def routed(archive: Archive) -> list[str]:
    return [one.new for one in reversed(archive.timeline(target="a")) if one.axis is Axis.ROUTING]


@pytest.mark.parametrize("bad", ["OUTLIER", "NAN"])
def test_a_node_goes_bad_and_comes_back(tmp_path: Path, bad: str) -> None:
    gateway = Gateway()
    with (
        switch(address("SMOOTH")) as node,
        served_gateway(gateway) as there,
        started(arranged(tmp_path, node, there.url)) as running,
    ):
        running.ready()
        until(running, measured)
        node.to(address(bad))
        until(running, lambda archive: routed(archive)[-1:] == ["out"])
        assert [call.body["action"] for call in gateway.calls] == ["isolate"]
        assert gateway.calls[0].body["verdict"] == ("corrupted" if bad == "NAN" else "degraded")
        node.to(address("SMOOTH"))
        until(running, lambda archive: routed(archive)[-1:] == ["in"])

    assert [change for _, change in gateway.changes] == [True, False]
    with Archive.open(running.site.store) as archive:
        decisions = archive.decisions(target="a")
        assert routed(archive) == ["leaving", "out", "returning", "in"]
    assert [one.intent.outcome.result for one in decisions if one.intent and one.intent.outcome] == ["verified"] * 2
