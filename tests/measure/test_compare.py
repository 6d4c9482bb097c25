"""Figures of whole task sets: the published ones of the recorded servers, and weights, scopes and marks by hand."""

import math
from array import array
from dataclasses import replace

import pytest

from quantwatch.flow.distribution import NO_ID, Distribution, Mark, MarkKind
from quantwatch.flow.divergence import Estimator, Evidence
from quantwatch.flow.prompt import ProbeMode
from quantwatch.measure.compare import Pair, Scope, measure
from quantwatch.measure.listed import listed
from support.recordings import pairs


@pytest.mark.parametrize(
    ("node", "kl", "top1", "perplexity"),
    [
        ("fp32", 0.0, 1.0, 3.777),
        ("int8-w8a8-outlier", 0.3344, 0.751, 6.357),
        ("int8-w8a8-smoothquant", 0.02305, 0.924, 3.897),
        ("int4-w4g64", 0.3562, 0.722, 5.593),
    ],
)
def test_recorded_servers_give_the_published_figures(node: str, kl: float, top1: float, perplexity: float) -> None:
    got = measure(pairs(node), scope=Scope.ALL, evidence=Evidence.CENSUS)

    assert got.positions == 342
    assert got.prompts == 5
    assert got.kl_mean.value == pytest.approx(kl, rel=0.002, abs=1e-6)
    assert got.top1_agreement.value == pytest.approx(top1, abs=0.0005)
    assert got.perplexity_baseline == pytest.approx(3.777, abs=0.0005)
    assert got.perplexity_node == pytest.approx(perplexity, abs=0.0005)
    assert got.perplexity_ratio.value == pytest.approx(got.perplexity_node / got.perplexity_baseline)


def test_decision_grade_numbers_use_continuation_positions_only() -> None:
    """Five continuations of 48 tokens."""
    got = measure(pairs("int4-w4g64"), scope=Scope.CONTINUATION, evidence=Evidence.CENSUS)

    assert got.positions == 240
    assert got.perplexity_baseline < 2


def row(*probabilities: float, own: int = 0, first: int = 100) -> tuple[list[int], list[float], float]:
    """Ids from `first` on with these probabilities; which of them is the sequence's own token."""
    logs = [math.log(p) for p in probabilities]
    return [first + i for i in range(len(logs))], logs, logs[own]


def distribution(rows: list[tuple[list[int], list[float], float]], *, prompt_id: str = "a") -> Distribution:
    k = len(rows[0][0])
    ids, logs, actual = array("q"), array("d"), array("d")
    for row_ids, row_logs, own in rows:
        ids.extend([*row_ids, NO_ID])
        logs.extend([*row_logs, 0.0])
        actual.append(own)
    floor = array("d", [min(logs) for _, logs, _ in rows])
    return Distribution(
        prompt_id, ProbeMode.PROMPT_SCORING, k, 1, array("q", range(1, len(rows) + 1)), ids, logs, actual, floor
    )


HALVES, SKEWED = row(0.5, 0.5), row(0.9, 0.1)
KL_SKEWED = 0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1)


def test_numbers_of_one_prompt_by_hand() -> None:
    pair = Pair(distribution([HALVES, HALVES, HALVES]), distribution([HALVES, SKEWED, SKEWED]))

    got = measure([pair], scope=Scope.CONTINUATION, evidence=Evidence.DRAW)

    assert got.estimator is Estimator.SHARP
    assert got.kl_mean.value == pytest.approx(2 / 3 * KL_SKEWED, abs=1e-6)
    assert got.kl_mean.interval is None
    assert got.kl_max == pytest.approx(KL_SKEWED, abs=1e-6)
    assert got.kl_median == pytest.approx(KL_SKEWED, abs=1e-6)
    assert got.perplexity_baseline == pytest.approx(2.0)
    assert got.perplexity_node == pytest.approx(math.exp(-(math.log(0.5) + 2 * math.log(0.9)) / 3))
    assert got.tail_mass_baseline == pytest.approx(0.0, abs=1e-12)


def test_a_prompt_drawn_twice_counts_twice() -> None:
    calm = Pair(distribution([HALVES]), distribution([HALVES]))
    far = Pair(distribution([HALVES], prompt_id="b"), distribution([SKEWED], prompt_id="b"))

    got = measure([calm, far, far], scope=Scope.CONTINUATION, evidence=Evidence.DRAW)

    assert got.prompts == 3
    assert got.kl_mean.value == pytest.approx(2 / 3 * KL_SKEWED, abs=1e-6)


def marked(distribution_: Distribution, row_index: int) -> Distribution:
    return replace(distribution_, marks=(Mark(row_index, MarkKind.NON_FINITE, "NaN"),))


def test_marked_positions_are_counted_and_never_enter_a_mean() -> None:
    node = marked(distribution([HALVES, SKEWED]), 1)

    got = measure([Pair(distribution([HALVES, HALVES]), node)], scope=Scope.CONTINUATION, evidence=Evidence.DRAW)

    assert got.positions == 1
    assert got.kl_mean.value == 0.0
    assert got.corrupted_positions == 1


def test_only_marked_positions_leave_no_numbers_but_no_crash_either() -> None:
    node = marked(distribution([HALVES]), 0)

    got = measure([Pair(distribution([HALVES]), node)], scope=Scope.CONTINUATION, evidence=Evidence.DRAW)

    assert got.positions == 0
    assert math.isnan(got.kl_mean.value)
    assert math.isnan(got.kl_max)
    assert math.isnan(got.top1_agreement.value)
    assert math.isnan(got.perplexity_ratio.value)


def test_tied_tops_agree_when_they_share_a_token() -> None:
    """16-bit logits tie often; which of two equal tokens is listed first means nothing."""
    tied = row(0.4, 0.4, 0.2)
    second = ([100, 101, 102], [math.log(0.3), math.log(0.4), math.log(0.3)], math.log(0.3))

    got = measure([Pair(distribution([tied]), distribution([second]))], scope=Scope.ALL, evidence=Evidence.DRAW)

    assert got.top1_agreement.value == 1.0


def test_different_tops_are_a_flip() -> None:
    other = ([100, 101], [math.log(0.1), math.log(0.9)], math.log(0.1))

    got = measure([Pair(distribution([SKEWED]), distribution([other]))], scope=Scope.ALL, evidence=Evidence.DRAW)

    assert got.top1_agreement.value == 0.0


def test_own_token_that_only_the_node_misses_counts_with_its_rank_k_value() -> None:
    """One-token mode: the node's perplexity is then at least the figure, never under it."""
    node = distribution([([100, 101], [math.log(0.6), math.log(0.2)], math.nan)])

    got = measure([Pair(distribution([HALVES]), node)], scope=Scope.ALL, evidence=Evidence.DRAW)

    assert got.perplexity_node == pytest.approx(1 / 0.2)


def test_own_token_that_the_baseline_misses_is_left_out_on_both_sides() -> None:
    unknown = ([100, 101], [math.log(0.6), math.log(0.2)], math.nan)
    baseline, node = distribution([HALVES, unknown]), distribution([HALVES, SKEWED])

    got = measure([Pair(baseline, node)], scope=Scope.ALL, evidence=Evidence.DRAW)

    assert got.perplexity_node == pytest.approx(2.0)
    assert got.positions == 2


def test_a_ratio_beyond_what_a_float_holds_is_infinite_not_a_crash() -> None:
    far = ([100, 101], [-0.1, -3000.0], -3000.0)
    pairs_ = [
        Pair(distribution([HALVES], prompt_id=name), distribution([side], prompt_id=name))
        for name, side in (("a", HALVES), ("b", far))
    ]

    got = measure(pairs_, scope=Scope.ALL, evidence=Evidence.DRAW)

    assert got.perplexity_ratio.interval is not None
    assert got.perplexity_ratio.interval.high == math.inf


def test_the_other_numbers_of_one_prompt_by_hand() -> None:
    """Two positions, one alike; every token is listed, so nothing is left open."""
    pair = Pair(distribution([HALVES, HALVES]), distribution([HALVES, SKEWED]))

    got = measure([pair], scope=Scope.CONTINUATION, evidence=Evidence.DRAW)

    assert got.logprob_delta.value == pytest.approx(math.log(0.9 / 0.5) / 2)
    assert got.entropy_baseline == pytest.approx(math.log(2))
    assert got.entropy_node == pytest.approx((math.log(2) - 0.9 * math.log(0.9) - 0.1 * math.log(0.1)) / 2)
    assert [got.variation_low, got.variation_high] == pytest.approx([0.2, 0.2], abs=1e-5)
    assert got.topk_overlap == 1.0


def test_logprob_delta_and_perplexity_ratio_tell_the_same() -> None:
    got = measure(pairs("int4-w4g64"), scope=Scope.ALL, evidence=Evidence.DRAW)

    assert got.logprob_delta.interval is not None
    assert got.perplexity_ratio.interval is not None
    assert math.exp(-got.logprob_delta.value) == pytest.approx(got.perplexity_ratio.value)
    assert math.exp(-got.logprob_delta.interval.low) == pytest.approx(got.perplexity_ratio.interval.high)


def test_a_recorded_node_has_all_numbers() -> None:
    got = measure(pairs("int8-w8a8-outlier"), scope=Scope.ALL, evidence=Evidence.DRAW)

    assert 0 < got.variation_low < got.variation_high < 1
    assert got.variation_high - got.variation_low < 0.25
    assert 0.5 < got.topk_overlap < 0.8
    assert got.entropy_baseline < got.entropy_node


def test_a_wider_baseline_tells_more_of_the_same_node() -> None:
    """Token 102, the node's first, is the wider baseline's third. The node's k is the k of the numbers."""
    node = distribution([row(0.6, 0.1, first=102)])
    narrow = distribution([row(0.5, 0.3)])
    wide = distribution([row(0.5, 0.3, 0.2)])

    got, less = (measure([Pair(one, node)], scope=Scope.ALL, evidence=Evidence.DRAW) for one in (wide, narrow))

    assert got.k == 2
    assert got.kl_mean.value > less.kl_mean.value > 0
    assert got.topk_overlap == 0.0


def test_coverage_and_uninformative_positions() -> None:
    elsewhere = row(0.5, 0.5, first=500)

    got = measure(
        [Pair(distribution([HALVES, HALVES]), distribution([HALVES, elsewhere]))],
        scope=Scope.ALL,
        evidence=Evidence.DRAW,
    )

    assert got.coverage == pytest.approx(0.5)
    assert got.uninformative_positions == 1


def test_no_pairs_and_mixed_modes_are_refused() -> None:
    other = replace(distribution([HALVES]), mode=ProbeMode.ONE_TOKEN)

    with pytest.raises(ValueError, match="nothing to compare"):
        measure([], scope=Scope.ALL, evidence=Evidence.DRAW)
    with pytest.raises(ValueError, match="never mixes modes"):
        measure(
            [Pair(distribution([HALVES]), distribution([HALVES])), Pair(other, other)],
            scope=Scope.ALL,
            evidence=Evidence.DRAW,
        )


@pytest.mark.parametrize("change", [{"k": 3}, {"mode": ProbeMode.ONE_TOKEN}, {"prompt_id": "z"}, {"prompt_length": 2}])
def test_a_pair_of_unlike_answers_is_refused(change: dict[str, object]) -> None:
    one = distribution([HALVES])

    with pytest.raises(ValueError, match="cannot be compared"):
        Pair(one, replace(one, **change))  # type: ignore[arg-type]


def test_no_distributions_are_no_positions() -> None:
    assert len(listed([]).ids) == 0


def test_lists_of_different_k_cannot_be_stacked() -> None:
    with pytest.raises(ValueError, match="different k"):
        listed([distribution([HALVES]), distribution([row(0.5, 0.3, 0.2)])])


def exact(one: Distribution) -> Distribution:
    """The same list, as a server gives it that was asked for these tokens."""
    return replace(one, exact=True, floor=array("d", [math.inf]) * len(one))


def test_named_ids_give_the_bound_of_the_shared_tokens_and_no_overlap() -> None:
    got = measure(
        [Pair(distribution([HALVES]), exact(distribution([SKEWED])))], scope=Scope.ALL, evidence=Evidence.DRAW
    )

    assert got.estimator is Estimator.EXACT_IDS
    assert got.kl_mean.value == pytest.approx(KL_SKEWED, abs=1e-6)
    assert math.isnan(got.topk_overlap)


def test_named_ids_are_the_node_s_alone_and_in_every_pair() -> None:
    with pytest.raises(ValueError, match="the baseline's list must be its own top k"):
        Pair(exact(distribution([HALVES])), distribution([HALVES]))
    mixed = [Pair(distribution([HALVES]), one) for one in (distribution([SKEWED]), exact(distribution([SKEWED])))]
    with pytest.raises(ValueError, match="never mixes lists of asked ids"):
        measure(mixed, scope=Scope.ALL, evidence=Evidence.DRAW)
