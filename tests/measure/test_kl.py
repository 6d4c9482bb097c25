"""The bucket bound: never above the truth, sharp where it should be, and better than what is found in the wild."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from quantwatch.flow.distribution import NO_ID
from quantwatch.measure.compare import Scope, position_values
from quantwatch.measure.kl import CHUNK, FLOAT32, FLOAT64, align, bucket
from quantwatch.measure.listed import Listed, listed
from support.recordings import at_truth, pairs, truth
from support.vocabulary import full_kl, random_pair, top, with_exchanged_top


@pytest.mark.parametrize("k", [1, 5, 20, 100])
@pytest.mark.parametrize(("sharpness", "noise"), [(1.2, 0.05), (1.2, 0.8), (2.6, 0.3), (4.0, 2.0)])
@pytest.mark.parametrize("with_own", [False, True])
def test_bound_is_never_above_the_full_vocabulary_truth(k: int, sharpness: float, noise: float, with_own: bool) -> None:
    p, q = random_pair(1000 * k + int(10 * noise), 64, 5000, sharpness=sharpness, noise=noise)
    own = torch.randint(5000, (64,), generator=torch.Generator().manual_seed(k)) if with_own else None

    bound = bucket(align(top(p, k, own=own), top(q, k, own=own)), rounding=FLOAT64)

    assert bool((bound >= 0).all())
    assert float((bound - full_kl(p, q)).max()) <= 1e-9


@given(seed=st.integers(0, 2**32 - 1), k=st.integers(1, 50), sharpness=st.floats(0.5, 6), noise=st.floats(0, 6))
@settings(max_examples=150, deadline=None)
def test_float32_rounding_never_lifts_the_bound_over_the_truth(
    seed: int, k: int, sharpness: float, noise: float
) -> None:
    p, q = random_pair(seed, 4, 400, sharpness=sharpness, noise=noise)

    rounded = align(top(p.float().double(), k), top(q.float().double(), k))

    assert float((bucket(rounded) - full_kl(p, q)).max()) <= 1e-6


@pytest.mark.parametrize("tail", [1e-4, 1e-7, 1e-9, 1e-12])
def test_a_nearly_certain_node_does_not_break_the_bound_by_rounding(tail: float) -> None:
    """1 - Q(I) is all rounding error here; taken at face value it would put log(1/0) into the bound."""
    vocabulary = 1000
    q = torch.full((1, vocabulary), math.log(tail / (vocabulary - 1)), dtype=torch.float64)
    q[0, 0] = math.log1p(-tail)
    p = torch.full((1, vocabulary), math.log(0.01 / (vocabulary - 1)), dtype=torch.float64)
    p[0, 0] = math.log(0.99)

    rounded = align(top(p.float().double(), 20), top(q.float().double(), 20))

    assert float(bucket(rounded) - full_kl(p, q)) <= 1e-6


@pytest.mark.parametrize("gap", [14.0, 17.0, 20.0, 25.0])
def test_numbers_computed_in_float32_as_servers_do_never_lift_the_bound(gap: float) -> None:
    """A nearly certain node prints exactly 0.0: its error is absolute, not relative to what it prints."""
    vocabulary, g = 151_936, torch.Generator().manual_seed(int(gap))
    spread = torch.randn(1, vocabulary, generator=g, dtype=torch.float64).bfloat16().double()
    node, baseline = spread.clone(), spread.clone()
    node[0, 0], baseline[0, 0] = spread.logsumexp(1).item() + gap, spread.logsumexp(1).item() + 4.6

    p, q = baseline.float().log_softmax(1).double(), node.float().log_softmax(1).double()

    truth_ = full_kl(baseline.log_softmax(1), node.log_softmax(1))
    assert float(bucket(align(top(p, 20), top(q, 20))) - truth_) <= 5e-6


def test_with_every_token_listed_the_bound_is_the_divergence_itself() -> None:
    p, q = random_pair(3, 50, 40, sharpness=1.5, noise=1.0)

    bound = bucket(align(top(p, 40), top(q, 40)), rounding=FLOAT64)

    torch.testing.assert_close(bound, full_kl(p, q), rtol=0, atol=1e-10)


def test_direction_is_baseline_against_node() -> None:
    """KL((.5 .5) || (.9 .1)) = .5 ln(.5/.9) + .5 ln(.5/.1), by hand 0.5108; the other way round it is 0.3681."""
    p, q = torch.tensor([[0.5, 0.5]], dtype=torch.float64).log(), torch.tensor([[0.9, 0.1]], dtype=torch.float64).log()

    assert float(bucket(align(top(p, 2), top(q, 2)))) == pytest.approx(0.5108256, abs=1e-5)
    assert float(bucket(align(top(q, 2), top(p, 2)))) == pytest.approx(0.3680642, abs=1e-5)


def test_tokens_of_one_side_share_one_cell() -> None:
    """P lists a, b; Q lists a, c. By hand: .6 ln(.6/.3) + .4 ln(.4/.7) = 0.1920."""
    p = Listed(ids=torch.tensor([[1, 2]]), logprobs=torch.tensor([[0.6, 0.3]]).double().log(), **_unused())
    q = Listed(ids=torch.tensor([[1, 3]]), logprobs=torch.tensor([[0.3, 0.5]]).double().log(), **_unused())

    assert float(bucket(align(p, q))) == pytest.approx(0.6 * math.log(2) + 0.4 * math.log(4 / 7), abs=1e-6)


def test_nothing_in_common_proves_nothing() -> None:
    p = Listed(ids=torch.tensor([[1, 2]]), logprobs=torch.tensor([[0.6, 0.3]]).double().log(), **_unused())
    q = Listed(ids=torch.tensor([[3, 4]]), logprobs=torch.tensor([[0.6, 0.3]]).double().log(), **_unused())

    assert float(bucket(align(p, q))) == 0.0


def test_order_of_the_lists_does_not_matter() -> None:
    p, q = random_pair(5, 30, 300, sharpness=1.5, noise=0.7)
    left, right = top(p, 20), top(q, 20)
    turned = Listed(right.ids.flip(1), right.logprobs.flip(1), right.actual, right.floor)

    torch.testing.assert_close(bucket(align(left, right)), bucket(align(left, turned)))


def test_long_inputs_are_cut_into_chunks_without_a_seam() -> None:
    p, q = random_pair(6, 40, 60, sharpness=1.5, noise=0.7)
    times = CHUNK // (6 * 6 * 40) + 2

    many = bucket(align(top(p.repeat(times, 1), 5), top(q.repeat(times, 1), 5)))

    assert len(many) * 6 * 6 > CHUNK
    torch.testing.assert_close(many, bucket(align(top(p, 5), top(q, 5))).repeat(times))


def test_different_numbers_of_positions_are_refused() -> None:
    p, q = random_pair(7, 4, 60, sharpness=1.5, noise=0.7)

    with pytest.raises(ValueError, match="numbers of positions differ: 4 against 3"):
        align(top(p, 5), top(q[:3], 5))


@pytest.mark.parametrize("widths", [(300, 20), (20, 300), (3, 1)])
def test_lists_of_different_width_are_matched_by_id(widths: tuple[int, int]) -> None:
    p, q = random_pair(8, 6, 400, sharpness=1.5, noise=1.0)
    baseline, node = top(p, widths[0]), top(q, widths[1])

    shared = align(baseline, node)

    assert shared.both.any()
    for row in range(6):
        at_node = dict(zip(node.ids[row].tolist(), node.logprobs[row].tolist(), strict=True))
        listed_by_baseline = set(baseline.ids[row].tolist())
        for column, token in enumerate(baseline.ids[row].tolist()):
            assert bool(shared.both[row, column]) == (token in at_node and token != NO_ID)
            assert float(shared.q[row, column]) == (at_node[token] if shared.both[row, column] else 0.0)
        expected = [token in listed_by_baseline and token != NO_ID for token in node.ids[row].tolist()]
        assert shared.node_both[row].tolist() == expected


# ------------------------------------------------------------------ real servers, full-vocabulary truth


def test_on_real_servers_no_position_is_above_the_truth() -> None:
    recorded, rows, kl = at_truth()
    p, q = listed([pair.baseline for pair in recorded]), listed([pair.node for pair in recorded])

    bound = bucket(align(p, q))[rows]

    assert len(bound) == 78
    assert float((bound - kl).max()) <= 1e-6


def test_on_real_servers_the_bound_recovers_the_published_share() -> None:
    """64.0 % of the mean truth, 0.5322 nat, from the top 20 alone."""
    recorded, rows, kl = at_truth()
    p, q = listed([pair.baseline for pair in recorded]), listed([pair.node for pair in recorded])

    bound = bucket(align(without_own(p), without_own(q)))[rows]

    assert float(kl.mean()) == pytest.approx(0.5322, abs=1e-4)
    assert float(bound.mean() / kl.mean()) == pytest.approx(0.640, abs=0.001)


def test_the_sequences_own_token_tightens_the_bound() -> None:
    """A token beyond rank k that both sides list stands in a cell of its own: 65.9 % instead of 64.0 %."""
    recorded, rows, kl = at_truth()
    p, q = listed([pair.baseline for pair in recorded]), listed([pair.node for pair in recorded])

    bound = bucket(align(p, q))[rows]

    assert float(bound.mean() / kl.mean()) == pytest.approx(0.659, abs=0.001)


def without_own(side: Listed) -> Listed:
    """The top k alone."""
    return Listed(side.ids[:, :-1], side.logprobs[:, :-1], side.actual, side.floor)


def test_actual_tokens_align_with_the_truth_file() -> None:
    """Guards the two tests above: the same positions, the same tokens, the same probabilities."""
    recorded, rows, _ = at_truth()
    values = position_values(recorded, Scope.ALL)

    expected = torch.tensor(truth()["logprob_p_actual"], dtype=torch.float64)

    torch.testing.assert_close(values.logprob_baseline[rows], expected, rtol=0, atol=1e-4)


# ------------------------------------------------------------------ counter-examples


def rank_aligned_softmax(p: Listed, q: Listed) -> Tensor:
    """What not to do, 1: renormalise each list and compare rank by rank."""
    a = p.logprobs[:, :-1].sort(1, descending=True).values.log_softmax(1)
    b = q.logprobs[:, :-1].sort(1, descending=True).values.log_softmax(1)
    return (a.exp() * (a - b)).sum(1)


def filled_with_epsilon(p: Listed, q: Listed) -> Tensor:
    """What not to do, 2: a token missing on the other side gets probability 1e-12."""
    shared = align(p, q)
    node = torch.where(shared.both, shared.q, math.log(1e-12))
    return (shared.p.exp() * (shared.p - node) * p.held).sum(1)


def test_swapped_argmaxes_are_seen() -> None:
    """A node whose every most probable token is wrong."""
    p, _ = random_pair(11, 100, 2000, sharpness=1.6, noise=0.0)
    q = with_exchanged_top(p)

    bound = bucket(align(top(p, 20), top(q, 20)))

    torch.testing.assert_close(bound, full_kl(p, q), rtol=0, atol=1e-5)
    assert float(bound.mean()) > 0.05


def test_rank_alignment_is_blind_to_swapped_argmaxes() -> None:
    p, _ = random_pair(11, 100, 2000, sharpness=1.6, noise=0.0)

    wrong = rank_aligned_softmax(top(p, 20), top(with_exchanged_top(p), 20))

    assert float(wrong.abs().max()) < 1e-12


def test_filling_with_epsilon_invents_divergence() -> None:
    """Ordinary noise at rank k becomes several times the truth, which would isolate a healthy node."""
    p, q = random_pair(12, 200, 5000, sharpness=1.2, noise=0.05)

    wrong = filled_with_epsilon(top(p, 20), top(q, 20))

    assert float(wrong.mean()) > 5 * float(full_kl(p, q).mean())


def test_on_real_servers_the_counter_examples_miss_as_published() -> None:
    """Rank alignment reads 0.132 where at least 0.304 is true, on the 342 recorded positions."""
    recorded = pairs("int8-w8a8-outlier")
    p, q = listed([pair.baseline for pair in recorded]), listed([pair.node for pair in recorded])

    assert float(rank_aligned_softmax(p, q).mean()) == pytest.approx(0.132, abs=0.003)
    assert float(bucket(align(p, q)).mean()) == pytest.approx(0.304, abs=0.001)


def _unused() -> dict[str, Tensor]:
    return {"actual": torch.zeros(1, dtype=torch.float64), "floor": torch.zeros(1, dtype=torch.float64)}


def test_default_rounding_is_float32() -> None:
    """Servers compute and print float32, so that is what the bound must allow for unless told otherwise."""
    p, q = random_pair(13, 20, 100, sharpness=2.0, noise=0.5)
    shared = align(top(p, 20), top(q, 20))

    torch.testing.assert_close(bucket(shared), bucket(shared, rounding=FLOAT32), rtol=0, atol=0)
