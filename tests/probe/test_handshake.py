"""Are two servers comparable? And the one confirming probe."""

import json
from dataclasses import replace
from itertools import count
from typing import Any

import httpx
import pytest
from starlette.responses import Response

from quantwatch.errors import NodeUnreachable, OverBudget, ReplyCorrupted, ReplyInvalid
from quantwatch.flow.distribution import Distribution
from quantwatch.flow.handshake import Point, Seen
from quantwatch.flow.identity import Identity
from quantwatch.flow.prompt import ProbeMode
from quantwatch.probe.confirm import sight
from quantwatch.probe.contract import Ask
from quantwatch.probe.handshake import introduce
from quantwatch.probe.ledger import Ledger
from quantwatch.probe.obstacles import obstacles
from quantwatch.probe.tokenizers import AWKWARD, fingerprint
from support.builders import SEQUENCE, prober
from support.tiny_node import Network, TinyNode

IDENTITY = Identity("a", "http://a", "m", root="r", version="1", started=100.0, tokenizer="t")
OTHER = replace(IDENTITY, name="b", url="http://b", started=250.0)


def at(ledger: Ledger, point: Point) -> Seen:
    """What a handshake wrote down at a point."""
    return next(one for one in ledger.result("node").seen if one.point is point)


async def test_a_server_introduces_itself() -> None:
    asked = prober(Network(node=TinyNode()))

    met = await introduce(asked, k=20)

    assert met.k == 20
    assert met.identity.model == "tiny"
    assert met.identity.tokenizer is not None
    assert asked.raw_proven is True


async def test_k_is_lowered_to_the_servers_cap() -> None:
    assert (await introduce(prober(Network(node=TinyNode(cap=7))), k=20)).k == 7


async def test_a_cap_that_is_not_told_is_no_endless_loop() -> None:
    def silent(path: str) -> Response | None:
        if path != "/v1/completions":
            return None
        error = {"error": {"message": "too many", "param": "logprobs", "code": 400}}
        return Response(json.dumps(error), 400)

    with pytest.raises(ReplyInvalid, match="too many"):
        await introduce(prober(Network(node=TinyNode(replace=silent))), k=20)


async def test_a_nan_node_is_corrupted_at_the_first_numbers() -> None:
    with pytest.raises(ReplyCorrupted):
        await introduce(prober(Network(node=TinyNode(nan_on=lambda _: True))), k=20)


async def test_null_logprobs_in_the_first_reply_are_corruption() -> None:
    def edit(reply: dict[str, list[dict[str, dict[str, list[dict[str, object]]]]]]) -> object:
        row = reply["choices"][0]["logprobs"]["top_logprobs"][0]
        row[next(iter(row))] = None
        return reply

    with pytest.raises(ReplyCorrupted, match="not finite"):
        await introduce(prober(Network(node=TinyNode(edit=edit))), k=20)


async def test_logits_are_found_at_the_handshake() -> None:
    def edit(reply: dict[str, list[dict[str, dict[str, list[dict[str, float]]]]]]) -> object:
        row = reply["choices"][0]["logprobs"]["top_logprobs"][0]
        for key in row:
            row[key] += 30
        return reply

    asked = prober(Network(node=TinyNode(edit=edit)))
    with pytest.raises(ReplyInvalid, match="logits"):
        await introduce(asked, k=20)

    assert asked.raw_proven is False


@pytest.mark.parametrize("mode", ["processed_logprobs", "raw_logits", "processed_logits"])
async def test_every_other_mode_is_named_with_its_cure(mode: str) -> None:
    asked = prober(Network(node=TinyNode(mode=mode)))

    with pytest.raises(ReplyInvalid, match=f"answers {mode}, not raw_logprobs. .*--logprobs-mode raw_logprobs"):
        await introduce(asked, k=20)

    assert asked.raw_proven is False


@pytest.mark.parametrize("k", [1, 2, 20])
async def test_raw_mode_is_proven_whatever_k(k: int) -> None:
    asked = prober(Network(node=TinyNode()))

    await introduce(asked, k=k)

    assert asked.raw_proven is True


async def test_a_node_whose_numbers_never_repeat_is_not_taken_for_a_processed_mode() -> None:
    """Its noise must be measured as such; calling it a wrong mode would hide a broken node."""
    calls = count(1)

    def edit(reply: dict[str, Any]) -> Any:
        row = reply["choices"][0]["logprobs"]["top_logprobs"][0]
        factor = next(calls)
        reply["choices"][0]["logprobs"]["top_logprobs"][0] = {key: value * factor for key, value in row.items()}
        return reply

    asked = prober(Network(node=TinyNode(edit=edit)))
    ledger = Ledger()
    await introduce(asked, k=20, ledger=ledger)

    assert asked.raw_proven is False
    assert at(ledger, Point.LOGPROBS_MODE).ok is None


async def test_a_hiccup_of_the_second_probe_leaves_the_mode_open_until_the_next_handshake() -> None:
    asked_for = count()

    def hiccup(path: str) -> Response | None:
        return Response("boom", 500) if path == "/v1/completions" and next(asked_for) == 1 else None

    asked = prober(Network(node=TinyNode(replace=hiccup)))
    await introduce(asked, k=20)
    proven = asked.raw_proven
    await introduce(asked, k=20)

    assert (proven, asked.raw_proven) == (False, True)


@pytest.mark.parametrize("field", ["prompt_token_ids", "logprobs", "prompt_logprobs"])
async def test_a_missing_field_is_found_and_named(field: str) -> None:
    ledger = Ledger()

    with pytest.raises(ReplyInvalid):
        await introduce(
            prober(Network(node=TinyNode(drops=(field,)))), k=20, modes=[ProbeMode.PROMPT_SCORING], ledger=ledger
        )

    assert at(ledger, Point.FIELDS).ok is False


async def test_a_field_that_nobody_will_ask_for_may_be_missing() -> None:
    await introduce(prober(Network(node=TinyNode(drops=("prompt_logprobs",)))), k=20, modes=[ProbeMode.ONE_TOKEN])


async def test_the_vocabulary_is_learned_from_a_refusal_and_costs_nothing() -> None:
    node = TinyNode(owner="vllm", vocabulary=49152)

    met = await introduce(prober(Network(node=node)), k=20)

    assert met.identity.vocabulary == 49152
    assert [body["logit_bias"] for body in node.asked if "logit_bias" in body] == [{"2147483647": 0}]


@pytest.mark.parametrize(
    "told",
    [{"owner": None}, {"owner": "other"}, {"owner": "vllm", "version": "0.9.2"}, {"owner": "vllm", "version": "x"}],
)
async def test_the_vocabulary_is_never_asked_of_a_server_that_may_not_check(told: dict[str, Any]) -> None:
    node = TinyNode(vocabulary=49152, **told)

    met = await introduce(prober(Network(node=node)), k=20)

    assert met.identity.vocabulary is None
    assert not any("logit_bias" in body for body in node.asked)


# ------------------------------------------------------------------ what later handshakes cost


async def test_a_process_is_asked_everything_once_and_little_afterwards() -> None:
    node = TinyNode(owner="vllm", vocabulary=300)
    asked, first, second = prober(Network(node=node)), Ledger(), Ledger()

    one = await introduce(asked, k=20, modes=[ProbeMode.PROMPT_SCORING], ledger=first)
    requests = len(node.asked)
    two = await introduce(asked, k=20, modes=[ProbeMode.PROMPT_SCORING], ledger=second)

    assert one.identity == two.identity
    assert (first.tokens, second.tokens) == (3 * 17, 17)
    assert len(node.asked) - requests == 1
    assert second.complete
    assert {one.point for one in first.seen} == {one.point for one in second.seen}


async def test_the_cap_is_met_once_a_process() -> None:
    node = TinyNode(cap=7)
    asked = prober(Network(node=node))

    ks = [(await introduce(asked, k=20)).k for _ in range(3)]

    assert ks == [7, 7, 7]
    assert [body["logprobs"] for body in node.completions()].count(20) == 1


async def test_a_larger_k_than_before_is_asked_for() -> None:
    asked = prober(Network(node=TinyNode()))

    assert [(await introduce(asked, k=k)).k for k in (5, 20, 10)] == [5, 20, 10]


async def test_a_restart_between_handshakes_is_met_as_a_stranger() -> None:
    node = TinyNode()
    asked, after = prober(Network(node=node)), Ledger()
    before = await introduce(asked, k=20)
    node.started += 3600
    node.mode = "processed_logprobs"
    node.tokenizer_shift = 1

    with pytest.raises(ReplyInvalid, match="processed_logprobs"):
        await introduce(asked, k=20, ledger=after)
    node.mode = "raw_logprobs"
    met = await introduce(asked, k=20)

    assert met.identity.tokenizer != before.identity.tokenizer
    assert [one.point for one in after.seen if one.ok is False] == [Point.LOGPROBS_MODE]


async def test_a_server_that_hides_its_start_is_asked_everything_each_time() -> None:
    def hidden(path: str) -> Response | None:
        return Response("no", 404) if path == "/metrics" else None

    asked, ledger = prober(Network(node=TinyNode(replace=hidden))), Ledger()
    await introduce(asked, k=20)
    await introduce(asked, k=20, ledger=ledger)

    assert ledger.tokens == 2 * 17
    assert at(ledger, Point.ONE_SERVER).ok is None


async def test_other_ids_without_another_process_are_several_servers() -> None:
    node = TinyNode()
    asked, ledger = prober(Network(node=node)), Ledger()
    await introduce(asked, k=20)
    node.tokenizer_shift = 1

    with pytest.raises(ReplyInvalid, match="other ids than before"):
        await introduce(asked, k=20, ledger=ledger)

    assert at(ledger, Point.TOKENIZER).ok is False


async def test_each_awkward_text_has_its_turn() -> None:
    """A tokenizer that differs on a single text is found within as many handshakes as there are texts."""
    changed = "a long text"
    asked = prober(Network(node=TinyNode()))
    await introduce(asked, k=20)
    known = asked.past.known
    assert known is not None
    pieces = (known.identity.tokenizer or "").split()
    pieces[list(AWKWARD).index(changed)] = "2048:00000000"
    asked.past.known = replace(known, identity=replace(known.identity, tokenizer=" ".join(pieces)))

    async def as_often_as_there_are_texts() -> None:
        for _ in AWKWARD:
            await introduce(asked, k=20)

    with pytest.raises(ReplyInvalid, match="other ids than before"):
        await as_often_as_there_are_texts()


# ------------------------------------------------------------------ one server behind the URL


class Balanced(httpx.AsyncBaseTransport):
    """Sends requests to several nodes in turn; with `by_connection` a new one only after a closed connection."""

    def __init__(self, *nodes: TinyNode, by_connection: bool = False) -> None:
        self._nodes = [httpx.ASGITransport(app=node.app()) for node in nodes]
        self._by_connection = by_connection
        self._turn = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass the request on."""
        node = self._nodes[self._turn % len(self._nodes)]
        if not self._by_connection or request.headers.get("connection") == "close":
            self._turn += 1
        return await node.handle_async_request(request)


@pytest.mark.parametrize("by_connection", [False, True])
async def test_a_balanced_url_is_noticed_within_one_handshake(*, by_connection: bool) -> None:
    nodes = [TinyNode(started=1_700_000_000.0 + 500 * one) for one in range(3)]
    ledger = Ledger()

    with pytest.raises(ReplyInvalid) as caught:
        await introduce(prober(Balanced(*nodes, by_connection=by_connection)), k=20, ledger=ledger)

    assert "2023-11-14 22:13:20.00 UTC" in str(caught.value)
    assert "2023-11-14 22:21:40.00 UTC" in str(caught.value) or "2023-11-14 22:30:00.00 UTC" in str(caught.value)
    assert "own address" in caught.value.advice
    assert at(ledger, Point.ONE_SERVER).ok is False


async def test_a_url_that_goes_back_to_an_older_process_is_several_servers() -> None:
    node = TinyNode(started=1_700_000_000.0)
    asked = prober(Network(node=node))
    await introduce(asked, k=20)
    node.started = 1_700_000_500.0
    await introduce(asked, k=20)
    node.started = 1_700_000_000.0

    with pytest.raises(ReplyInvalid, match="several servers answer at this URL"):
        await introduce(asked, k=20)


# ------------------------------------------------------------------ data-parallel ranks


async def test_several_engines_behind_a_url_are_noted() -> None:
    ledger = Ledger()
    await introduce(prober(Network(node=TinyNode(engines=4))), k=20, ledger=ledger)

    met = ledger.result("node")
    assert met.ok is True
    assert met.notes == (
        "4 engines answer at this URL, and a probe meets any one of them. "
        "A target with data_parallel_size: 4 has each of its ranks probed",
    )


async def test_every_rank_of_a_process_is_asked_once_and_later_one_in_turn() -> None:
    node = TinyNode(engines=3)
    asked = prober(Network(node=node), ranks=3)
    await introduce(asked, k=20)
    once = set(node.ranks)
    node.ranks.clear()
    for _ in range(3):
        await introduce(asked, k=20)

    assert once == {"0", "1", "2"}
    assert sorted(map(str, node.ranks)) == ["0", "1", "2"]


async def test_a_broken_rank_is_named() -> None:
    with pytest.raises(ReplyCorrupted, match=r"node \(rank 2\): HTTP 400"):
        await introduce(prober(Network(node=TinyNode(engines=3, nan_rank=2)), ranks=3), k=20)


async def test_a_rank_too_many_cannot_be_asked() -> None:
    ledger = Ledger()
    with pytest.raises(ReplyInvalid, match=r"rank 2\).*out of range"):
        await introduce(prober(Network(node=TinyNode(engines=2)), ranks=3), k=20, ledger=ledger)

    assert ledger.result("node").ok is False


async def test_a_distribution_names_the_rank_that_gave_it() -> None:
    node = TinyNode(engines=2)
    asked = prober(Network(node=node), ranks=2)
    got = await asked.distribution(SEQUENCE, Ask(ProbeMode.ONE_TOKEN, 5, (4, 5), 1))

    assert got.rank == 1
    assert set(node.ranks) == {"1"}


async def test_no_rank_is_asked_for_where_there_is_one_engine() -> None:
    node = TinyNode()
    await introduce(prober(Network(node=node)), k=20)

    assert set(node.ranks) == {None}


# ------------------------------------------------------------------ lengths


async def test_what_does_not_fit_the_context_is_not_sent_and_both_numbers_are_named() -> None:
    node = TinyNode(max_model_len=10)
    asked = prober(Network(node=node))
    await asked.identify()

    with pytest.raises(OverBudget, match="10 tokens and one more does not fit max_model_len 10"):
        await asked.distribution(SEQUENCE, Ask(ProbeMode.PROMPT_SCORING, 5))
    with pytest.raises(OverBudget, match="max_model_len 10"):
        await asked.generate(SEQUENCE.ids[:5], limit=6)
    await asked.generate(SEQUENCE.ids[:5], limit=5)

    assert len(node.asked) == 1


async def test_other_tokenizers_give_other_digests() -> None:
    one = await introduce(prober(Network(node=TinyNode())), k=5)
    same = await introduce(prober(Network(node=TinyNode())), k=5)
    other = await introduce(prober(Network(node=TinyNode(tokenizer_shift=1))), k=5)

    assert one.identity.tokenizer == same.identity.tokenizer
    assert one.identity.tokenizer != other.identity.tokenizer


def test_awkward_texts_cover_what_tokenizers_differ_on() -> None:
    text = " ".join(AWKWARD.values())

    assert max(map(len, AWKWARD.values())) > 4 * 2048
    assert all(part in text for part in ("é", "请", "👩", "  ", "\t", "<|im_start|>", "1234567890"))


def test_two_servers_with_one_tokenizer_can_be_compared() -> None:
    assert obstacles(IDENTITY, OTHER) == []


def test_one_url_is_one_server() -> None:
    assert "same server" in obstacles(IDENTITY, replace(OTHER, url="http://a"))[0].reason


def test_one_process_under_two_names_is_one_server() -> None:
    assert "same server" in obstacles(IDENTITY, replace(OTHER, started=100.0))[0].reason


@pytest.mark.parametrize("change", [{"started": None}, {"started": 100.5}, {"root": "x", "started": 100.0}])
def test_unlike_or_unknown_processes_are_two_servers(change: dict[str, object]) -> None:
    assert obstacles(IDENTITY, replace(OTHER, **change)) == []  # type: ignore[arg-type]


def test_another_tokenizer_is_an_obstacle_that_says_what_to_do() -> None:
    ids = [[1, 2, 3] for _ in AWKWARD]
    ours, theirs = fingerprint(ids), fingerprint([*ids[:3], [1, 2], *ids[4:]])
    found = obstacles(replace(IDENTITY, tokenizer=ours), replace(OTHER, tokenizer=theirs))

    assert "tokenizers differ" in str(found[0])
    assert "first on emoji (3 ids at the baseline, 2 at the node)" in str(found[0])
    assert "same tokenizer files" in str(found[0])


# ------------------------------------------------------------------ one confirming probe


async def clean() -> Distribution:
    return await prober(Network(node=TinyNode())).distribution(SEQUENCE, Ask(ProbeMode.PROMPT_SCORING, 5))


async def broken() -> Distribution:
    raise ReplyCorrupted("NaN", node="n")


class Script:
    """Plays answers in order and counts them."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def __call__(self) -> Distribution:
        answer = self.answers[self.asked]
        self.asked += 1
        if answer == "clean":
            return await clean()
        return await broken()


async def test_a_clean_answer_is_asked_for_once() -> None:
    script = Script("clean")

    assert (await sight(script)).corruption is None
    assert script.asked == 1


async def test_corruption_is_confirmed_by_exactly_one_more_probe() -> None:
    script = Script("broken", "broken", "broken")

    seen = await sight(script)

    assert (seen.confirmed, seen.distribution, script.asked) == (True, None, 2)


async def test_corruption_that_does_not_repeat_is_a_suspicion() -> None:
    seen = await sight(Script("broken", "clean"))

    assert seen.confirmed is False
    assert seen.corruption is not None
    assert seen.distribution is not None


async def test_a_second_probe_that_fails_does_not_wipe_out_the_first_sign() -> None:
    answers = [ReplyCorrupted("NaN", node="n"), NodeUnreachable("engine dead", node="n")]

    async def dying() -> Distribution:
        raise answers.pop(0)

    seen = await sight(dying)

    assert (seen.confirmed, seen.corruption) == (False, "n: NaN")


async def test_other_trouble_passes_through() -> None:
    async def gone() -> Distribution:
        raise NodeUnreachable("refused", node="n")

    with pytest.raises(NodeUnreachable):
        await sight(gone)
