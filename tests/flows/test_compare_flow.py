"""Whole comparisons over tiny real models: figures against the truth, verdicts, and every kind of trouble."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import PlainTextResponse, Response

from quantwatch.flow.divergence import Estimator
from quantwatch.flow.prompt import GoldenSequence, ProbeMode
from quantwatch.flow.verdict import Quality
from quantwatch.flows.plan import Progress, planned_draw
from quantwatch.measure.compare import Scope
from support.runs import POOL, TEXTS, census, compared, node, only, plan
from support.tiny_node import BOS, TinyModel, TinyNode, true_kl, true_perplexity


def golden(text: str, tokens: int = 24) -> tuple[tuple[int, ...], int]:
    """The sequence that a healthy tiny baseline makes of a prompt."""
    ids = [BOS, *text.encode()]
    start, model = len(ids), TinyModel()
    for _ in range(tokens):
        ids.append(int(model.logprobs(ids).argmax()))
    return tuple(ids), start


def truth(damage: float, texts: list[str]) -> tuple[float, float]:
    """Mean full-vocabulary KL and perplexity ratio over the continuation positions of these prompts."""
    healthy, damaged = TinyModel(), TinyModel(damage=damage)
    kls, ratios = [], []
    for text in texts:
        ids, start = golden(text)
        kls += [true_kl(healthy, damaged, list(ids[:i])) for i in range(start, len(ids))]
        ratios.append(true_perplexity(damaged, ids, start) / true_perplexity(healthy, ids, start))
    product = 1.0
    for ratio in ratios:
        product *= ratio
    return sum(kls) / len(kls), product ** (1 / len(ratios))


def drawn_texts() -> list[str]:
    """The texts of the standard plan's draw, with repetitions."""
    weights = planned_draw(POOL, size=8, seed=1, mode=None).weights
    return [text for i, text in enumerate(TEXTS) for _ in range(weights.get(f"letters-{i}", 0))]


@pytest.mark.parametrize("damage", [0.3, 1.0])
async def test_figures_stand_close_under_the_full_vocabulary_truth(tmp_path: Path, damage: float) -> None:
    kl, ratio = truth(damage, drawn_texts())

    got = only(await compared(tmp_path, wanted=plan(k=20), node=node(damage))).divergence

    assert got is not None
    assert 0.6 * kl < got.kl_mean.value <= kl
    assert got.perplexity_ratio.value == pytest.approx(ratio, rel=1e-4)


async def test_asked_for_the_baseline_s_ids_a_node_shows_more_of_the_truth(tmp_path: Path) -> None:
    one_token: dict[str, Any] = {"mode": ProbeMode.ONE_TOKEN, "k": 8, "positions": 24}
    kl, _ = truth(1.0, drawn_texts())
    damaged = node(1.0)

    own = only(await compared(tmp_path, wanted=plan(**one_token), node=node(1.0))).divergence
    healthy = TinyNode()
    wanted = plan(**one_token, exact_ids=True)
    asked = only(await compared(tmp_path, baseline=healthy, wanted=wanted, node=damaged)).divergence

    assert own is not None
    assert asked is not None
    assert (own.estimator, asked.estimator) == (Estimator.SHARP, Estimator.EXACT_IDS)
    assert own.kl_mean.value < asked.kl_mean.value <= kl
    assert asked.top1_agreement.value == own.top1_agreement.value < 1
    assert math.isnan(asked.topk_overlap)
    lists = [body["logprob_token_ids"] for body in damaged.completions() if "logprob_token_ids" in body]
    assert {len(one) for one in lists} == {8}
    assert len(lists) == 24 * len(set(drawn_texts()))
    assert not any("logprob_token_ids" in body for body in healthy.completions())


async def test_a_node_that_ignores_the_ids_cannot_be_compared(tmp_path: Path) -> None:
    wanted = plan(mode=ProbeMode.ONE_TOKEN, k=8, exact_ids=True)

    got = only(await compared(tmp_path, wanted=wanted, node=node(1.0, lists_ids=False)))

    assert got.verdict.quality is Quality.INVALID
    assert "ids asked for" in got.verdict.reasons[0]


async def test_with_the_whole_vocabulary_listed_the_figure_is_the_truth(tmp_path: Path) -> None:
    kl, _ = truth(0.5, drawn_texts())

    result = await compared(
        tmp_path,
        baseline=TinyNode(cap=300),
        wanted=plan(k=299),
        probe={"max_scored_entries": 100_000},
        node=node(0.5, cap=300),
    )

    got = only(result).divergence
    assert got is not None
    assert got.kl_mean.value == pytest.approx(kl, rel=1e-3)


async def test_an_equal_node_is_ok(tmp_path: Path) -> None:
    one = only(await compared(tmp_path, node=node()))

    assert one.verdict.quality is Quality.OK
    assert one.divergence is not None
    assert one.divergence.kl_mean.value == pytest.approx(0.0, abs=1e-9)
    assert one.divergence.top1_agreement.value == 1.0


async def test_a_damaged_node_is_degraded_and_the_healthy_one_beside_it_is_not(tmp_path: Path) -> None:
    result = await compared(tmp_path, wanted=plan(draws=20), bad=node(1.5), good=node())

    assert {target.target: target.quality for target in result.targets} == {
        "bad": Quality.DEGRADED,
        "good": Quality.OK,
    }
    assert result.complete


async def test_one_token_mode_sees_the_same_divergence(tmp_path: Path) -> None:
    scored = only(await compared(tmp_path, wanted=plan(draws=20), node=node(1.0))).divergence
    tokens = only(await compared(tmp_path, wanted=plan(draws=20, mode=ProbeMode.ONE_TOKEN), node=node(1.0)))

    assert scored is not None
    assert tokens.divergence is not None
    assert tokens.mode is ProbeMode.ONE_TOKEN
    assert tokens.divergence.positions == 8 * 20
    assert tokens.divergence.kl_mean.value == pytest.approx(scored.kl_mean.value, rel=0.4)


async def test_first_token_mode_asks_one_position_a_prompt(tmp_path: Path) -> None:
    one = only(await compared(tmp_path, wanted=plan(mode=ProbeMode.FIRST_TOKEN), node=node(1.0)))

    assert one.divergence is not None
    assert one.divergence.positions == one.divergence.prompts == 8


async def test_ready_sequences_are_scored_as_they_are(tmp_path: Path) -> None:
    ids, start = golden(TEXTS[0])
    sequence = GoldenSequence("s", ids, start)

    one = only(await compared(tmp_path, wanted=plan(census(sequence), scope=Scope.ALL), node=node(1.5)))

    assert one.divergence is not None
    assert one.divergence.positions == len(ids) - 1
    assert one.verdict.quality is Quality.DEGRADED


async def test_a_prompt_is_asked_once_however_often_it_was_drawn(tmp_path: Path) -> None:
    asked = node()
    planned = planned_draw(POOL, size=30, seed=1, mode=None)

    one = only(await compared(tmp_path, wanted=plan(planned), node=asked))

    scored = [body for body in asked.completions() if body.get("prompt_logprobs") and len(body["prompt"]) > 16]
    assert len(scored) == len(planned.items) <= len(POOL.prompts)
    assert one.observation.measured == 30


async def test_continuations_are_made_once_and_kept(tmp_path: Path) -> None:
    first, second = TinyNode(), TinyNode()
    await compared(tmp_path, baseline=first, node=node())
    await compared(tmp_path, baseline=second, node=node())

    def generated(server: TinyNode) -> int:
        return sum(body["max_tokens"] == 24 for body in server.completions())

    assert generated(first) > 0
    assert generated(second) == 0


async def test_continuations_of_another_baseline_are_made_anew(tmp_path: Path) -> None:
    await compared(tmp_path, baseline=TinyNode(name="one"), node=node(name="one"))
    other = TinyNode(name="two")
    await compared(tmp_path, baseline=other, node=node(name="one"))

    assert any(body["max_tokens"] == 24 for body in other.completions())


async def test_progress_reaches_its_end(tmp_path: Path) -> None:
    told: list[Progress] = []

    await compared(tmp_path, told=told, node=node())

    assert told[0] == Progress(0, told[0].total, "handshake")
    assert told[-1].done == told[-1].total > 0
    assert [at.done for at in told] == sorted(at.done for at in told)


# ------------------------------------------------------------------ corruption


async def test_a_nan_node_is_corrupted_after_one_confirming_probe_and_asked_nothing_more(tmp_path: Path) -> None:
    broken = node(nan_on=lambda _: True)

    result = await compared(tmp_path, node=broken)

    assert result.targets[0].quality is Quality.CORRUPTED
    assert "seen twice" in result.targets[0].reasons[0]
    assert len(broken.completions()) == 2


async def test_nan_on_one_kind_of_prompt_is_found(tmp_path: Path) -> None:
    """Healthy in the handshake, NaN on longer prompts."""
    result = await compared(tmp_path, node=node(nan_on=lambda ids: len(ids) > 60))

    assert result.targets[0].quality is Quality.CORRUPTED


def flaky(times: int) -> Callable[[list[int]], bool]:
    """NaN for the first `times` requests that score a long prompt."""
    left = [times]

    def nan_on(ids: list[int]) -> bool:
        if len(ids) > 60 and left[0]:
            left[0] -= 1
            return True
        return False

    return nan_on


async def test_a_sign_that_does_not_repeat_is_inconclusive(tmp_path: Path) -> None:
    one = only(await compared(tmp_path, node=node(nan_on=flaky(1))))

    assert one.verdict.quality is Quality.INCONCLUSIVE
    assert any("not confirmed by a second probe" in reason for reason in one.verdict.reasons)


async def test_null_logprobs_inside_replies_are_corruption(tmp_path: Path) -> None:
    def edit(reply: dict[str, Any]) -> Any:
        rows = reply["choices"][0]["prompt_logprobs"]
        if rows:
            next(iter(rows[5].values()))["logprob"] = None
        return reply

    one = only(await compared(tmp_path, node=node(edit=edit)))

    assert one.verdict.quality is Quality.CORRUPTED
    assert one.observation.confirmed


async def test_one_id_to_the_limit_is_corruption(tmp_path: Path) -> None:
    """The classic !!!!: logprobs look fine wherever they are asked for, free answers are one token."""

    def edit(reply: dict[str, Any]) -> Any:
        choice = reply["choices"][0]
        if len(choice["token_ids"]) > 1:
            choice["token_ids"] = [0] * len(choice["token_ids"])
        return reply

    result = await compared(tmp_path, node=node(edit=edit))

    assert result.targets[0].quality is Quality.CORRUPTED
    assert "a free answer is token 0, 32 times over" in result.targets[0].reasons[0]


async def test_a_baseline_that_repeats_one_id_is_never_the_nodes_fault(tmp_path: Path) -> None:
    stuck = TinyModel(stuck_on=33)

    result = await compared(tmp_path, baseline=TinyNode(model=stuck), node=node(1.0))

    assert result.targets[0].quality is Quality.INVALID
    assert "the baseline's own answer is one token over and over" in result.targets[0].reasons[0]


async def test_a_node_that_repeats_itself_like_its_baseline_is_not_blamed(tmp_path: Path) -> None:
    """Ready sequences and short continuations do not show what the baseline answers freely, so it is asked."""
    stuck = TinyModel(stuck_on=33)
    ids, start = golden(TEXTS[0])
    wanted = plan(census(GoldenSequence("s", ids, start)))

    result = await compared(
        tmp_path, baseline=TinyNode(model=stuck), wanted=wanted, node=TinyNode(model=stuck, started=5.0)
    )

    assert result.targets[0].quality is Quality.OK


async def test_a_sign_that_the_baseline_shows_too_is_not_held_against_the_node(tmp_path: Path) -> None:
    def edit(reply: dict[str, Any]) -> Any:
        rows = reply["choices"][0]["prompt_logprobs"]
        if rows:
            next(iter(rows[5].values()))["logprob"] = None
        return reply

    result = await compared(tmp_path, baseline=TinyNode(edit=edit), node=node(edit=edit))

    assert result.targets[0].quality is Quality.INVALID


def once(action: Callable[[], Response]) -> Callable[[str], Response | None]:
    """Answer the first completion request with something else."""
    left = [1]

    def replaced(path: str) -> Response | None:
        if path == "/v1/completions" and left[0]:
            left[0] = 0
            return action()
        return None

    return replaced


def nan_refusal() -> Response:
    error = {"error": {"message": "Out of range float values are not JSON compliant", "param": None, "code": 400}}
    return Response(json.dumps(error), 400)


async def test_a_sign_in_the_handshake_alone_is_not_forgotten(tmp_path: Path) -> None:
    result = await compared(tmp_path, node=node(replace=once(nan_refusal)))

    assert result.targets[0].quality is Quality.INCONCLUSIVE
    assert "not confirmed by a second probe" in result.targets[0].reasons[0]


async def test_a_bad_answer_of_the_baseline_is_never_kept(tmp_path: Path) -> None:
    stuck = await compared(tmp_path, baseline=TinyNode(model=TinyModel(stuck_on=33)), node=node())
    repaired = await compared(tmp_path, baseline=TinyNode(), node=node())

    assert stuck.targets[0].quality is Quality.INVALID
    assert repaired.targets[0].quality is Quality.OK


async def test_the_free_answer_is_asked_even_when_the_first_prompt_failed(tmp_path: Path) -> None:
    left = [1]

    def hiccup(path: str) -> Response | None:
        if path == "/v1/completions" and left[0] == 0:
            left[0] = -1
            return PlainTextResponse("hiccup", 500)
        left[0] -= path == "/v1/completions"
        return None

    asked = node()
    await compared(tmp_path, baseline=TinyNode(replace=hiccup), node=asked)

    assert any(body["max_tokens"] == 32 for body in asked.completions())


async def test_a_node_that_hides_its_load_is_noted(tmp_path: Path) -> None:
    def no_metrics(path: str) -> Response | None:
        return PlainTextResponse("no", 404) if path == "/metrics" else None

    hidden = (await compared(tmp_path, node=node(replace=no_metrics))).targets[0]
    open_ = (await compared(tmp_path, node=node())).targets[0]

    assert "without looking at its load" in hidden.notes[0]
    assert open_.notes == ()


async def test_a_nan_baseline_says_nothing_about_the_node(tmp_path: Path) -> None:
    result = await compared(tmp_path, baseline=TinyNode(nan_on=lambda _: True), node=node(1.0))

    assert result.targets[0].quality is Quality.INVALID
    assert result.trouble is not None


async def test_nulls_of_the_baseline_say_nothing_about_the_node(tmp_path: Path) -> None:
    def edit(reply: dict[str, Any]) -> Any:
        rows = reply["choices"][0]["prompt_logprobs"]
        if rows:
            next(iter(rows[5].values()))["logprob"] = None
        return reply

    result = await compared(tmp_path, baseline=TinyNode(edit=edit), node=node(1.0))

    assert result.targets[0].quality is Quality.INVALID


# ------------------------------------------------------------------ cannot tell


async def test_the_baseline_against_itself_is_the_same_server(tmp_path: Path) -> None:
    result = await compared(tmp_path, node=TinyNode())

    assert result.targets[0].quality is Quality.INVALID
    assert "same server" in result.targets[0].reasons[0]


async def test_another_tokenizer_cannot_be_compared(tmp_path: Path) -> None:
    asked = node(tokenizer_shift=1)

    result = await compared(tmp_path, node=asked)

    assert result.targets[0].quality is Quality.INVALID
    assert "tokenizers differ" in result.targets[0].reasons[0]
    assert len(asked.completions()) == 3  # those of the handshake


async def test_a_wrong_model_is_configuration(tmp_path: Path) -> None:
    def wrong(path: str) -> Response | None:
        return Response(json.dumps({"data": []})) if path == "/v1/models" else None

    result = await compared(tmp_path, node=node(replace=wrong))

    assert result.targets[0].misconfigured
    assert result.targets[0].quality is Quality.INVALID


async def test_a_node_that_is_down_does_not_hide_the_others(tmp_path: Path) -> None:
    def down(path: str) -> Response | None:
        return PlainTextResponse("dead", 500) if path == "/v1/completions" else None

    result = await compared(tmp_path, wanted=plan(draws=20), dead=node(replace=down), bad=node(1.5))

    assert [target.quality for target in result.targets] == [Quality.UNKNOWN, Quality.DEGRADED]


async def test_a_node_that_keeps_failing_is_left_alone_after_three_tries(tmp_path: Path) -> None:
    asked = []

    def down_later(path: str) -> Response | None:
        if path == "/v1/completions":
            asked.append(path)
        return PlainTextResponse("dead", 500) if len(asked) > 1 and path == "/v1/completions" else None

    result = await compared(tmp_path, wanted=plan(draws=40), node=node(replace=down_later))

    assert result.targets[0].quality is Quality.UNKNOWN
    assert len(asked) <= 6


async def test_a_busy_node_is_skipped(tmp_path: Path) -> None:
    busy = node(waiting=5)

    result = await compared(tmp_path, node=busy)

    assert result.targets[0].quality is Quality.SKIPPED
    assert busy.completions() == []


async def test_sequences_over_the_budget_are_skipped_and_named(tmp_path: Path) -> None:
    one = only(await compared(tmp_path, probe={"max_scored_tokens": 16}, node=node()))

    assert one.verdict.quality is Quality.SKIPPED
    assert "over the budget of 16" in one.verdict.reasons[0]
    assert one.observation.measured == 0


async def test_a_node_that_is_not_compared_does_not_lower_k_for_the_others(tmp_path: Path) -> None:
    result = await compared(tmp_path, stranger=node(cap=1, tokenizer_shift=1), fine=node(0.5))

    fine = next(target for target in result.targets if target.target == "fine")
    assert fine.task_sets[0].k == 10


async def test_a_dead_baseline_is_left_alone_after_three_failures(tmp_path: Path) -> None:
    """Ready sequences need no answer of the baseline to be made, which must not count as one."""
    asked = []

    def dead(path: str) -> Response | None:
        if path != "/v1/completions":
            return None
        asked.append(path)
        return PlainTextResponse("dead", 500) if len(asked) > 1 else None

    sequences = [GoldenSequence(f"s{i}", golden(text)[0], golden(text)[1]) for i, text in enumerate(TEXTS)]
    watched = node()
    result = await compared(tmp_path, baseline=TinyNode(replace=dead), wanted=plan(census(*sequences)), node=watched)

    assert result.targets[0].quality is Quality.UNKNOWN
    assert len(asked) == 3 + 3
    assert len(watched.completions()) <= 3 + 5


async def test_failures_that_are_not_in_a_row_do_not_stop_a_server(tmp_path: Path) -> None:
    turns = [0]

    def alternating(path: str) -> Response | None:
        if path != "/v1/completions":
            return None
        turns[0] += 1
        broken = {0: PlainTextResponse("boom", 500), 1: PlainTextResponse("slow down", 429)}
        return None if turns[0] == 1 else broken[turns[0] % 2]

    asked = node(replace=alternating)
    await compared(tmp_path, wanted=plan(draws=40), node=asked)

    assert turns[0] >= len(POOL.prompts)


async def test_servers_of_unequal_caps_are_asked_for_the_smaller_k(tmp_path: Path) -> None:
    one = only(await compared(tmp_path, baseline=TinyNode(cap=7), node=node(0.5)))

    assert one.k == 7
    assert one.divergence is not None
    assert one.divergence.k == 7


async def test_an_unreachable_baseline_makes_everything_unknown(tmp_path: Path) -> None:
    def gone(_: str) -> Response | None:
        return PlainTextResponse("bad gateway", 502)

    result = await compared(tmp_path, baseline=TinyNode(replace=gone), node=node(1.0))

    assert result.targets[0].quality is Quality.UNKNOWN
    assert result.trouble is not None
    assert "502" in result.trouble


@pytest.mark.parametrize(
    ("answer", "quality"),
    [
        (PlainTextResponse("<html>hello</html>"), Quality.INVALID),
        (PlainTextResponse('{"choices": [{"index"'), Quality.UNKNOWN),
        (PlainTextResponse("slow down", 429), Quality.SKIPPED),
        (PlainTextResponse("loading", 503), Quality.SKIPPED),
        (PlainTextResponse("boom", 500), Quality.UNKNOWN),
        (PlainTextResponse("x" * 300_000), Quality.UNKNOWN),
    ],
    ids=["html", "truncated", "429", "503", "500", "too large"],
)
async def test_bad_replies_are_never_the_nodes_quality(tmp_path: Path, answer: Response, quality: Quality) -> None:
    def bad(path: str) -> Response | None:
        return answer if path == "/v1/completions" else None

    result = await compared(tmp_path, probe={"max_response_size": "200kB"}, node=node(replace=bad))

    assert result.targets[0].quality is quality
