"""The LiteLLM driver and the real proxy without a database: what it refuses is reported and never counts as done."""

import asyncio
import contextlib
import os
import re
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import httpx
import pytest
import yaml

from quantwatch.act.carry_out import Attempt, carry_out
from quantwatch.act.contract import Driver, Seen
from quantwatch.cli.main import main
from quantwatch.clock import SystemClock
from quantwatch.config.load import load_settings
from quantwatch.errors import GatewayRefused
from quantwatch.flow.decision import Action, Intent, Result
from quantwatch.wiring.drivers import driver
from quantwatch.wiring.tools import Tools
from support.daemons import PATIENCE, Site, free_port, site, started
from support.gateway import MemoryLedger, order
from support.real_gateways import running, wait_until
from support.receiver import Receiver, received
from support.runs import node
from support.served import served
from support.tiny_node import TinyNode

PROGRAM = os.environ.get("QUANTWATCH_LITELLM")
pytestmark = [pytest.mark.litellm, pytest.mark.skipif(PROGRAM is None, reason="no LiteLLM; see docs/gateways.md")]

KEY = "sk-quantwatch-tests-5f0c2a81d9b34e67"


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The proxy's address; it has two deployments of one model, both from its file."""
    folder, port = tmp_path_factory.mktemp("litellm"), free_port()
    params = {"model": "hosted_vllm/llama", "api_key": "none"}
    models = [
        {"model_name": "llama", "litellm_params": {**params, "api_base": url}, "model_info": {"id": id_}}
        for id_, url in (("int8-a", "http://127.0.0.1:9"), ("int8-b", "http://127.0.0.1:10"))
    ]
    (folder / "config.yaml").write_text(yaml.safe_dump({"model_list": models}))
    command = ["env", f"LITELLM_MASTER_KEY={KEY}", "LITELLM_LOCAL_MODEL_COST_MAP=True", str(PROGRAM), "--config"]
    url = f"http://127.0.0.1:{port}"
    with running([*command, "config.yaml", "--host", "127.0.0.1", "--port", str(port)], folder):

        def live() -> bool:
            with contextlib.suppress(httpx.HTTPError):
                return httpx.get(f"{url}/health/liveliness", timeout=5).status_code == 200
            return False

        wait_until(live, "LiteLLM was up")
        yield url


@pytest.fixture
def where(proxy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("LITELLM_KEY", KEY)
    gateway = {"driver": "litellm", "url": proxy, "api_key": "env:LITELLM_KEY"}
    made = site(tmp_path, "http://127.0.0.1:9", {"a": "http://127.0.0.1:1", "b": "http://127.0.0.1:2"}, gateway=gateway)
    for target in made.content["targets"]:
        target["gateway_name"] = f"int8-{target['name']}"
    return made.write()


async def made(where: Site, stack: AsyncExitStack) -> Driver:
    settings = load_settings(where.file, shipped={})
    return await driver(settings, stack, Tools(SystemClock(), Random(1)), isolated=lambda _: False)


async def test_without_a_database_500_is_tried_again_told_and_no_success(where: Site) -> None:
    told: list[Attempt] = []
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        one = await made(where, stack)
        outcome = await carry_out(
            Intent(order(node="int8-a", driver="litellm"), clock.now(), 0),
            one,
            MemoryLedger(),
            clock,
            give_up_seconds=8,
            wanted=lambda: None,
            tell=told.append,
        )
        seen = await one.observe(order(node="int8-a"))

    assert outcome.result is Result.FAILED
    assert outcome.attempts == len(told) >= 2
    assert {attempt.kind for attempt in told} == {"unavailable"}
    assert "answered 500 (DB not connected" in outcome.detail
    assert "is DATABASE_URL set, and up?" in outcome.detail
    assert not outcome.doubt
    assert seen is Seen.ROUTABLE


async def test_a_release_fares_no_better(where: Site) -> None:
    async with AsyncExitStack() as stack:
        said = await (await made(where, stack)).call(order(Action.RELEASE, node="int8-a"))
    assert "in traffic already" in said  # nothing could have been blocked


async def test_a_deployment_that_is_not_there_is_refused_with_those_that_are(where: Site) -> None:
    async with AsyncExitStack() as stack:
        with pytest.raises(GatewayRefused, match=r"does not list int8-z, .* It lists: int8-a, int8-b"):
            await (await made(where, stack)).call(order(node="int8-z"))


async def test_a_wrong_key_is_unknown_and_never_done(where: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_KEY", "sk-wrong")
    async with AsyncExitStack() as stack:
        one = await made(where, stack)
        assert await one.observe(order(node="int8-a")) is Seen.UNKNOWN
        with pytest.raises(GatewayRefused, match=r"gateway\.api_key|answered 400"):
            await one.call(order(node="int8-a"))


def test_show_tells_how_the_deployments_stand(where: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gateway", "show", "--config", str(where.file)]) == 0
    told = capsys.readouterr().out
    assert len(re.findall(r"int8-[ab]\b.*routable", told)) == 2
    assert "driver litellm: reads back; not proven" in told


async def test_the_api_is_as_the_driver_has_it(proxy: str) -> None:
    """What was read in its source: paths, the body of a call, and where an id stands."""
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(base_url=proxy, headers=headers, timeout=30) as client:
        listed, spec = await asyncio.gather(client.get("/model/info"), client.get("/openapi.json"))

    assert [one["model_info"]["id"] for one in listed.json()["data"]] == ["int8-a", "int8-b"]
    assert {"/model/block", "/model/unblock"} <= spec.json()["paths"].keys()
    assert spec.json()["components"]["schemas"]["BlockModelRequest"]["required"] == ["model_id"]


def test_the_daemon_reports_an_isolation_that_litellm_cannot_do_and_tells_people(where: Site) -> None:
    """Never a success: the node stays in traffic by the record, and whoever is told of trouble is told of this."""
    receiver = Receiver()
    with served(TinyNode()) as baseline, served(node(1.5)) as bad, served(node()) as good, received(receiver) as hook:
        content = where.content
        content["baseline"]["url"] = baseline
        content["targets"][0]["url"], content["targets"][1]["url"] = bad, good
        content["pools"] = {"chat": {"mode": "enforce", "max_isolated": "50%"}}
        content["gateway"]["give_up_after"] = "6s"
        content["notifications"] = [{"name": "team", "kind": "webhook", "url": hook}]
        limits = {"kl_mean": {"warn": 1e-4, "critical": 2e-4}}
        content["task_sets"]["letters"] |= {"k": 5, "continuation_tokens": 6, "limits": limits}
        where.write()
        with started(where) as daemon:
            daemon.ready()
            for target, done in (("b", "letters on b"), ("a", "isolate: failed")):
                asked = httpx.post(f"{where.admin}/api/v1/runs", json={"target": target}, timeout=PATIENCE)
                asked.raise_for_status()
                daemon.until(done)
            board = httpx.get(f"{where.admin}/api/v1/status", timeout=PATIENCE).json()
            daemon.wait(lambda: any("DB not connected" in str(one) for one in receiver.bodies), "told of the trouble")

    (bad_one,) = [one for one in board["targets"] if one["target"] == "a"]
    assert bad_one["routing"] != "out"
