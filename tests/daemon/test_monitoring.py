"""A node goes bad before a real Prometheus, a real Alertmanager and the shipped rules and dashboard, and is mended.

One scene for all: two of four nodes go bad at once in a pool that may lose one, so that one is isolated, the other is
held back, and every series of rules and dashboard has something to tell.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from quantwatch.flow.verdict import Quality
from support.daemons import Running, free_port, site, started
from support.gateway import Gateway, served_gateway
from support.monitoring import ALERTMANAGER, DASHBOARD, RULES, SERIES, loaded, named, panels, queries, substituted
from support.prometheus import ALERTMANAGER as PASSES_ON
from support.prometheus import PROMETHEUS, Prometheus, passing_on, scraping, wait
from support.receiver import Receiver, received
from support.runs import node
from support.served import served
from support.tiny_node import TinyModel, TinyNode

BAD, HELD, GOOD, GONE = "int8-bad", "int8-held", "int8-good", "int8-gone"
PROBED = (BAD, HELD, GOOD)

OF_A_LIST = {"quantwatch_pool_missing_targets"}
"""Only a gateway that lists its members tells these; a webhook does not."""

pytestmark = pytest.mark.skipif(
    PROMETHEUS is None or PASSES_ON is None, reason="Prometheus or the Alertmanager is not installed"
)


@dataclass(frozen=True, slots=True)
class Scene:
    """What runs. told: by the name of the receiver."""

    daemon: Running
    prometheus: Prometheus
    nodes: dict[str, TinyNode]
    told: dict[str, Receiver]

    def run(self, *targets: str) -> None:
        """Let the daemon measure these targets now."""
        for name in targets:
            answer = httpx.post(f"{self.daemon.site.admin}/api/v1/runs", json={"target": name}, trust_env=False)
            assert answer.status_code == 202, answer.text

    def become(self, quality: Quality, *targets: str, damage: float) -> None:
        """Give targets this damage, and wait until Prometheus knows their verdict."""
        for name in targets:
            self.nodes[name].model = TinyModel(damage=damage)
        self.run(*targets)
        asked = f'quantwatch_target_quality{{quality="{quality}"}} == 1'
        wait(lambda: set(targets) <= set(self.prometheus.values(asked)), f"{targets} were {quality}")

    def heard(self, receiver: str, status: str, alert: str) -> dict[str, dict[str, Any]]:
        """Alerts of this name and status that have arrived, by target."""
        bodies = self.told[receiver].bodies
        found = [one for body in bodies for one in body["alerts"] if one["status"] == status]
        return {one["labels"].get("target", ""): one for one in found if one["labels"]["alertname"] == alert}


def quick_rules(folder: Path) -> Path:
    """The shipped rules, each waiting for a second at most."""
    content = loaded(RULES)
    for rule in (rule for group in content["groups"] for rule in group["rules"]):
        if "for" in rule:
            rule["for"] = "1s"
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def quick_routes(receivers: dict[str, str]) -> dict[str, Any]:
    """The shipped example for an Alertmanager, which passes on at once, to receivers of the test."""
    content: dict[str, Any] = loaded(ALERTMANAGER)
    content["route"] |= {"group_wait": "0s", "group_interval": "1s"}
    for one in content["receivers"]:
        one["webhook_configs"][0]["url"] = receivers[one["name"]]
    return content


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Four targets of which one is not there, clean at first; then two go bad."""
    folder = tmp_path_factory.mktemp("monitoring")
    nodes = {name: node() for name in PROBED}
    for one in nodes.values():
        one.more_metrics = 'quantwatch_vllm_broken_logit_rows_total{engine="0"} 0\n'
    with ExitStack() as stack:
        told = {one["name"]: Receiver() for one in loaded(ALERTMANAGER)["receivers"]}
        urls = {name: stack.enter_context(received(one)) for name, one in told.items()}
        gateway = stack.enter_context(served_gateway(Gateway())).url
        targets = {name: stack.enter_context(served(one)) for name, one in nodes.items()}
        where = site(
            folder,
            stack.enter_context(served(TinyNode())),
            {**targets, GONE: f"http://127.0.0.1:{free_port()}"},
            pools={"chat": {"mode": "enforce", "max_isolated": "25%", "storm_share": "100%"}},
            gateway={"driver": "webhook", "url": f"{gateway}/act", "state_url": f"{gateway}/state"},
            limits={"int8": {"kl_p99": {"warn": 0.2, "critical": 0.6}}},
            notifications=[{"name": "ops", "kind": "webhook", "url": stack.enter_context(received(Receiver()))}],
        )
        passing = stack.enter_context(passing_on(folder, quick_routes(urls)))
        daemon = stack.enter_context(started(where))
        listen, rules = where.content["server"]["listen"], quick_rules(folder)
        prometheus = stack.enter_context(scraping(folder, listen, rules=rules, alertmanager=passing))
        daemon.ready()
        whole = Scene(daemon, prometheus, nodes, told)
        wait(lambda: len(prometheus.values("quantwatch_runs_total == 0 or quantwatch_runs_total > 0")) == 4, "scraped")
        whole.run(GONE)
        whole.become(Quality.OK, *PROBED, damage=0.0)
        whole.become(Quality.DEGRADED, BAD, damage=1.5)
        wait(lambda: prometheus.series(f'quantwatch_target_routing{{target="{BAD}",routing="out"}} == 1'), "isolated")
        whole.become(Quality.DEGRADED, HELD, damage=1.5)
        yield whole


def test_an_alert_fires_arrives_and_says_what_is_wrong(scene: Scene) -> None:
    wait(lambda: set(scene.heard("oncall", "firing", "QuantwatchTargetBad")) == {BAD, HELD}, "arrived")
    alert = scene.heard("oncall", "firing", "QuantwatchTargetBad")[BAD]
    assert alert["labels"]["severity"] == "critical"
    assert alert["annotations"]["runbook_url"] == "docs/runbook.md#alert-target-bad"
    said = alert["annotations"]["description"]
    assert f"{BAD} is degraded. letters: degraded since " in said
    assert ", limit 0.05." in said
    held = wait(lambda: scene.heard("oncall", "firing", "QuantwatchIsolationSuppressedByCap"), "told of the cap")
    assert [one["labels"]["reason"] for one in held.values()] == ["cap"]
    wait(lambda: HELD in scene.heard("oncall", "firing", "QuantwatchBadTargetInTraffic"), "told of users")
    wait(lambda: BAD in scene.heard("record", "firing", "QuantwatchTargetIsolated"), "told of the isolation")
    assert GOOD not in {one["labels"].get("target") for body in scene.told["oncall"].bodies for one in body["alerts"]}


def test_every_series_of_rules_and_dashboard_is_in_a_real_scrape(scene: Scene) -> None:
    """A scrape gives samples, not families without any."""
    scraped = {one for one in scene.prometheus.ask("label/__name__/values") if one.startswith("quantwatch_")}
    wanted = named(RULES.read_text(encoding="utf-8")) | named(DASHBOARD.read_text(encoding="utf-8"))
    assert len(wanted) > 60
    assert wanted <= SERIES
    families = {name for one in scraped for name in named(one)}
    assert wanted - families == OF_A_LIST


def test_every_query_of_the_dashboard_returns_what_happened(scene: Scene) -> None:
    wait(lambda: scene.prometheus.series("quantwatch_isolation_verified == 1"), "verified")
    shown = [(title, scene.prometheus.series(substituted(query))) for title, query in queries()]
    assert [title for title, found in shown if not found] == []
    by_title: dict[str, set[str]] = {}
    for title, found in shown:
        by_title.setdefault(title, set()).update(one.get("target", "") for one in found)
    of_targets = {one["title"] for one in panels() if any("target=~" in target["expr"] for target in one["targets"])}
    assert len(of_targets) > 20
    whole = {"KL of single tokens"}  # all targets that are chosen in one picture
    assert [title for title in sorted(of_targets - whole) if BAD not in by_title[title]] == []


def test_a_chosen_target_is_the_only_one_shown(scene: Scene) -> None:
    for _, query in queries():
        if '"$target"' in query:
            found = scene.prometheus.series(substituted(query.replace("$target", BAD)))
            assert {one.get("target", BAD) for one in found} <= {BAD}


def test_recorded_series_are_there_under_their_own_names(scene: Scene) -> None:
    over = scene.prometheus.values("quantwatch:kl_divergence_mean:limit_ratio")
    assert {name: value > 1 for name, value in over.items()} == {BAD: True, HELD: True, GOOD: False}
    bad = 'quantwatch:targets:sum_by_quality{pool="chat",quality="degraded"} == 2'
    assert wait(lambda: scene.prometheus.series(bad), "recorded")


def test_an_exemplar_leads_to_the_run(scene: Scene) -> None:
    asked = {"query": "quantwatch_token_kl_divergence_nats_bucket", "start": "0", "end": "9999999999"}
    found = scene.prometheus.ask("query_exemplars", **asked)
    runs = {one["labels"]["run_id"] for series in found for one in series["exemplars"]}
    assert runs
    assert runs <= {one["run_id"] for one in scene.daemon.log() if "run_id" in one}


def test_mended_nodes_end_their_alerts(scene: Scene) -> None:
    wait(lambda: set(scene.heard("oncall", "firing", "QuantwatchTargetBad")) >= {BAD, HELD}, "fired")
    scene.become(Quality.OK, BAD, HELD, damage=0.0)
    wait(lambda: set(scene.heard("oncall", "resolved", "QuantwatchTargetBad")) == {BAD, HELD}, "resolved")
    wait(lambda: HELD in scene.heard("oncall", "resolved", "QuantwatchBadTargetInTraffic"), "users were safe again")
