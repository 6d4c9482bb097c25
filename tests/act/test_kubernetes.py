"""The Kubernetes driver before a stand-in API server: what it sends, and what a label alone never proves."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from quantwatch.act.admin_api import AdminApi
from quantwatch.act.carry_out import carry_out
from quantwatch.act.contract import Seen, Unanswered
from quantwatch.act.kubernetes import ADVICE, KubernetesDriver, Place
from quantwatch.errors import GatewayRefused
from quantwatch.flow.decision import Action, Intent, Order, Outcome, Result
from support.admin_fakes import LABEL, FakeKubernetes, pod
from support.builders import FakeClock
from support.gateway import MemoryLedger, order

PODS = "/api/v1/namespaces/llm/pods"
NODE = "vllm-0"


@pytest.fixture
def fake() -> FakeKubernetes:
    made = FakeKubernetes()
    made.key = ("Authorization", "Bearer token-2")
    return made


@pytest.fixture
def tokens() -> list[str]:
    """Tokens in the order in which the mounted file holds them; the last one stays."""
    return ["token-2"]


@pytest.fixture
async def driver(fake: FakeKubernetes, tokens: list[str]) -> AsyncIterator[KubernetesDriver]:
    def bearer() -> dict[str, str]:
        return {"Authorization": f"Bearer {tokens.pop(0) if len(tokens) > 1 else tokens[0]}"}

    async with fake.link() as link:
        yield KubernetesDriver(AdminApi(link, FakeClock(), ADVICE, bearer), Place("llm", "vllm", LABEL))


def wanted(action: Action = Action.ISOLATE, node: str = NODE) -> Order:
    return order(action, node=node, driver="kubernetes")


async def carried(driver: KubernetesDriver, action: Action = Action.ISOLATE, node: str = NODE) -> Outcome:
    clock = FakeClock()
    intent = Intent(wanted(action, node), clock.now(), 0)
    return await carry_out(
        intent, driver, MemoryLedger(), clock, give_up_seconds=600, wanted=lambda: None, tell=lambda _: None
    )


async def test_a_pod_leaves_and_comes_back_by_its_label(fake: FakeKubernetes, driver: KubernetesDriver) -> None:
    out = await carried(driver)
    left = dict(fake.pods[NODE]["metadata"]["annotations"])
    back = await carried(driver, Action.RELEASE)

    assert (out.result, back.result) == (Result.VERIFIED, Result.VERIFIED)
    assert left == {
        "other": "kept",
        "quantwatch.io/decision": wanted().decision,
        "quantwatch.io/reason": wanted().reason,
    }
    assert fake.pods[NODE]["metadata"]["annotations"] == {"other": "kept"}
    assert fake.pods[NODE]["metadata"]["labels"] == {"app": "vllm", LABEL: "in", "pod": NODE}


async def test_the_patch_is_strategic_and_meant_for_the_pod_that_was_seen(
    fake: FakeKubernetes, driver: KubernetesDriver
) -> None:
    await driver.call(wanted())
    ((method, path, body),) = fake.changes

    assert (method, path) == ("PATCH", f"{PODS}/{NODE}")
    assert fake.heads[0]["content-type"] == "application/strategic-merge-patch+json"
    assert (body["metadata"]["uid"], body["metadata"]["resourceVersion"]) == (f"uid of {NODE}", "7")
    assert body["metadata"]["labels"] == {LABEL: "out"}


async def test_a_pod_that_changed_meanwhile_is_looked_at_again(fake: FakeKubernetes, driver: KubernetesDriver) -> None:
    fake.stale = ["8"]
    outcome = await carried(driver)

    assert (outcome.result, outcome.attempts, outcome.doubt) == (Result.VERIFIED, 2, False)
    assert [body["metadata"]["resourceVersion"] for _, _, body in fake.changes] == ["7", "8"]


async def test_a_conflict_has_changed_nothing(fake: FakeKubernetes, driver: KubernetesDriver) -> None:
    fake.stale = ["8"]
    with pytest.raises(Unanswered, match="answered 409: pod vllm-0 changed meanwhile") as caught:
        await driver.call(wanted())
    assert not caught.value.arrived


async def test_a_label_that_leaves_the_pod_among_the_endpoints_is_contradicted(
    fake: FakeKubernetes, driver: KubernetesDriver
) -> None:
    """As when the selector was changed after it had been looked at, or a controller labels the pod again."""
    fake.answer = lambda: unselected(fake)
    outcome = await carried(driver)
    assert outcome.result is Result.CONTRADICTED


def unselected(fake: FakeKubernetes) -> httpx.Response:
    fake.selector.pop(LABEL, None)
    fake.pods[NODE]["metadata"]["labels"][LABEL] = "out"
    return httpx.Response(200, json={})


async def test_a_yes_without_effect_is_contradicted(fake: FakeKubernetes, driver: KubernetesDriver) -> None:
    fake.deaf = True
    assert (await carried(driver)).result is Result.CONTRADICTED


async def test_a_service_that_does_not_look_at_the_label_is_told_before_anything_is_sent(
    fake: FakeKubernetes, driver: KubernetesDriver
) -> None:
    fake.selector = {"app": "vllm"}
    with pytest.raises(GatewayRefused, match=f"does not select by {LABEL}=in, so a label would change nothing"):
        await driver.call(wanted())
    assert fake.changes == []


@pytest.mark.parametrize("value", [None, "yes"])
async def test_a_pod_without_the_label_is_told_what_to_do(
    value: str | None, fake: FakeKubernetes, driver: KubernetesDriver
) -> None:
    labels = fake.pods[NODE]["metadata"]["labels"]
    del labels[LABEL]
    labels |= {} if value is None else {LABEL: value}

    assert await driver.observe(wanted()) is Seen.UNKNOWN
    for action in Action:
        with pytest.raises(GatewayRefused, match="Give the pod template the label"):
            await driver.call(wanted(action))
    assert fake.changes == []


@pytest.mark.parametrize("ready", [False, True])
async def test_the_last_ready_endpoint_stays(ready: bool, fake: FakeKubernetes, driver: KubernetesDriver) -> None:
    fake.pods["vllm-1"]["ready"] = ready
    if ready:
        assert (await carried(driver)).result is Result.VERIFIED
        return
    with pytest.raises(GatewayRefused, match="is the last ready endpoint of service vllm"):
        await driver.call(wanted())
    assert fake.changes == []


async def test_of_orders_that_begin_together_one_pod_stays_though_the_endpoints_lag(
    fake: FakeKubernetes, driver: KubernetesDriver
) -> None:
    names = [f"vllm-{i}" for i in range(3)]
    fake.pods = {name: pod(name) for name in names}
    fake.lag = fake.slow = True
    ends = await asyncio.gather(*(driver.call(wanted(node=one)) for one in names), return_exceptions=True)

    assert [fake.pods[one]["metadata"]["labels"][LABEL] for one in names].count("out") == 2
    (last,) = [one for one in ends if isinstance(one, BaseException)]
    assert "is the last ready endpoint" in str(last)


async def test_an_endpoint_that_does_not_say_whether_it_is_ready_counts_as_such(
    fake: FakeKubernetes, driver: KubernetesDriver
) -> None:
    """As the API has it: `ready` left out is to be read as true."""
    fake.pods[NODE]["ready"] = None
    fake.pods[NODE]["metadata"]["labels"][LABEL] = "in"
    assert await driver.observe(wanted(Action.RELEASE)) is Seen.ROUTABLE


async def test_a_pod_that_is_not_ready_is_neither_out_nor_back(fake: FakeKubernetes, driver: KubernetesDriver) -> None:
    fake.pods[NODE]["ready"] = False
    assert await driver.observe(wanted()) is Seen.ROUTABLE
    assert await driver.observe(wanted(Action.RELEASE)) is Seen.UNKNOWN


async def test_a_pod_that_somebody_else_took_out_is_left_to_them(
    fake: FakeKubernetes, driver: KubernetesDriver
) -> None:
    fake.pods[NODE]["metadata"]["labels"][LABEL] = "out"
    with pytest.raises(GatewayRefused, match="labelled out already, and not by quantwatch"):
        await driver.call(wanted())


async def test_a_repeat_sends_nothing(fake: FakeKubernetes, driver: KubernetesDriver) -> None:
    for action in Action:
        await driver.call(wanted(action))
        assert "already" in await driver.call(wanted(action))
    assert len(fake.changes) == 2


async def test_a_pod_that_was_made_anew_is_in_traffic_again(fake: FakeKubernetes, driver: KubernetesDriver) -> None:
    await driver.call(wanted())
    fake.pods[NODE] = {**pod(NODE), "metadata": {**pod(NODE)["metadata"], "uid": "another"}}
    assert await driver.observe(wanted()) is Seen.ROUTABLE


async def test_labels_find_the_one_living_pod(fake: FakeKubernetes, driver: KubernetesDriver) -> None:
    fake.pods["old"] = pod("old", instance="a")
    fake.pods["old"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    fake.pods["ended"] = pod("ended", instance="a")
    fake.pods["ended"]["status"]["phase"] = "Failed"
    fake.pods["new"] = pod("new", instance="a")

    assert (await carried(driver, node="app=vllm,instance=a")).result is Result.VERIFIED
    assert fake.pods["new"]["metadata"]["labels"][LABEL] == "out"


@pytest.mark.parametrize(("node", "names"), [("app=vllm", "vllm-0, vllm-1"), ("app=none", "none")])
async def test_labels_that_find_no_pod_or_several_are_refused(
    node: str, names: str, fake: FakeKubernetes, driver: KubernetesDriver
) -> None:
    assert await driver.observe(wanted(node=node)) is Seen.UNKNOWN
    with pytest.raises(GatewayRefused, match=f"must find one pod, and find {names}"):
        await driver.call(wanted(node=node))
    assert fake.changes == []


STRANGERS = {
    "nobody": r'answered 404 \(pods "nobody" not found\)\. Look at gateway\.namespace',
    "other:vllm-0": "service other has no endpoints at all",
    "Not a name": "is no pod",
    "a:b:c": "is no pod",
}


@pytest.mark.parametrize(("node", "said"), STRANGERS.items())
async def test_a_name_that_finds_nothing_is_refused_and_unknown(node: str, said: str, driver: KubernetesDriver) -> None:
    assert await driver.observe(wanted(node=node)) is Seen.UNKNOWN
    with pytest.raises(GatewayRefused, match=said):
        await driver.call(wanted(node=node))


REFUSALS = {
    401: "the token of the service account",
    403: "Give the service account the rights of configs/kubernetes/driver-rbac.yaml",
    422: "Look at gateway.label and the pod",
}


@pytest.mark.parametrize(("status", "cure"), REFUSALS.items())
async def test_a_no_is_for_a_person(status: int, cure: str, fake: FakeKubernetes, driver: KubernetesDriver) -> None:
    said = 'pods "vllm-0" is forbidden: User cannot patch resource'
    fake.answer = lambda: httpx.Response(status, json={"kind": "Status", "message": said})
    with pytest.raises(GatewayRefused, match=f"is forbidden: .*{cure}"):
        await driver.call(wanted())


@pytest.mark.parametrize("status", [429, 500, 503, 504])
async def test_an_api_server_in_trouble_is_asked_again_and_then_reported(
    status: int, fake: FakeKubernetes, driver: KubernetesDriver
) -> None:
    fake.answer = lambda: httpx.Response(status)
    outcome = await carried(driver)
    assert outcome.result is Result.FAILED
    assert outcome.attempts > 5


@pytest.mark.parametrize("tokens", [["token-1", "token-2"]])
async def test_a_token_that_was_exchanged_on_disk_counts_at_once(driver: KubernetesDriver) -> None:
    with pytest.raises(GatewayRefused, match="answered 401"):
        await driver.call(wanted())
    assert (await carried(driver)).result is Result.VERIFIED


UNREADABLE: list[Any] = [None, [], {}, {"metadata": {"name": NODE}}, {"items": None}, {"items": [None]}, {"items": []}]


@pytest.mark.parametrize("body", UNREADABLE)
@pytest.mark.parametrize("node", [NODE, "app=vllm"])
async def test_what_cannot_be_read_is_unknown_and_nothing_is_sent(
    body: Any, node: str, fake: FakeKubernetes, driver: KubernetesDriver
) -> None:
    fake.reply = lambda: httpx.Response(200, json=body)
    assert await driver.observe(wanted(node=node)) is Seen.UNKNOWN
    with pytest.raises(GatewayRefused):
        await driver.call(wanted(node=node))
    assert fake.changes == []


async def test_a_person_can_do_it_in_a_shell(driver: KubernetesDriver) -> None:
    assert await driver.by_hand(wanted(Action.RELEASE)) == f"kubectl -n llm label --overwrite pod {NODE} {LABEL}=in"
    assert (
        await driver.by_hand(wanted(node="app=vllm")) == f"kubectl -n llm label --overwrite pod -l app=vllm {LABEL}=out"
    )


async def test_a_short_reason_is_kept_and_a_long_one_cut(fake: FakeKubernetes, driver: KubernetesDriver) -> None:
    await driver.call(order(node=NODE, reason="x" * 9000))
    assert fake.pods[NODE]["metadata"]["annotations"]["quantwatch.io/reason"] == "x" * 500
