"""The sharp bound: never above the truth, never under the bucket, and as good as published on real servers."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from quantwatch.flow.distribution import NO_ID
from quantwatch.measure.bounds import CHUNK, exact_ids, sharp
from quantwatch.measure.kl import FLOAT32, FLOAT64, align, bucket
from quantwatch.measure.listed import Listed, listed
from support.excess import ALLOWED, worst_excess
from support.recordings import at_truth, pairs
from support.vocabulary import Damage, full_kl, narrowed, random_pair, rounded, top, with_exchanged_top


def bound(baseline: Listed, node: Listed, *, rounding: float = FLOAT32) -> Tensor:
    return sharp(baseline, node, align(baseline, node), rounding=rounding)


# ------------------------------------------------------------------ never above the truth


@pytest.mark.parametrize("damage", list(Damage))
def test_bound_is_never_above_the_truth_over_a_vocabulary_of_50000(damage: Damage) -> None:
    """2,000 pairs over all kinds of damage; tests/benchmarks has the 10,000."""
    for seed in range(7):
        worst = worst_excess(damage, 48, seed=seed)
        assert all(worst[kind] <= ALLOWED[kind] for kind in ALLOWED), worst


@given(
    seed=st.integers(0, 2**32 - 1),
    widths=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    sharpness=st.floats(0.5, 6),
    noise=st.floats(0, 6),
)
@settings(max_examples=60, deadline=None)
def test_float32_rounding_never_lifts_lists_of_any_width_over_the_truth(
    seed: int, widths: tuple[int, int], sharpness: float, noise: float
) -> None:
    p, q = random_pair(seed, 4, 400, sharpness=sharpness, noise=noise)
    own = torch.randint(400, (4,), generator=torch.Generator().manual_seed(seed))

    printed = bound(rounded(top(p, widths[0], own=own)), rounded(top(q, widths[1], own=own)))

    assert float((printed - full_kl(p, q)).max()) <= 1e-6


@pytest.mark.parametrize("tail", [1e-4, 1e-7, 1e-9, 1e-12])
@pytest.mark.parametrize("certain", ["node", "baseline"])
def test_a_nearly_certain_side_does_not_break_the_bound_by_rounding(tail: float, certain: str) -> None:
    """The mass outside its list is all rounding error here; the tokens it lists in vain are its own."""
    vocabulary = 1000
    sure = torch.full((1, vocabulary), math.log(tail / (vocabulary - 1)), dtype=torch.float64)
    sure += 1e-3 * torch.arange(vocabulary).flip(0).view(1, -1)
    sure[0, 0] = 20.0
    sure = sure.log_softmax(1)
    open_ = torch.full((1, vocabulary), math.log(0.01 / (vocabulary - 1)), dtype=torch.float64)
    open_[0, 0], open_[0, 500:520] = math.log(0.99), math.log(1e-3)
    open_ = open_.log_softmax(1)
    p, q = (open_, sure) if certain == "node" else (sure, open_)

    assert float(bound(rounded(top(p, 20)), rounded(top(q, 20))) - full_kl(p, q)) <= 1e-6


@pytest.mark.parametrize("gap", [14.0, 17.0, 20.0, 25.0])
def test_numbers_computed_in_float32_as_servers_do_never_lift_the_bound(gap: float) -> None:
    vocabulary, g = 151_936, torch.Generator().manual_seed(int(gap))
    spread = torch.randn(2, vocabulary, generator=g, dtype=torch.float64).bfloat16().double()
    logits = spread.clone()
    logits[:, 0] = spread.logsumexp(1) + torch.tensor([4.6, gap], dtype=torch.float64)
    truth = full_kl(logits[:1].log_softmax(1), logits[1:].log_softmax(1))

    baseline, node = (top(row.float().log_softmax(0).double().unsqueeze(0), 20) for row in logits)

    assert float(bound(baseline, node) - truth) <= 5e-6


@pytest.mark.parametrize("k", [1, 2, 5, 20])
def test_a_wider_baseline_never_loosens_the_bound(k: int) -> None:
    p, q = random_pair(k, 60, 3000, sharpness=1.3, noise=0.8)
    node = top(q, k)

    equal, wide = bound(top(p, k), node, rounding=FLOAT64), bound(top(p, 100), node, rounding=FLOAT64)

    assert float((equal - wide).max()) <= 1e-12
    assert float((wide - full_kl(p, q)).max()) <= 1e-9
    assert float(wide.mean()) > float(equal.mean())


# ------------------------------------------------------------------ edges


def test_with_every_token_listed_the_bound_is_the_divergence_itself() -> None:
    p, q = random_pair(3, 50, 40, sharpness=1.5, noise=1.0)

    torch.testing.assert_close(bound(top(p, 40), top(q, 40), rounding=FLOAT64), full_kl(p, q), rtol=0, atol=1e-10)


def test_identical_lists_are_no_divergence_and_nothing_is_solved() -> None:
    p, _ = random_pair(4, 50, 400, sharpness=1.5, noise=0.0)

    assert float(bound(top(p, 20), top(p, 20)).abs().max()) == 0.0


def listing(probabilities: dict[int, float], *, floor: float | None = None) -> Listed:
    """One position whose last column is empty."""
    values = torch.tensor([[*probabilities.values()]], dtype=torch.float64).log()
    cap = values.amin(1) if floor is None else torch.tensor([floor], dtype=torch.float64)
    return Listed(torch.tensor([[*probabilities, NO_ID]]), torch.cat([values, torch.zeros(1, 1)], 1), values[:, 0], cap)


def test_caps_prove_a_divergence_where_no_token_is_shared() -> None:
    """One cell for all says nothing. But the node has 0.35 for tokens 1 and 2, and the baseline 0.2 for 3 and 4."""
    baseline, node = listing({1: 0.4, 2: 0.4}), listing({3: 0.35, 4: 0.3})

    got = bound(baseline, node, rounding=FLOAT64)

    expected = 0.8 * math.log(0.8 / 0.35) + 0.2 * math.log(0.2 / 0.65)
    assert float(got) == pytest.approx(expected, abs=1e-9)
    assert float(bucket(align(baseline, node))) == 0.0


def test_one_token_each_by_hand() -> None:
    """Token 1 has 0.3 at most at the node, where 0.9 is wanted; what remains is 0.1 against 0.7, in one cell."""
    expected = 0.9 * math.log(0.9 / 0.3) + 0.1 * math.log(0.1 / 0.7)

    assert float(bound(listing({1: 0.9}), listing({2: 0.3}), rounding=FLOAT64)) == pytest.approx(expected, abs=1e-9)


def test_a_token_that_only_the_node_lists_is_held_down_by_the_baselines_cap() -> None:
    """Token 3 has 0.01 at most at the baseline; 0.49 is left there against 0.05, with token 2 in that cell."""
    baseline, node = listing({1: 0.5, 2: 0.01}), listing({1: 0.5, 3: 0.45})

    expected = 0.01 * math.log(0.01 / 0.45) + 0.49 * math.log(0.49 / 0.05)
    assert float(bound(baseline, node, rounding=FLOAT64)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("floor", [-30.0, -200.0, -900.0])
def test_a_tiny_cap_of_the_node_is_taken_at_its_word(floor: float) -> None:
    """A token of 0.2 that can have e^floor at most at the node; e^-900 is no float64 any more."""
    baseline, node = listing({1: 0.8, 2: 0.2}), listing({1: 0.7, 3: math.exp(-700)}, floor=floor)

    got = float(bound(baseline, node, rounding=FLOAT64))

    assert got == pytest.approx(0.8 * math.log(0.8 / 0.7) + 0.2 * (math.log(0.2) - floor), rel=1e-9)


@pytest.mark.parametrize("floor", [-math.inf, math.nan])
def test_a_cap_that_is_not_finite_is_no_cap(floor: float) -> None:
    baseline, node = listing({1: 0.6, 2: 0.3}), listing({1: 0.3, 3: 0.6})
    open_ = Listed(node.ids, node.logprobs, node.actual, torch.tensor([floor], dtype=torch.float64))

    got = bound(baseline, open_)

    assert bool(got.isfinite().all())
    assert float(got) <= float(bound(baseline, node))


def test_a_row_of_nan_stays_nan_and_leaves_its_neighbours_alone() -> None:
    p, q = random_pair(5, 3, 300, sharpness=1.5, noise=1.0)
    baseline, node = top(p, 10), top(q, 10)
    clean = bound(baseline, node)
    node.logprobs[1] = math.nan

    got = bound(baseline, node)

    assert got.isnan().tolist() == [False, True, False]
    torch.testing.assert_close(got[[0, 2]], clean[[0, 2]])


def test_no_positions_give_no_bounds() -> None:
    p, q = random_pair(5, 3, 300, sharpness=1.5, noise=1.0)

    assert len(bound(top(p[:0], 10), top(q[:0], 5))) == 0


def test_long_inputs_are_cut_into_chunks_without_a_seam() -> None:
    p, q = random_pair(6, 40, 60, sharpness=1.5, noise=0.7)
    times = CHUNK // 40 + 2

    many = bound(top(p.repeat(times, 1), 5), top(q.repeat(times, 1), 4))

    assert len(many) > CHUNK
    torch.testing.assert_close(many, bound(top(p, 5), top(q, 4)).repeat(times))


def test_order_of_the_lists_does_not_matter() -> None:
    p, q = random_pair(5, 30, 300, sharpness=1.5, noise=0.7)
    left, right = top(p, 20), top(q, 20)
    turned = Listed(right.ids.flip(1), right.logprobs.flip(1), right.actual, right.floor)

    torch.testing.assert_close(bound(left, right), bound(left, turned))


# ------------------------------------------------------------------ the node asked for the baseline's ids


def test_exact_ids_are_never_above_the_truth_and_never_under_the_sharp_bound_of_shared_lists() -> None:
    p, q = random_pair(9, 100, 5000, sharpness=1.3, noise=0.6)
    baseline = top(p, 20)
    at_node = q.gather(1, baseline.ids.clamp(min=0))

    got = exact_ids(baseline.logprobs, at_node, baseline.held, rounding=FLOAT64)

    assert float((got - full_kl(p, q)).max()) <= 1e-9
    assert float((exact_ids(baseline.logprobs, at_node.float().double(), baseline.held) - full_kl(p, q)).max()) <= 1e-6
    assert float(got.mean()) > 0.6 * float(full_kl(p, q).mean())


def test_the_gap_of_exact_ids_is_the_tail_mass_times_the_divergence_of_the_tails() -> None:
    """Chain rule of the divergence."""
    p, q = random_pair(10, 50, 800, sharpness=1.2, noise=0.8)
    baseline = top(p, 30)
    ids, held = baseline.ids[:, :-1], baseline.held[:, :-1]
    got = exact_ids(baseline.logprobs[:, :-1], q.gather(1, ids), held, rounding=FLOAT64)

    rest_p, rest_q = p.scatter(1, ids, -torch.inf), q.scatter(1, ids, -torch.inf)
    tails = torch.where(rest_p.isinf(), 0.0, rest_p.softmax(1) * (rest_p.log_softmax(1) - rest_q.log_softmax(1)))
    mass = rest_p.logsumexp(1).exp()

    torch.testing.assert_close(full_kl(p, q) - got, mass * tails.nansum(1), rtol=0, atol=1e-10)


# ------------------------------------------------------------------ real servers, full-vocabulary truth


def test_on_real_servers_no_position_is_above_the_truth_and_three_quarters_are_recovered() -> None:
    """75.0 % of the mean truth from the top 20 alone, 56.1 % from the top 5; 64.0 and 42.4 % by one tail cell."""
    recorded, rows, kl = at_truth()
    p, q = listed([pair.baseline for pair in recorded]), listed([pair.node for pair in recorded])

    for k, share, of_bucket in ((20, 0.750, 0.640), (5, 0.561, 0.424)):
        lists = narrowed(p, k), narrowed(q, k)
        got = bound(*lists)[rows]
        assert float((got - kl).max()) <= 1e-6
        assert float(got.mean() / kl.mean()) == pytest.approx(share, abs=0.0007)
        assert float(bucket(align(*lists))[rows].mean() / kl.mean()) == pytest.approx(of_bucket, abs=0.001)


def test_on_real_servers_the_own_token_beyond_rank_k_tightens_the_bound() -> None:
    recorded, rows, kl = at_truth()
    p, q = listed([pair.baseline for pair in recorded]), listed([pair.node for pair in recorded])

    got = bound(p, q)[rows]

    assert float((got - kl).max()) <= 1e-6
    assert float(got.mean() / kl.mean()) == pytest.approx(0.760, abs=0.001)


@pytest.mark.parametrize(
    ("node", "mean"), [("int8-w8a8-outlier", 0.3344), ("int8-w8a8-smoothquant", 0.02305), ("int4-w4g64", 0.3562)]
)
def test_recorded_servers_measure_more_than_by_one_tail_cell(node: str, mean: float) -> None:
    recorded = pairs(node)
    p, q = listed([pair.baseline for pair in recorded]), listed([pair.node for pair in recorded])

    assert float(bound(p, q).mean()) == pytest.approx(mean, rel=0.002)


# ------------------------------------------------------------------ the reference implementation, counter-examples


def llama_cpp_formula(logits_p: Tensor, logits_q: Tensor) -> Tensor:
    """What llama-perplexity --kl-divergence sums on uncompressed logits: tokens of log p > -16 only."""
    log_p, log_q = logits_p.log_softmax(1), logits_q.log_softmax(1)
    return torch.where(log_p > -16, log_p.exp() * (log_p - log_q), 0.0).sum(1)


def test_with_full_lists_the_bound_is_what_llama_cpp_computes() -> None:
    g = torch.Generator().manual_seed(1)
    logits = -1.2 * torch.arange(1, 1501, dtype=torch.float64).log() + torch.randn(8, 1500, generator=g).double()
    noisy = logits + 0.3 * torch.randn(8, 1500, generator=g)

    got = bound(top(logits.log_softmax(1), 1500), top(noisy.log_softmax(1), 1500), rounding=FLOAT64)

    torch.testing.assert_close(got, llama_cpp_formula(logits, noisy), rtol=0, atol=1e-6)


def test_exchanged_tops_are_seen() -> None:
    """A node whose every most probable token is wrong, which an alignment by rank scores 0."""
    p, _ = random_pair(11, 100, 2000, sharpness=1.6, noise=0.0)
    q = with_exchanged_top(p)

    got = bound(top(p, 20), top(q, 20))

    torch.testing.assert_close(got, full_kl(p, q), rtol=0, atol=1e-5)


def test_caps_from_the_least_of_a_list_with_the_own_token_break_the_bound() -> None:
    """What not to do: the own token beyond rank k is no cap. Taken as one it lifts most bounds over the truth."""
    p, q = random_pair(12, 300, 5000, sharpness=1.2, noise=0.6)
    own = torch.randint(2000, 5000, (300,), generator=torch.Generator().manual_seed(0))
    baseline, node = top(p, 5, own=own), top(q, 5, own=own)

    wrong = bound(_capped_by_least(baseline), _capped_by_least(node), rounding=FLOAT64)

    assert float((bound(baseline, node, rounding=FLOAT64) - full_kl(p, q)).max()) <= 1e-9
    assert float((wrong > full_kl(p, q) + 1e-3).double().mean()) > 0.2


def _capped_by_least(side: Listed) -> Listed:
    values = side.logprobs.masked_fill(~side.held, torch.inf)
    return Listed(side.ids, side.logprobs, side.actual, values.amin(1))


def test_default_rounding_is_float32() -> None:
    p, q = random_pair(13, 20, 100, sharpness=2.0, noise=0.5)
    lists = top(p, 20), top(q, 20)

    torch.testing.assert_close(sharp(*lists, align(*lists)), bound(*lists, rounding=FLOAT32), rtol=0, atol=0)
