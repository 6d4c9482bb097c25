"""Settings -> objects: names, limits, periods, drivers, and that nothing stays open when something cannot be built."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from quantwatch import wiring
from quantwatch.act.apisix import ApisixDriver
from quantwatch.act.contract import Seen
from quantwatch.act.dry_run import DryRun
from quantwatch.act.envoy import EnvoyFile
from quantwatch.act.file import FileDriver
from quantwatch.act.haproxy import HaproxyDriver
from quantwatch.act.known import KNOWN, abilities_of
from quantwatch.act.kong import KongDriver
from quantwatch.act.kubernetes import KubernetesDriver
from quantwatch.act.litellm import LitellmDriver
from quantwatch.act.verdict import VerdictDriver
from quantwatch.act.webhook import WebhookDriver
from quantwatch.config.gateway import SHIPPED
from quantwatch.config.schema import ScheduleSettings, Settings
from quantwatch.errors import ConfigError, InputError
from quantwatch.flow.decision import Lane, PoolMode
from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.verdict import Limit, Metric
from quantwatch.flows.pools import pools_of
from quantwatch.flows.shelf import LookingShelf
from quantwatch.flows.yardstick import Yardstick
from quantwatch.wiring.drivers import MAKERS, driver
from quantwatch.wiring.tools import Tools
from support.builders import FakeClock
from support.daemons import write_prompts
from support.gateway import order
from support.installed import install, on_the_path
from support.runs import POOL, node
from support.runtime_socket import runtime_socket
from support.tiny_node import Network, TinyNode

LETTERS: Mapping[str, Any] = {"letters": {"prompts": "letters.yaml"}}


def settings(**sections: Any) -> Settings:
    """Two targets of different schemes in one pool; `sections` replace those of the file."""
    content: dict[str, Any] = {
        "schema": 1,
        "baseline": {"url": "http://baseline"},
        "targets": [target("a", "int8"), target("b", "int4")],
        "pools": {"chat": {}},
        "task_sets": LETTERS,
    }
    return Settings.model_validate(content | sections)


def target(name: str, scheme: str = "int8", **given: Any) -> dict[str, Any]:
    return {"name": name, "url": f"http://{name}", "scheme": scheme, "pool": "chat", **given}


def tools(heard: list[tuple[str, str, float, str | None]] | None = None, **nodes: TinyNode) -> Tools:
    """Tools over a network of tiny nodes."""
    into = heard if heard is not None else []
    return Tools(FakeClock(), Random(1), Network(**nodes), lambda *call: into.append(call))


def test_a_schedule_s_period_is_its_interval_or_its_longest_gap() -> None:
    assert wiring.period_of(ScheduleSettings.model_validate({"every": "15m"})) == 900
    assert wiring.period_of(ScheduleSettings.model_validate({"cron": "0 9-17 * * *"})) == 16 * 3600


def test_a_pool_s_fallback_has_the_gateway_s_name_for_it() -> None:
    pools = {
        "chat": {"fallback": "baseline", "mode": "enforce", "max_isolated": "50%"},
        "code": {"fallback": "a"},
        "mail": {},
    }
    given = settings(
        baseline={"url": "http://baseline", "gateway_name": "fp16"},
        targets=[target("a", gateway_name="node-a"), target("b"), target("c", pool="code"), target("d", pool="mail")],
        pools=pools,
    )

    built = pools_of(given)

    assert (built["chat"].fallback, built["chat"].fallback_name) == ("baseline", "fp16")
    assert (built["code"].fallback, built["code"].fallback_name) == ("a", "node-a")
    assert (built["mail"].fallback, built["mail"].fallback_name) == (None, None)
    assert (built["chat"].rules.mode, built["chat"].rules.max_isolated) == (PoolMode.ENFORCE, 0.5)


def test_without_a_gateway_name_a_fallback_is_called_by_its_url() -> None:
    built = pools_of(settings(pools={"chat": {"fallback": "baseline"}}))

    assert built["chat"].fallback_name == "http://baseline"


def test_limits_come_from_the_narrowest_place_that_gives_them() -> None:
    given = settings(
        limits={"int8": {"kl_mean": {"warn": 0.02, "critical": 0.06}}},
        task_sets={"letters": {**LETTERS["letters"], "limits": {"top1_agreement": {"warn": 0.9, "critical": 0.8}}}},
    )

    by_name = {one.name: wiring.sets_of(given, one, {"letters": POOL})["letters"] for one in given.targets}

    assert by_name["a"].limits[Metric.KL_MEAN] == Limit(0.02, 0.06)
    assert by_name["b"].limits[Metric.KL_MEAN] == Limit(0.06, 0.13)
    assert by_name["a"].limits[Metric.TOP1_AGREEMENT] == by_name["b"].limits[Metric.TOP1_AGREEMENT] == Limit(0.9, 0.8)


def test_a_task_set_keeps_what_its_file_recommends_unless_the_settings_say_otherwise() -> None:
    other = {**LETTERS["letters"], "mode": "one_token", "act_on": ["corrupted"], "k": 5, "draw": 3}
    plain, chosen = settings(), settings(task_sets={"letters": other})

    first = wiring.sets_of(plain, plain.targets[0], {"letters": POOL})["letters"]
    second = wiring.sets_of(chosen, chosen.targets[0], {"letters": POOL})["letters"]

    assert first.mode is POOL.mode
    assert (second.mode, second.k, second.draw) == (ProbeMode.ONE_TOKEN, 5, 3)
    assert second.act_on == {Lane.CORRUPTED}


def test_the_digest_changes_with_any_setting_and_only_then() -> None:
    one = wiring.digest(settings())

    assert one == wiring.digest(settings())
    assert one != wiring.digest(settings(probe={"in_flight": 2}))
    assert one != wiring.digest(settings(baseline={"url": "http://baseline", "api_key": "env:KEY"}))


def test_a_configuration_s_prompts_are_read_beside_it(tmp_path: Path) -> None:
    write_prompts(tmp_path)

    sets = wiring.prompt_sets(settings(), folder=tmp_path, shipped={})

    assert len(sets["letters"].prompts) == 6


def test_prompts_that_cannot_be_used_are_told_by_their_file(tmp_path: Path) -> None:
    (tmp_path / "letters.yaml").write_text("schema: 1\nprompts: []\n")

    with pytest.raises(ConfigError, match=r"letters\.yaml"):
        wiring.prompt_sets(settings(), folder=tmp_path, shipped={})


@pytest.mark.parametrize(
    ("gateway", "kind"),
    [
        ({}, DryRun),
        ({"driver": "dry_run"}, DryRun),
        ({"driver": "verdict"}, VerdictDriver),
        ({"driver": "webhook", "url": "http://gateway/act"}, WebhookDriver),
        ({"driver": "haproxy", "socket": "admin.sock", "backend": "llm"}, HaproxyDriver),
        ({"driver": "haproxy", "socket": "haproxy:9999"}, HaproxyDriver),
        ({"driver": "litellm", "url": "http://gateway", "api_key": "env:PATH"}, LitellmDriver),
        (
            {"driver": "kubernetes", "namespace": "llm", "url": "http://gateway", "api_key": "env:PATH"},
            KubernetesDriver,
        ),
        ({"driver": "apisix", "url": "http://gateway", "api_key": "env:PATH"}, ApisixDriver),
        ({"driver": "kong", "url": "http://gateway"}, KongDriver),
    ],
)
async def test_each_driver_is_built_by_its_name(gateway: dict[str, Any], kind: type) -> None:
    async with contextlib.AsyncExitStack() as stack:
        built = await driver(settings(gateway=gateway), stack, tools(), isolated=lambda _: False)

        assert type(built) is kind


async def test_relative_paths_of_a_gateway_start_beside_the_configuration(tmp_path: Path) -> None:
    async with runtime_socket(tmp_path, a=8) as played, contextlib.AsyncExitStack() as stack:
        gateway = {"driver": "haproxy", "socket": played.path.name, "backend": "llm"}
        built = await driver(settings(gateway=gateway), stack, tools(), isolated=lambda _: False, folder=tmp_path)

        assert await built.observe(order(node="a")) is Seen.ISOLATED


async def test_a_gateway_s_file_is_written_by_template_and_commands_of_its_settings(tmp_path: Path) -> None:
    (tmp_path / "x.j2").write_text("{% for one in targets %}{{ one.gateway_name }} {{ one.isolated }}\n{% endfor %}")
    gateway = {"driver": "file", "path": "x", "template": "x.j2", "validate_command": ["grep", "-q", "http", "x"]}
    gateway |= {"reload_command": ["cp", "x", "taken over"]}
    given = settings(gateway=gateway, pools={"chat": {"mode": "enforce", "max_isolated": "50%"}})
    async with contextlib.AsyncExitStack() as stack:
        built = await driver(given, stack, tools(), isolated=lambda _: False, folder=tmp_path)
        await built.call(order(target="a"))

    assert type(built) is FileDriver
    assert (tmp_path / "taken over").read_text() == "http://a True\nhttp://b False\n"


async def test_a_gateway_s_file_that_is_not_ours_is_told_when_the_daemon_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "x.j2").write_text("{{ isolated }}")
    (tmp_path / "x").write_text("by hand")
    gateway = {"driver": "file", "path": "x", "template": "x.j2"}
    async with contextlib.AsyncExitStack() as stack:
        await driver(settings(gateway=gateway), stack, tools(), isolated=lambda _: False, folder=tmp_path)

    (line,) = [one.msg for one in caplog.records if isinstance(one.msg, dict)]
    assert line["event"] == "nothing can be isolated as things are"
    assert "is not what quantwatch wrote" in line["reason"]


ENVOY = {"envoy_admin": "http://envoy", "envoy_cluster": "llm"}


@pytest.mark.parametrize(("more", "kind"), [({}, FileDriver), (ENVOY, EnvoyFile)])
async def test_envoy_has_the_last_word_where_it_is_named(more: dict[str, str], kind: type, tmp_path: Path) -> None:
    (tmp_path / "x.j2").write_text("{{ isolated }}")
    gateway = {"driver": "file", "path": "x", "template": "x.j2", **more}
    async with contextlib.AsyncExitStack() as stack:
        built = await driver(settings(gateway=gateway), stack, tools(), isolated=lambda _: False, folder=tmp_path)

    assert type(built) is kind


async def test_outside_of_a_pod_kubernetes_says_which_token_is_missing() -> None:
    given = settings(gateway={"driver": "kubernetes", "namespace": "llm", "service": "vllm"})
    async with contextlib.AsyncExitStack() as stack:
        with pytest.raises(InputError, match=r"file /var/run/secrets/.*/serviceaccount/token cannot be read"):
            await driver(given, stack, tools(), isolated=lambda _: False)


KEYS = [
    ({"driver": "litellm", "url": "http://gateway", "api_key": "env:GATEWAY_KEY"}, "authorization", "Bearer k"),
    ({"driver": "apisix", "url": "http://gateway", "api_key": "env:GATEWAY_KEY", "upstream": "1"}, "x-api-key", "k"),
    ({"driver": "kong", "url": "http://gateway", "api_key": "env:GATEWAY_KEY"}, "kong-admin-token", "k"),
    (
        {"driver": "kubernetes", "namespace": "llm", "url": "http://gateway", "api_key": "env:GATEWAY_KEY"},
        "authorization",
        "Bearer k",
    ),
]


@pytest.mark.parametrize(("gateway", "header", "value"), KEYS)
async def test_a_key_goes_where_the_gateway_looks_for_it_and_is_read_anew(
    gateway: dict[str, str], header: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads: list[str] = []

    def hear(request: httpx.Request) -> httpx.Response:
        heads.append(request.headers[header])
        return httpx.Response(503)

    monkeypatch.setenv("GATEWAY_KEY", "k")
    heard = Tools(FakeClock(), Random(1), httpx.MockTransport(hear))
    async with contextlib.AsyncExitStack() as stack:
        built = await driver(settings(gateway=gateway), stack, heard, isolated=lambda _: False)
        await built.observe(order(node="llm:pod" if gateway["driver"] == "kubernetes" else "llm/a:1"))
        monkeypatch.setenv("GATEWAY_KEY", "k2")
        await built.observe(order(node="llm:pod" if gateway["driver"] == "kubernetes" else "llm/a:1"))

    assert heads == [value, f"{value}2"]


async def test_a_package_s_driver_is_made_and_its_connections_close(tmp_path: Path) -> None:
    text = """
from quantwatch.act.contract import Abilities, Seen

class Lamp:
    abilities = Abilities(reads_back=True, proven=True, calls=True)
    def __init__(self, options, outside):
        self.link, self.folder = outside.link(options["url"], headers={"X": "1"}), outside.folder
    async def call(self, order):
        return str((await self.link.get("/lamp")).status)
    async def observe(self, order):
        return Seen.UNKNOWN
"""
    (tmp_path / "site").mkdir()
    install(tmp_path / "site", "lamp", "lamp_module", text, lamp="lamp_module:Lamp")
    network = Closing(lamp=TinyNode())
    with on_the_path(tmp_path / "site"):
        given = settings(gateway={"driver": "lamp", "options": {"url": "http://lamp"}})
        async with contextlib.AsyncExitStack() as stack:
            built = await driver(given, stack, Tools(FakeClock(), Random(1), network), isolated=lambda _: False)
            assert await built.call(order()) == "404"
    assert network.closed == 1


async def test_a_gateway_s_secret_that_is_missing_is_told_by_its_place() -> None:
    gateway = {"driver": "webhook", "url": "http://gateway/act", "signing_secret": "env:NO_SUCH_SECRET"}
    async with contextlib.AsyncExitStack() as stack:
        with pytest.raises(InputError, match="NO_SUCH_SECRET"):
            await driver(settings(gateway=gateway), stack, tools(), isolated=lambda _: False)


async def generation(folder: Path, given: Settings, with_: Tools) -> Any:
    write_prompts(folder)
    return await wiring.generation(
        given,
        wiring.prompt_sets(given, folder=folder, shipped={}),
        tools=with_,
        yardstick=Yardstick(LookingShelf(folder / "q.db"), with_.clock),
        cache=folder / "cache",
        isolated=lambda _: False,
    )


async def test_a_generation_has_every_target_with_a_prober_of_its_own_and_hears_of_its_requests(tmp_path: Path) -> None:
    heard: list[tuple[str, str, float, str | None]] = []
    built = await generation(tmp_path, settings(), tools(heard, baseline=TinyNode(), a=node()))

    await built.watchlist.targets["a"].prober.identify()
    await built.watchlist.baseline.identify()

    assert set(built.watchlist.targets) == {"a", "b"}
    assert {(role, name) for role, name, _, _ in heard} == {("target", "a"), ("baseline", "baseline")}
    assert all(failure is None for *_, failure in heard)
    await built.retire()


async def test_when_a_later_target_cannot_be_built_the_earlier_ones_are_closed(tmp_path: Path) -> None:
    network = Closing(baseline=TinyNode(), a=node())
    broken = settings(targets=[target("a"), target("b", api_key="env:NO_SUCH_KEY")])

    with pytest.raises(InputError, match="NO_SUCH_KEY"):
        await generation(tmp_path, broken, Tools(FakeClock(), Random(1), network))

    assert network.closed == 1


async def test_a_retired_generation_closes_once_its_last_run_has_ended(tmp_path: Path) -> None:
    network = Closing(baseline=TinyNode(), a=node(), b=node())
    built = await generation(tmp_path, settings(), Tools(FakeClock(), Random(1), network))
    built.users += 1

    await built.retire()
    while_used = network.closed
    await built.leave()

    assert while_used == 0
    assert network.closed == 3


class Closing(Network):
    """A network that counts whose connections were closed."""

    def __init__(self, **nodes: TinyNode) -> None:
        super().__init__(**nodes)
        self.closed = 0

    async def aclose(self) -> None:
        self.closed += 1


def test_what_a_driver_can_do_is_known_without_making_it() -> None:
    assert set(MAKERS) == set(SHIPPED) == {*KNOWN, "webhook"}
    assert all(abilities_of(name, state_url=True) for name in MAKERS)
