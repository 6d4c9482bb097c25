"""Marked requests through a gateway: what they tell, what they do not, and what an order makes of it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import httpx
import pytest

from quantwatch.act.carry_out import LOOKS, NOES, carry_out
from quantwatch.act.contract import Seen
from quantwatch.act.traffic import MARK, Met, Probed, Question, TrafficProbe, Word, names_of
from quantwatch.act.verdict import VerdictDriver
from quantwatch.flow.decision import Action, Intent, Order, Outcome, Result
from quantwatch.net import Endpoint, Limits, Link
from support.builders import FakeClock
from support.gateway import MemoryLedger, order

HEADER = "X-Served-By"
NAMES = {
    "int4-a": names_of("int4-a", "llm/a", "http://10.0.0.1:8000"),
    "int4-b": names_of("int4-b", None, "http://10.0.0.2:8000/v1"),
    "baseline": names_of("baseline", "fp16", "http://10.0.0.3:8000"),
}
Answered = Callable[[httpx.Request], httpx.Response]


def by(*names: str | None, status: int = 200) -> Answered:
    """Answers that name who gave them, one after another and again from the first."""
    rest: list[str | None] = []

    def answer(_: httpx.Request) -> httpx.Response:
        rest.extend(names if not rest else ())
        name = rest.pop(0)
        return httpx.Response(status, json={}, headers={} if name is None else {HEADER: name})

    return answer


async def told(answer: Answered, *, requests: int = 4, seen: list[httpx.Request] | None = None) -> Word:
    def keep(request: httpx.Request) -> httpx.Response:
        if seen is not None:
            seen.append(request)
        return answer(request)

    limits = Limits(connect_seconds=1, total_seconds=1, attempts=1)
    async with Link(
        Endpoint("gateway (traffic)", "http://gateway"), limits, transport=httpx.MockTransport(keep)
    ) as link:
        probe = TrafficProbe(link, Question("llama", HEADER, requests=requests), NAMES)
        return await probe.ask(order(node="llm/a"))


async def test_every_request_is_marked_tiny_and_on_a_connection_of_its_own() -> None:
    seen: list[httpx.Request] = []
    word = await told(by("b.example", "10.0.0.2:8000"), seen=seen)
    assert word.met is Met.UNKNOWN  # the first name is nobody's
    await told(by("int4-b"), seen=(seen := []))

    assert len(seen) == 4
    for one in seen:
        body = json.loads(one.content)
        assert (one.method, one.url.path) == ("POST", "/v1/completions")
        assert (one.headers[MARK], one.headers["connection"]) == (order().decision, "close")
        assert (body["model"], body["max_tokens"], body["user"]) == ("llama", 1, "quantwatch-probe")


@pytest.mark.parametrize("name", ["a", "llm/a", "LLM/A", "int4-a", "10.0.0.1:8000", "http://10.0.0.1:8000"])
async def test_an_answer_of_the_isolated_node_ends_the_asking(name: str) -> None:
    seen: list[httpx.Request] = []
    word = await told(by("int4-b", name), seen=seen)

    assert (word.met, len(seen)) == (Met.NODE, 2)
    assert word.said == f"marked request 2 of 4 was answered by {name}"


async def test_an_error_of_the_isolated_node_is_an_answer_of_it() -> None:
    assert (await told(by("int4-a", status=500))).met is Met.NODE


async def test_a_gateway_that_tried_the_isolated_node_first_has_sent_to_it() -> None:
    assert (await told(by("10.0.0.1:8000, 10.0.0.2:8000"))).met is Met.NODE


@pytest.mark.parametrize("names", [("int4-b",), ("fp16", "10.0.0.2:8000"), ("baseline", "http://10.0.0.2:8000/v1")])
async def test_answers_of_others_are_told_with_their_number(names: tuple[str, ...]) -> None:
    word = await told(by(*names))
    assert word == Word(Met.OTHERS, "4 marked requests were answered by others")


NOTHING: Sequence[tuple[Answered, str]] = [
    (by(None), "no header X-Served-By in the answer"),
    (by("stranger"), "'stranger' answered, which names no single target"),
    (by("int4-b", "stranger"), "'stranger' answered"),
    (by("int4-b, stranger"), "names no single target"),
    (by(""), "names no single target"),
    (by(None, status=503), "the gateway answered 503"),
    (by("int4-b", status=404), "'int4-b' answered 404"),
]


@pytest.mark.parametrize(("answer", "said"), NOTHING)
async def test_what_does_not_tell_is_unknown(answer: Answered, said: str) -> None:
    word = await told(answer)
    assert word.met is Met.UNKNOWN
    assert said in word.said


@pytest.mark.parametrize("fault", [httpx.ConnectError("refused"), httpx.ReadTimeout(""), httpx.ReadError("reset")])
async def test_a_gateway_that_does_not_answer_is_asked_once_and_tells_nothing(fault: httpx.TransportError) -> None:
    seen: list[httpx.Request] = []

    def fails(_: httpx.Request) -> httpx.Response:
        raise fault

    word = await told(fails, seen=seen)
    assert (word.met, len(seen)) == (Met.UNKNOWN, 1)
    assert word.said.startswith("marked requests tell nothing: ")


def test_a_name_that_two_targets_share_is_nobodys() -> None:
    assert names_of("x", "llama", "http://1") & names_of("y", "llama", "http://2") == {"llama"}


async def test_a_shared_name_tells_nothing() -> None:
    names = {"int4-a": names_of("int4-a", "m", "http://1"), "int4-b": names_of("int4-b", "m", "http://2")}
    transport = httpx.MockTransport(by("m"))
    async with Link(Endpoint("gateway", "http://gateway"), Limits(attempts=1), transport=transport) as link:
        word = await TrafficProbe(link, Question("llama", HEADER), names).ask(order())
    assert word.met is Met.UNKNOWN


def test_names_of_a_node_that_stands_in_several_backends() -> None:
    assert names_of("n", "llm/a, emb/a2", "http://h:1/") == {"n", "llm/a", "emb/a2", "a", "a2", "http://h:1", "h:1"}


@dataclass(slots=True)
class Says:
    """Traffic that meets whom it is told; the last word stands."""

    words: list[Met]
    asked: list[Order] = field(default_factory=list)

    async def ask(self, order: Order) -> Word:
        """Give the next word."""
        self.asked.append(order)
        met = self.words.pop(0) if len(self.words) > 1 else self.words[0]
        return Word(met, f"the traffic says {met}")


class Blind(VerdictDriver):
    """A driver that cannot be read back."""

    abilities = VerdictDriver.abilities.__class__(reads_back=False, proven=False, calls=True)


async def ended(
    says: Says, *, action: Action = Action.ISOLATE, stands: bool | None = None, blind: bool = False, attempts: int = 0
) -> tuple[Outcome, FakeClock]:
    clock = FakeClock()
    isolated = (action is Action.ISOLATE) if stands is None else stands
    driver = (Blind if blind else VerdictDriver)(lambda _: isolated)
    outcome = await carry_out(
        Intent(order(action), clock.now(), attempts),
        Probed(driver, says),
        MemoryLedger(attempts=attempts),
        clock,
        give_up_seconds=3600.0,
        wanted=lambda: None,
        tell=lambda _: None,
    )
    return outcome, clock


@pytest.mark.parametrize("met", [Met.OTHERS, Met.UNKNOWN])
@pytest.mark.parametrize("blind", [False, True])
async def test_only_what_was_read_back_is_verified_whatever_the_traffic_says(met: Met, blind: bool) -> None:
    outcome, _ = await ended(says := Says([met]), blind=blind)

    assert outcome.result is (Result.ACCEPTED if blind else Result.VERIFIED)
    assert outcome.detail.endswith(f"; the traffic says {met}")
    assert (len(says.asked), outcome.doubt) == (1, False)


@pytest.mark.parametrize("blind", [False, True])
async def test_a_node_that_still_answers_contradicts_after_some_looks(blind: bool) -> None:
    outcome, clock = await ended(says := Says([Met.NODE]), blind=blind)

    assert (outcome.result, outcome.doubt) == (Result.CONTRADICTED, True)
    assert outcome.detail.endswith(", but the traffic says node")
    assert len(says.asked) == NOES
    assert clock.monotonic() == pytest.approx(FakeClock().monotonic() + sum(LOOKS[: NOES - 1]))


async def test_a_gateway_that_takes_a_moment_is_not_contradicted() -> None:
    outcome, _ = await ended(says := Says([Met.NODE, Met.NODE, Met.OTHERS]))

    assert (outcome.result, len(says.asked)) == (Result.VERIFIED, 3)


async def test_an_isolation_of_an_earlier_life_is_held_against_the_traffic_too() -> None:
    outcome, _ = await ended(Says([Met.NODE]), attempts=1)

    assert outcome.result is Result.CONTRADICTED
    assert outcome.detail.startswith("an earlier call took effect")


async def test_a_state_that_says_no_is_contradicted_without_traffic() -> None:
    outcome, _ = await ended(says := Says([Met.OTHERS]), stands=False)

    assert (outcome.result, says.asked) == (Result.CONTRADICTED, [])


async def test_a_release_asks_nothing() -> None:
    outcome, _ = await ended(says := Says([Met.NODE]), action=Action.RELEASE)

    assert (outcome.result, says.asked) == (Result.VERIFIED, [])


async def test_a_driver_beside_its_traffic_is_the_driver() -> None:
    driver = VerdictDriver(lambda _: True)
    both = Probed(driver, None)

    assert (both.name, both.abilities) == (driver.name, driver.abilities)
    assert await both.observe(order()) is Seen.ISOLATED
    assert await both.call(order()) == await driver.call(order())
