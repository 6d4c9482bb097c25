"""Ladders of variants, task sets of a pool, and one server in several pools: what is refused, and in which words."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from quantwatch.config.load import load_settings
from quantwatch.errors import ConfigError
from quantwatch.flow.fleet import Rung
from quantwatch.flows.pools import pools_of
from quantwatch.wiring import sets_of
from support.runs import POOL

HAPROXY = {"driver": "haproxy", "socket": "/run/haproxy/admin.sock", "backend": "llm"}
WEBHOOK = {"driver": "webhook", "url": "http://gateway.test"}
LADDER = ["int4", "int8", "baseline"]
SHIPPED = {name: Path(f"{name}.yaml") for name in ("math", "code")}


def target(name: str, scheme: str, pool: str = "chat", **given: Any) -> dict[str, Any]:
    return {"name": name, "url": f"http://{name}.test", "scheme": scheme, "pool": pool, "gateway_name": name, **given}


TARGETS = (target("a", "int4"), target("b", "int8"))


def written(folder: Path, pool: dict[str, Any], *targets: dict[str, Any], **sections: Any) -> Path:
    content = {
        "schema": 1,
        "baseline": {"url": "http://fp16.test", "gateway_name": "fp16"},
        "targets": list(targets or TARGETS),
        "pools": {"chat": {"mode": "enforce", **pool}},
        "task_sets": {"math": {}, "code": {}},
        "gateway": HAPROXY,
    }
    file = folder / "quantwatch.yaml"
    file.write_text(yaml.safe_dump({**content, **sections}, sort_keys=False), encoding="utf-8")
    return file


def problems(file: Path) -> list[tuple[str, str]]:
    with pytest.raises(ConfigError) as caught:
        load_settings(file, shipped=SHIPPED)
    return [(one.key, one.message) for one in caught.value.problems]


def test_the_rungs_hold_their_targets_in_the_order_of_the_list(tmp_path: Path) -> None:
    third = target("c", "int4")
    file = written(tmp_path, {"variants": LADDER, "shift": ["10%", 0.5]}, *TARGETS, third)

    pool = pools_of(load_settings(file, shipped=SHIPPED))["chat"]

    assert pool.ladder == (Rung("int4", ("a", "c")), Rung("int8", ("b",)), Rung("baseline", ("baseline",)))
    assert (pool.steps, pool.baseline_name, pool.fallback) == ((10, 50), "fp16", None)


@pytest.mark.parametrize("pool", [{"variants": LADDER, "fallback": "baseline"}, {"variants": ["int4", "int8"]}])
def test_a_ladder_needs_no_cap_for_one_of_a_rung_and_no_fallback(tmp_path: Path, pool: dict[str, Any]) -> None:
    load_settings(written(tmp_path, pool), shipped=SHIPPED)


FAULTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "one rung": ({"variants": ["int4"]}, "pools.chat.variants", "at least 2 items"),
    "no such scheme": (
        {"variants": ["int4", "int8", "fp8"]},
        "pools.chat.variants[2]",
        "no target of this pool has the scheme fp8; its targets are int4 and int8",
    ),
    "not a scheme at all": ({"variants": ["int4", "fp16"]}, "pools.chat.variants[1]", "'int8', 'int4', 'fp8' or 'bas"),
    "twice": ({"variants": ["int4", "int8", "int4"]}, "pools.chat.variants[2]", "int4 is a rung already"),
    "baseline in the middle": (
        {"variants": ["int4", "baseline", "int8"]},
        "pools.chat.variants[1]",
        "can only be the last rung",
    ),
    "a target on no rung": ({"variants": ["int4", "baseline"]}, "pools.chat.variants", "b: int8 is no rung here"),
    "another fallback": (
        {"variants": ["int4", "int8"], "fallback": "baseline"},
        "pools.chat.fallback",
        "baseline is not its end; remove fallback, or end the ladder with baseline",
    ),
    "steps without a ladder": ({"shift": ["10%"], "max_isolated": "50%"}, "pools.chat.shift", "only a ladder shifts"),
    "steps that fall": ({"variants": LADDER, "shift": ["50%", "10%"]}, "pools.chat.shift", "larger than the one befo"),
    "a step to everything": ({"variants": LADDER, "shift": ["100%"]}, "pools.chat.shift[0]", "less than 1"),
    "no such task set": (
        {"variants": LADDER, "task_sets": ["maths"]},
        "pools.chat.task_sets[0]",
        "no task set maths; did you mean math?",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_told_with_its_key(tmp_path: Path, name: str) -> None:
    pool, key, words = FAULTS[name]

    found = problems(written(tmp_path, pool))

    assert any(at == key and words in said for at, said in found), found


def test_a_fallback_of_another_pool_contradicts_a_ladder_that_ends_with_the_baseline(tmp_path: Path) -> None:
    spare = target("spare", "int8", "spare")
    pools = {"chat": {"mode": "enforce", "variants": LADDER, "fallback": "spare"}, "spare": {}}

    ((key, said),) = problems(written(tmp_path, {}, *TARGETS, spare, pools=pools))

    assert (key, said.rpartition("; ")[2]) == ("pools.chat.fallback", "remove fallback")


ADMIN = {"url": "http://admin.test", "api_key": "env:ADMIN_KEY"}


@pytest.mark.parametrize(
    "gateway",
    [
        {"driver": "vllm_router", "url": "http://router.test"},
        {"driver": "sglang_router", "url": "http://router.test"},
        {"driver": "kubernetes", "namespace": "llm", "service": "vllm"},
        {"driver": "litellm", **ADMIN},
        {"driver": "apisix", "upstream": "1", **ADMIN},
        {"driver": "kong", "upstream": "llm", **ADMIN},
    ],
    ids=lambda one: one["driver"],
)
def test_a_gateway_that_sends_to_everybody_has_no_ladder(tmp_path: Path, gateway: dict[str, Any]) -> None:
    at = [target(one, scheme) | {"gateway_name": f"{one}:80"} for one, scheme in (("a", "int4"), ("b", "int8"))]
    given = {"gateway": gateway, "baseline": {"url": "http://fp16.test", "gateway_name": "fp16:80"}}

    ((key, said),) = problems(written(tmp_path, {"variants": LADDER}, *at, **given))
    load_settings(written(tmp_path, {"variants": LADDER, "mode": "observe"}, *at, **given), shipped=SHIPPED)

    assert (key, "so no rung can stand by" in said) == ("pools.chat.variants", True)


def test_weights_need_a_driver_that_has_them(tmp_path: Path) -> None:
    ((key, said),) = problems(written(tmp_path, {"variants": LADDER, "shift": ["10%"]}, gateway=WEBHOOK))

    assert (key, "haproxy can weigh" in said) == ("pools.chat.shift", True)


def test_weights_and_an_agent_check_undo_each_other(tmp_path: Path) -> None:
    server = {"agent_listen": "127.0.0.1:9471"}

    ((key, said),) = problems(written(tmp_path, {"variants": LADDER, "shift": ["10%"]}, server=server))

    assert (key, "remove one of the two" in said) == ("pools.chat.shift", True)


def test_a_baseline_that_is_weighed_has_a_name_at_the_gateway(tmp_path: Path) -> None:
    file = written(tmp_path, {"variants": LADDER, "shift": ["10%"]}, baseline={"url": "http://fp16.test"})

    ((key, said),) = problems(file)

    assert (key, "the baseline needs a gateway_name" in said) == ("baseline", True)


def by_class(**second: Any) -> list[dict[str, Any]]:
    """One server in two pools."""
    one = target("code-a", "int4", "code", url="http://a.test", gateway_name="code/a")
    return [target("a", "int4", gateway_name="llm/a"), {**one, **second}]


def classes(chat: list[str] | None, code: list[str] | None) -> dict[str, Any]:
    acting = {"mode": "enforce", "fallback": "baseline"}
    return {"chat": {**acting, "task_sets": chat}, "code": {**acting, "task_sets": code}}


def test_one_server_stands_in_two_pools_by_its_task_sets_and_each_is_judged_by_its_own(tmp_path: Path) -> None:
    settings = load_settings(written(tmp_path, {}, *by_class(), pools=classes(["math"], ["code"])), shipped=SHIPPED)

    asked = {one.name: list(sets_of(settings, one, {"math": POOL, "code": POOL})) for one in settings.targets}

    assert asked == {"a": ["math"], "code-a": ["code"]}


TWICE: dict[str, tuple[dict[str, Any], list[str] | None, str]] = {
    "the same set": ({}, ["math", "code"], "would be asked about math twice; give both pools task_sets that differ"),
    "all sets": ({}, None, "would be asked about math twice"),
    "the same name": ({"gateway_name": "llm/a"}, ["code"], "and the gateway must tell them apart"),
    "no name": ({"gateway_name": None}, ["code"], "one server stands in several pools by a gateway_name in each"),
    "the same pool": ({"pool": "chat"}, ["code"], "has this URL and model already; one server"),
}


@pytest.mark.parametrize("name", TWICE)
def test_a_server_under_two_names_is_refused_where_that_is_wrong(tmp_path: Path, name: str) -> None:
    second, sets, words = TWICE[name]

    found = problems(written(tmp_path, {}, *by_class(**second), pools=classes(["math"], sets)))

    assert any(key == "targets[1].url" and said.startswith("targets[0] ") and words in said for key, said in found), (
        found
    )


def test_a_task_set_that_no_pool_asks_for_is_refused(tmp_path: Path) -> None:
    ((key, said),) = problems(
        written(tmp_path, {}, *by_class(), pools=classes(["math"], ["math"]), task_sets={"math": {}, "code": {}})
    )[-1:]

    assert (key, said) == ("task_sets.code", "no pool names it under task_sets, so it would never run")
