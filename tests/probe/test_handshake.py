"""Are two servers comparable? And the one confirming probe."""

import json
from dataclasses import replace

import pytest
from starlette.responses import Response

from quantwatch.errors import NodeUnreachable, ReplyCorrupted, ReplyInvalid
from quantwatch.flow.distribution import Distribution
from quantwatch.flow.identity import Identity
from quantwatch.flow.prompt import ProbeMode
from quantwatch.probe.confirm import sight
from quantwatch.probe.contract import Ask
from quantwatch.probe.handshake import AWKWARD, introduce, obstacles
from support.builders import SEQUENCE, prober
from support.tiny_node import Network, TinyNode

IDENTITY = Identity("a", "http://a", "m", root="r", version="1", started=100.0, tokenizer="t")
OTHER = replace(IDENTITY, name="b", url="http://b", started=250.0)


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


async def test_other_tokenizers_give_other_digests() -> None:
    one = await introduce(prober(Network(node=TinyNode())), k=5)
    same = await introduce(prober(Network(node=TinyNode())), k=5)
    other = await introduce(prober(Network(node=TinyNode(tokenizer_shift=1))), k=5)

    assert one.identity.tokenizer == same.identity.tokenizer
    assert one.identity.tokenizer != other.identity.tokenizer


def test_awkward_texts_cover_what_tokenizers_differ_on() -> None:
    text = " ".join(AWKWARD)

    assert max(map(len, AWKWARD)) > 4 * 2048
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
    found = obstacles(IDENTITY, replace(OTHER, tokenizer="u"))

    assert "tokenizers differ" in str(found[0])
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
