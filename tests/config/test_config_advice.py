"""A valid configuration that does not do what it seems to is told so."""

from typing import Any

import pytest

from quantwatch.config.advice import advice
from quantwatch.config.schema import Settings

WEBHOOK = {"driver": "webhook", "url": "http://gw.test/act"}
WHOLE = {**WEBHOOK, "state_url": "http://gw.test/state", "signing_secret": "env:GATEWAY_SIGNING_SECRET"}


def settings(pool: dict[str, Any], gateway: dict[str, Any]) -> Settings:
    return Settings.model_validate(
        {
            "schema": 1,
            "baseline": {"url": "http://fp16.test"},
            "targets": [{"name": "a", "url": "http://a.test", "scheme": "int8", "pool": "p"}],
            "pools": {"p": pool},
            "task_sets": {"math": {}},
            "gateway": gateway,
            "notifications": [{"name": "team", "kind": "slack", "url": "env:SLACK_WEBHOOK_URL"}],
        }
    )


CASES: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "observe needs nothing": ({}, {}, []),
    "a whole webhook is fine": ({"mode": "enforce", "fallback": "baseline"}, WHOLE, []),
    "verdict is fine": ({"mode": "enforce", "fallback": "baseline"}, {"driver": "verdict"}, []),
    "approve waits": ({"mode": "approve", "fallback": "baseline"}, WHOLE, []),
    "approve without a gateway": ({"mode": "approve", "fallback": "baseline"}, {}, ["pools.p.mode"]),
    "enforce without a gateway": ({"mode": "enforce", "fallback": "baseline"}, {}, ["pools.p.mode"]),
    "a cap of nothing": (
        {"mode": "enforce", "fallback": "baseline", "max_isolated": "0%"},
        WHOLE,
        ["pools.p.max_isolated"],
    ),
    "a webhook that proves nothing": ({}, WEBHOOK, ["gateway.state_url", "gateway.signing_secret"]),
}


@pytest.mark.parametrize(("pool", "gateway", "keys"), CASES.values(), ids=CASES.keys())
def test_advice_names_the_keys(pool: dict[str, Any], gateway: dict[str, Any], keys: list[str]) -> None:
    assert [line.partition(":")[0] for line in advice(settings(pool, gateway))] == keys


@pytest.mark.parametrize("driver", ["vllm_router", "sglang_router"])
@pytest.mark.parametrize(("url", "advised"), [("http://a.test", 0), ("http://a.test/", 1), ("http://a.test/v1", 1)])
def test_a_name_that_no_router_lists_so_is_advised_against(driver: str, url: str, advised: int) -> None:
    one = settings({}, {"driver": driver, "url": "http://router.test"})
    target = one.targets[0].model_copy(update={"url": url})
    given = one.model_copy(update={"targets": [target]})
    named = given.model_copy(update={"targets": [target.model_copy(update={"gateway_name": "http://a.test"})]})

    assert [line.partition(":")[0] for line in advice(given)] == ["targets[a].gateway_name"] * advised
    assert advice(named) == []


URLS = [
    ("http://vllm-0.vllm.llm:8000", "vllm-0", True),
    ("http://vllm.llm.svc:8000", "vllm-0", True),
    ("http://vllm-0.other.llm:8000", "other:vllm-0", True),
    ("http://vllm-0.vllm-nodes.llm:8000", "vllm-0", False),
    ("http://10.0.0.1:8000", "vllm-0", False),
    ("http://vllm-0.vllm.llm:8000", None, False),
]


@pytest.mark.parametrize(("url", "name", "advised"), URLS)
def test_a_pod_s_name_that_goes_away_with_its_traffic_is_advised_against(
    url: str, name: str | None, advised: bool
) -> None:
    one = settings({}, {"driver": "kubernetes", "namespace": "llm", "service": "vllm"})
    target = one.targets[0].model_copy(update={"url": url, "gateway_name": name})
    told = list(advice(one.model_copy(update={"targets": [target]})))

    assert len(told) == advised
    assert all("targets[a].url: " in line and "which leaves out who is isolated" in line for line in told)
