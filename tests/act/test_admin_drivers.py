"""LiteLLM, APISIX and Kong as their admin APIs answer: what they lie about, refuse and cannot do is never a success."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from quantwatch.act.admin_api import AdminApi
from quantwatch.act.apisix import ADVICE as APISIX_ADVICE
from quantwatch.act.apisix import ApisixDriver
from quantwatch.act.carry_out import carry_out
from quantwatch.act.contract import MemoryNotes, Notes, Seen, Unanswered
from quantwatch.act.kong import ADVICE as KONG_ADVICE
from quantwatch.act.kong import KongDriver
from quantwatch.act.litellm import ADVICE as LITELLM_ADVICE
from quantwatch.act.litellm import LitellmDriver
from quantwatch.act.switched import Switched
from quantwatch.errors import GatewayError, GatewayRefused, InputError, StoreError
from quantwatch.flow.decision import Action, Intent, Order, Outcome, Result
from support.admin_fakes import FakeApisix, FakeKong, FakeLitellm
from support.builders import FakeClock
from support.gateway import MemoryLedger, order

KEY = "sk-admin-key"


@dataclass
class Kind:
    """A gateway of these tests. node: what it calls the node; other: the only one beside it.

    out: whether one is out there. take_out: somebody takes one out by hand.
    """

    fake: Callable[[], Any]
    made: Callable[[AdminApi, Notes], Switched]
    advice: Mapping[int, str]
    header: tuple[str, str]
    node: str
    other: str
    out: Callable[[Any, str], bool]
    take_out: Callable[[Any, str], None]


def block(fake: FakeLitellm, name: str) -> None:
    fake.deployments[name] = (fake.deployments[name][0], True)


def weigh_apisix(fake: FakeApisix, name: str) -> None:
    fake.nodes[name] = 0


def weigh_kong(fake: FakeKong, name: str) -> None:
    fake.weights[name] = 0


KINDS = {
    "litellm": Kind(
        FakeLitellm,
        lambda api, notes: LitellmDriver(api, notes=notes),
        LITELLM_ADVICE,
        ("Authorization", f"Bearer {KEY}"),
        "a",
        "b",
        lambda fake, name: bool(fake.deployments[name][1]),
        block,
    ),
    "apisix": Kind(
        FakeApisix,
        lambda api, notes: ApisixDriver(api, notes=notes, upstream="1"),
        APISIX_ADVICE,
        ("X-API-KEY", KEY),
        "node-a:8000",
        "node-b:8000",
        lambda fake, name: bool(fake.nodes[name] == 0),
        weigh_apisix,
    ),
    "kong": Kind(
        FakeKong,
        lambda api, notes: KongDriver(api, notes=notes, upstream="llm"),
        KONG_ADVICE,
        ("Kong-Admin-Token", KEY),
        "node-a:8000",
        "node-b:8000",
        lambda fake, name: bool(fake.weights[name] == 0),
        weigh_kong,
    ),
}


@dataclass
class Bench:
    """A driver before its gateway, and everything that it keeps."""

    kind: Kind
    fake: Any
    driver: Switched
    notes: MemoryNotes = field(default_factory=MemoryNotes)

    def order(self, action: Action = Action.ISOLATE, **changes: Any) -> Order:
        """An order for the node."""
        return order(action, **{"node": self.kind.node, **changes})

    @property
    def out(self) -> bool:
        """Whether the gateway has the node out."""
        return self.kind.out(self.fake, self.kind.node)

    async def carried(self, action: Action = Action.ISOLATE, *, attempts: int = 0, **changes: Any) -> Outcome:
        """An order carried out as the daemon does it, for ten minutes at most."""
        clock = FakeClock()
        return await carry_out(
            Intent(self.order(action, **changes), clock.now(), attempts),
            self.driver,
            MemoryLedger(attempts=attempts),
            clock,
            give_up_seconds=600,
            wanted=lambda: None,
            tell=lambda _: None,
        )


@asynccontextmanager
async def bench_of(name: str) -> AsyncIterator[Bench]:
    kind, notes = KINDS[name], MemoryNotes()
    fake = kind.fake()
    fake.key = kind.header
    async with fake.link() as link:
        api = fake.api(link, kind.advice, **dict([kind.header]))
        yield Bench(kind, fake, kind.made(api, notes), notes)


@pytest.fixture(params=KINDS)
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    async with bench_of(request.param) as made:
        yield made


@pytest.fixture
async def litellm() -> AsyncIterator[Bench]:
    async with bench_of("litellm") as made:
        yield made


@pytest.fixture
async def apisix() -> AsyncIterator[Bench]:
    async with bench_of("apisix") as made:
        yield made


@pytest.fixture
async def kong() -> AsyncIterator[Bench]:
    async with bench_of("kong") as made:
        yield made


def answers(status: int, body: Any = None, **headers: str) -> Callable[[], httpx.Response]:
    return lambda: httpx.Response(status, json=body, headers=headers)


async def test_a_node_goes_out_and_comes_back_and_both_are_read_back(bench: Bench) -> None:
    out = await bench.carried()
    assert (out.result, out.attempts, bench.out) == (Result.VERIFIED, 1, True)
    assert not bench.kind.out(bench.fake, bench.kind.other)

    back = await bench.carried(Action.RELEASE)
    assert (back.result, back.attempts, bench.out) == (Result.VERIFIED, 1, False)


async def test_a_yes_without_effect_is_contradicted(bench: Bench) -> None:
    bench.fake.deaf = True
    outcome = await bench.carried()

    assert outcome.result is Result.CONTRADICTED
    assert outcome.doubt


@pytest.mark.parametrize("status", [500, 502, 503, 429, 408])
async def test_trouble_of_the_gateway_is_tried_again_and_then_reported(bench: Bench, status: int) -> None:
    bench.fake.answer = answers(status, {"message": "busy"})
    outcome = await bench.carried()

    assert outcome.result is Result.FAILED
    assert outcome.attempts > 5
    assert f"answered {status} (busy)" in outcome.detail
    assert not bench.out


@pytest.mark.parametrize(
    ("status", "advice"), [(401, "api_key"), (403, "api_key"), (404, "gateway"), (400, "Look at|holds")]
)
async def test_a_no_is_for_a_person_and_says_what_to_look_at(bench: Bench, status: int, advice: str) -> None:
    bench.fake.answer = answers(status, {"error": {"message": "not\n you."}})
    with pytest.raises(GatewayRefused, match=rf"answered {status} \(not you\)\. .*({advice})"):
        await bench.driver.call(bench.order())


async def test_a_wrong_key_sees_nothing_and_is_refused(bench: Bench) -> None:
    bench.fake.key = ("Authorization", "another")
    assert await bench.driver.observe(bench.order()) is Seen.UNKNOWN
    with pytest.raises(GatewayRefused, match=r"answered 401 \(Unauthorized\)\. Look at gateway\.api_key"):
        await bench.driver.call(bench.order())
    assert bench.fake.changes == []


async def test_no_error_tells_the_key(bench: Bench) -> None:
    bench.fake.answer = lambda: httpx.Response(307, headers={"Location": f"/elsewhere?key={KEY}"})
    with pytest.raises(GatewayRefused, match="redirects to") as caught:
        await bench.driver.call(bench.order())
    assert KEY not in str(caught.value)


async def test_a_gateway_that_repeats_the_key_is_quoted_without_it(bench: Bench) -> None:
    bench.fake.answer = answers(401, {"error": {"message": f"Invalid token. Received = {KEY}\x1b[31m, sorry."}})
    with pytest.raises(GatewayRefused, match=r"answered 401 \(Invalid token\. Received = \.\.\. \[31m, sorry\)"):
        await bench.driver.call(bench.order())


async def test_what_is_too_long_is_cut_after_the_key_was_hidden(bench: Bench) -> None:
    bench.fake.answer = answers(500, {"message": "x" * 190 + KEY + "y" * 9000})
    with pytest.raises(Unanswered, match=r"^gateway answered 500 \(x{190}\.\.\.y{7}\)$"):
        await bench.driver.call(bench.order())


@pytest.mark.parametrize("body", [[], {"message": 5}, {"detail": [{"msg": "no"}]}, "no", {}])
async def test_words_that_are_none_are_left_out(bench: Bench, body: Any) -> None:
    bench.fake.answer = answers(500, body)
    with pytest.raises(Unanswered, match=r"^gateway answered 500( \(no\))?$"):
        await bench.driver.call(bench.order())


async def test_a_key_that_cannot_be_had_any_more_sends_nothing(bench: Bench) -> None:
    def gone() -> Mapping[str, str]:
        raise InputError("the secret file /run/key is empty")

    async with bench.fake.link() as link:
        driver = bench.kind.made(AdminApi(link, FakeClock(), {}, gone), MemoryNotes())
        assert await driver.observe(bench.order()) is Seen.UNKNOWN
        with pytest.raises(GatewayRefused, match="nothing was sent, because the secret file /run/key is empty"):
            await driver.call(bench.order())


async def test_a_name_that_is_not_listed_is_refused_with_those_that_are(bench: Bench) -> None:
    stranger = "z" if bench.kind.node == "a" else "node-z:1"
    with pytest.raises(
        GatewayRefused, match=rf"does not list {stranger}, so nothing was done\. It lists: {bench.kind.node}"
    ):
        await bench.driver.call(bench.order(node=stranger))
    assert await bench.driver.observe(bench.order(node=stranger)) is Seen.UNKNOWN
    assert bench.fake.changes == []


async def test_the_last_one_stays(bench: Bench) -> None:
    bench.kind.take_out(bench.fake, bench.kind.other)
    outcome = await bench.carried()

    assert outcome.result is Result.REFUSED
    assert (
        "is the last one at gateway that takes its requests (1 more are listed, none of which takes any)"
        in outcome.detail
    )
    assert not bench.out


async def test_what_somebody_else_switched_off_is_left_to_them(bench: Bench) -> None:
    bench.kind.take_out(bench.fake, bench.kind.node)
    with pytest.raises(GatewayRefused, match="switched off already, and not by quantwatch"):
        await bench.driver.call(bench.order())
    assert bench.fake.changes == []


async def test_a_repeat_is_said_to_be_done_and_sends_nothing(bench: Bench) -> None:
    for action in Action:
        await bench.driver.call(bench.order(action))
        sent = len(bench.fake.changes)
        assert "already" in await bench.driver.call(bench.order(action))
        assert len(bench.fake.changes) == sent


async def test_an_order_of_an_earlier_life_is_verified_without_another_call(bench: Bench) -> None:
    await bench.driver.call(bench.order())
    outcome = await bench.carried(attempts=1)
    assert (outcome.result, outcome.attempts) == (Result.VERIFIED, 1)


async def test_after_a_return_a_hand_that_switches_off_is_respected_again(bench: Bench) -> None:
    for action in Action:
        await bench.driver.call(bench.order(action))
    bench.kind.take_out(bench.fake, bench.kind.node)
    with pytest.raises(GatewayRefused, match="not by quantwatch"):
        await bench.driver.call(bench.order())


async def test_silence_before_the_call_has_done_nothing_and_after_it_may_have(bench: Bench) -> None:
    def silent() -> httpx.Response:
        raise httpx.ReadTimeout("")

    bench.fake.answer = silent
    with pytest.raises(Unanswered) as after:
        await bench.driver.call(bench.order())
    bench.fake.answer, bench.fake.reply = None, silent
    with pytest.raises(Unanswered) as before:
        await bench.driver.call(bench.order())

    assert (after.value.arrived, before.value.arrived) == (True, False)


async def test_a_retry_after_is_heeded(bench: Bench) -> None:
    bench.fake.reply = answers(503, None, **{"Retry-After": "9"})
    with pytest.raises(Unanswered) as caught:
        await bench.driver.call(bench.order())
    assert (caught.value.retry_after, caught.value.arrived) == (9, False)


UNREADABLE: list[Any] = [
    None,
    [],
    {},
    {"data": None, "value": None},
    {"data": [None], "value": {"nodes": [None]}},
    {"data": [{}], "value": {"nodes": [{"host": 5, "weight": 1}]}},
    {"data": [{"model_name": "llama", "model_info": {}, "target": "x"}], "value": {"nodes": {"x": "1"}}},
    {
        "data": [{"model_name": 5, "model_info": {"id": "a"}, "target": "x", "weight": True}],
        "value": {"nodes": {"x": True}},
    },
    {
        "data": [{"model_name": "m", "model_info": {"id": "a", "blocked": "no"}, "target": 5, "weight": 1}],
        "value": {"nodes": [{"host": "node-a", "port": "8000", "weight": 1}]},
    },
    {"data": [{"model_info": {"id": "a"}, "target": "x", "weight": -1}], "value": {"nodes": {"x": -1}}},
    {"node": None},
]


@pytest.mark.parametrize("body", UNREADABLE)
async def test_a_list_that_cannot_be_read_is_unknown_and_nothing_is_sent(bench: Bench, body: Any) -> None:
    bench.fake.reply = answers(200, body)
    assert await bench.driver.observe(bench.order()) is Seen.UNKNOWN
    with pytest.raises(GatewayRefused):
        await bench.driver.call(bench.order())
    assert bench.fake.changes == []


@pytest.mark.parametrize("text", ["", "<html>", "[" * 50_000])
async def test_what_is_no_json_is_refused(bench: Bench, text: str) -> None:
    bench.fake.reply = lambda: httpx.Response(200, text=text)
    with pytest.raises(GatewayRefused, match="what is no JSON"):
        await bench.driver.call(bench.order())


async def test_a_refusal_without_words_is_told_by_its_number(bench: Bench) -> None:
    bench.fake.answer = lambda: httpx.Response(418, text="[" * 50_000)
    with pytest.raises(GatewayRefused, match=r"gateway answered 418\. "):
        await bench.driver.call(bench.order())


class Full(MemoryNotes):
    """A store that cannot be written."""

    async def keep(self, key: str, text: str) -> None:
        raise StoreError(f"the disk is full, and {key} is not {text!r} now")


async def test_nothing_goes_out_that_could_not_be_written_down(bench: Bench) -> None:
    async with bench.fake.link() as link:
        api = bench.fake.api(link, {}, **dict([bench.kind.header]))
        driver = bench.kind.made(api, Full())
        with pytest.raises(Unanswered, match="nothing was sent") as caught:
            await driver.call(bench.order())
        assert (bench.fake.changes, caught.value.arrived) == ([], False)

        bench.kind.take_out(bench.fake, bench.kind.node)
        assert await driver.call(bench.order(Action.RELEASE))
        assert not bench.out


async def test_a_person_can_do_it_in_a_shell(bench: Bench) -> None:
    made: Any = bench.driver
    for action in Action:
        line = await made.by_hand(bench.order(action))
        assert line.startswith("curl -H '")
        assert "http://gateway/" in line
        assert KEY not in line


# LiteLLM


async def test_litellm_lists_its_deployments(litellm: Bench) -> None:
    assert isinstance(litellm.driver, LitellmDriver)
    assert await litellm.driver.names() == ("a", "b", "c")


async def test_litellm_is_asked_as_documented(litellm: Bench) -> None:
    for action in Action:
        await litellm.driver.call(litellm.order(action))

    assert litellm.fake.changes == [
        ("POST", "/model/block", {"model_id": "a"}),
        ("POST", "/model/unblock", {"model_id": "a"}),
    ]
    assert litellm.fake.heads[0]["authorization"] == f"Bearer {KEY}"


async def test_without_a_database_litellm_is_tried_again_and_never_done(litellm: Bench) -> None:
    litellm.fake.database = False
    outcome = await litellm.carried()

    assert outcome.result is Result.FAILED
    assert outcome.attempts > 5
    assert not outcome.doubt
    assert "answered 500 (DB not connected" in outcome.detail
    assert "is DATABASE_URL set, and up?" in outcome.detail


async def test_a_deployment_of_the_file_cannot_be_blocked_and_the_cure_is_told(litellm: Bench) -> None:
    litellm.fake.from_file = ("a",)
    outcome = await litellm.carried()

    assert outcome.result is Result.REFUSED
    assert "answered 400 (Cannot edit config-based model" in outcome.detail
    assert "set general_settings.store_model_in_db and add the deployment by /model/new" in outcome.detail


async def test_another_model_s_deployment_does_not_stand_in(litellm: Bench) -> None:
    with pytest.raises(GatewayRefused, match="c is the last one at gateway"):
        await litellm.driver.call(order(node="c"))


async def test_a_wildcard_that_goes_on_when_blocked_is_refused(litellm: Bench) -> None:
    litellm.fake.deployments |= {"w": ("openai/*", False), "v": ("openai/*", False)}
    with pytest.raises(GatewayRefused, match=r"serves the wildcard openai/\*, which LiteLLM goes on using"):
        await litellm.driver.call(order(node="w"))


async def test_a_wildcard_that_somebody_blocked_can_come_back(litellm: Bench) -> None:
    litellm.fake.deployments |= {"w": ("openai/*", True)}
    await litellm.driver.call(order(Action.RELEASE, node="w"))
    assert litellm.fake.deployments["w"] == ("openai/*", False)


async def test_a_deployment_under_two_names_is_out_when_both_are(litellm: Bench) -> None:
    rows = [{"model_name": name, "model_info": {"id": "a", "blocked": True}} for name in ("llama", "alias")]
    half_out = [rows[0], {**rows[1], "model_info": {"id": "a", "blocked": False}}]
    litellm.fake.reply = answers(200, {"data": half_out})
    half = await litellm.driver.observe(litellm.order())
    litellm.fake.reply = answers(200, {"data": rows})
    assert (half, await litellm.driver.observe(litellm.order())) == (Seen.ROUTABLE, Seen.ISOLATED)


async def test_an_older_litellm_that_shows_no_block_is_not_believed(litellm: Bench) -> None:
    rows = [{"model_name": "llama", "model_info": {"id": name}} for name in ("a", "b")]
    litellm.fake.reply = answers(200, {"data": rows})
    assert (await litellm.carried()).result is Result.CONTRADICTED


# APISIX


async def test_apisix_gets_one_weight_and_its_own_back(apisix: Bench) -> None:
    for action in Action:
        await apisix.driver.call(apisix.order(action))

    path = "/apisix/admin/upstreams/1"
    assert apisix.fake.changes == [
        ("PATCH", path, {"nodes": {"node-a:8000": 0}}),
        ("PATCH", path, {"nodes": {"node-a:8000": 3}}),
    ]
    assert apisix.fake.heads[0]["x-api-key"] == KEY


@pytest.mark.parametrize("port", [{"port": 8000}, {}])
async def test_a_list_of_apisix_goes_back_whole(apisix: Bench, port: dict[str, int]) -> None:
    """A list is replaced, so whatever else stands in it must come along."""
    first = {"host": "node-a", "weight": 3, "metadata": {"zone": "a"}, **port}
    other = {"host": "node-b", "port": 8000, "weight": 2, "priority": 0}
    apisix.fake.nodes = [first, other]
    node = "node-a:8000" if port else "node-a:80"
    await apisix.driver.call(order(node=node))
    out, seen = apisix.fake.nodes, await apisix.driver.observe(order(node=node))
    await apisix.driver.call(order(Action.RELEASE, node=node))

    assert (out, seen) == ([{**first, "weight": 0}, other], Seen.ISOLATED)
    assert apisix.fake.nodes == [first, other]


async def test_a_node_of_apisix_that_only_waits_in_reserve_does_not_stand_in(apisix: Bench) -> None:
    apisix.fake.nodes = [
        {"host": "node-a", "port": 8000, "weight": 3, "priority": 0},
        {"host": "node-b", "port": 8000, "weight": 2, "priority": -1},
    ]
    with pytest.raises(GatewayRefused, match="is the last one"):
        await apisix.driver.call(apisix.order())


async def test_apisix_2_is_understood(apisix: Bench) -> None:
    apisix.fake.old = True
    assert (await apisix.carried()).result is Result.VERIFIED


async def test_nodes_that_apisix_discovers_are_not_ours_to_weigh(apisix: Bench) -> None:
    apisix.fake.reply = answers(200, {"value": {"id": "1", "service_name": "llm", "discovery_type": "nacos"}})
    with pytest.raises(GatewayRefused, match="by service discovery, which has the last word"):
        await apisix.driver.call(apisix.order())


async def test_a_quicker_hand_at_etcd_is_only_a_delay(apisix: Bench) -> None:
    """APISIX compares revisions itself, and says 503 to who comes second."""
    said = [answers(503, {"error_msg": "value changed before overwritten"})]

    def once() -> httpx.Response:
        apisix.fake.answer = None
        return said.pop()()

    apisix.fake.answer = once
    outcome = await apisix.carried()
    assert (outcome.result, outcome.attempts) == (Result.VERIFIED, 2)


async def test_a_weight_that_nobody_remembers_is_the_least_of_the_others(apisix: Bench) -> None:
    apisix.fake.nodes = {"node-a:8000": 0, "node-b:8000": 9, "node-c:8000": 4}
    await apisix.driver.call(apisix.order(Action.RELEASE))
    assert apisix.fake.nodes["node-a:8000"] == 4

    apisix.fake.nodes = {"node-a:8000": 0, "node-b:8000": 0}
    with pytest.raises(GatewayRefused, match="is not known any more, and no other node shows one"):
        await apisix.driver.call(apisix.order(Action.RELEASE))


@pytest.mark.parametrize("node", ["node-a", "1/2/node-a:8000", "http://node-a:8000", "b ad/node-a:8000", ""])
async def test_a_name_that_is_no_address_is_refused_and_unknown(apisix: Bench, node: str) -> None:
    assert await apisix.driver.observe(order(node=node)) is Seen.UNKNOWN
    with pytest.raises(GatewayRefused, match="Look at the target's gateway_name"):
        await apisix.driver.call(order(node=node))


async def test_another_upstream_is_asked_where_the_name_says_so(apisix: Bench) -> None:
    with pytest.raises(GatewayRefused, match=r"answered 404 \(Key not found\).*gateway\.upstream"):
        await apisix.driver.call(order(node="2/node-a:8000"))


# Kong


async def test_kong_gets_a_weight_and_its_own_back(kong: Bench) -> None:
    for action in Action:
        await kong.driver.call(kong.order(action))

    path = "/upstreams/llm/targets/node-a:8000"
    assert kong.fake.changes == [("PATCH", path, {"weight": 0}), ("PATCH", path, {"weight": 100})]
    assert kong.fake.heads[0]["kong-admin-token"] == KEY


async def test_what_kong_finds_ill_does_not_stand_in(kong: Bench) -> None:
    kong.fake.ill = {"node-b:8000"}
    with pytest.raises(GatewayRefused, match="is the last one"):
        await kong.driver.call(kong.order())


async def test_what_kong_finds_ill_is_neither_out_nor_back(kong: Bench) -> None:
    """A weight says nothing of a target that Kong gives no request."""
    kong.fake.ill = {"node-a:8000"}
    assert await kong.driver.observe(kong.order()) is Seen.ROUTABLE
    assert await kong.driver.observe(kong.order(Action.RELEASE)) is Seen.UNKNOWN


async def test_a_control_plane_of_kong_tells_no_health_and_weights_alone_count(kong: Bench) -> None:
    kong.fake.control_plane = True
    assert (await kong.carried()).result is Result.VERIFIED


async def test_a_kong_without_a_database_is_refused_with_the_cure(kong: Bench) -> None:
    said = "cannot update 'targets' entities when not using a database"
    kong.fake.answer = answers(405, {"message": said})
    with pytest.raises(GatewayRefused, match=r"answered 405 \(cannot update .*Without a database Kong's Admin API is"):
        await kong.driver.call(kong.order())


async def test_an_older_kong_s_history_counts_by_its_latest_row(kong: Bench) -> None:
    rows = [
        {"target": "node-a:8000", "weight": 0, "created_at": 20},
        {"target": "node-a:8000", "weight": 100, "created_at": 10},
        {"target": "node-b:8000", "weight": 100},
    ]
    kong.fake.reply = answers(200, {"data": rows})
    assert await kong.driver.observe(kong.order()) is Seen.ISOLATED


async def test_more_targets_than_one_page_are_not_guessed_at(kong: Bench) -> None:
    kong.fake.reply = answers(200, {"data": [], "next": "/upstreams/llm/targets/all?offset=x"})
    with pytest.raises(GatewayRefused, match="more than 1000 targets"):
        await kong.driver.call(kong.order())


async def test_kong_that_does_not_answer_for_health_is_asked_again(kong: Bench) -> None:
    """Who could take the traffic is not known then."""
    replies = [httpx.Response(200, json={"data": [{"target": kong.kind.node, "weight": 1}]}), httpx.Response(503)]
    kong.fake.reply = lambda: replies.pop(0)
    with pytest.raises(GatewayError) as caught:
        await kong.driver.call(kong.order())
    assert isinstance(caught.value, Unanswered)
    assert not caught.value.arrived


async def together(kind: Kind, fake: Any, *orders: Order) -> list[str | BaseException]:
    """Let orders begin together; how each has ended."""
    fake.slow = True
    async with fake.link() as link:
        driver = kind.made(fake.api(link, kind.advice), MemoryNotes())
        return await asyncio.gather(*(driver.call(one) for one in orders), return_exceptions=True)


FULL: dict[str, Any] = {
    "litellm": FakeLitellm(deployments=dict.fromkeys("abc", ("llama", False))),
    "apisix": FakeApisix(nodes={f"node-{name}:8000": 2 for name in "abc"}),
    "kong": FakeKong(weights={f"node-{name}:8000": 2 for name in "abc"}),
}


@pytest.mark.parametrize("name", FULL)
async def test_orders_that_begin_together_leave_one(name: str) -> None:
    kind, fake = KINDS[name], deepcopy(FULL[name])
    nodes = [one if name == "litellm" else f"node-{one}:8000" for one in "abc"]
    ends = await together(kind, fake, *(order(node=one, decision=f"d-{one}") for one in nodes))

    assert sum(kind.out(fake, one) for one in nodes) == 2
    (last,) = [one for one in ends if isinstance(one, BaseException)]
    assert "is the last one" in str(last)


async def test_of_two_orders_for_one_list_of_apisix_neither_undoes_the_other() -> None:
    fake = FakeApisix(nodes=[{"host": f"node-{name}", "port": 8000, "weight": 2} for name in "abc"])
    orders = [order(node=f"node-{name}:8000", decision=f"d-{name}") for name in "ab"]
    await together(KINDS["apisix"], fake, *orders)

    assert [one["weight"] for one in fake.nodes] == [0, 0, 2]
