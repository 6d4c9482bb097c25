"""The total variation interval holds the truth; the entropy is a lower bound."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from quantwatch.flow.distribution import NO_ID
from quantwatch.measure.kl import FLOAT64, align
from quantwatch.measure.listed import Listed
from quantwatch.measure.variation import entropy, total_variation
from support.vocabulary import random_pair, rounded, top


def distance(p: Tensor, q: Tensor) -> Tensor:
    return 0.5 * (p.exp() - q.exp()).abs().sum(1)


def interval(baseline: Listed, node: Listed) -> tuple[Tensor, Tensor]:
    return total_variation(baseline, node, align(baseline, node), rounding=FLOAT64)


@given(
    seed=st.integers(0, 2**32 - 1),
    widths=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    sharpness=st.floats(0.5, 5),
    noise=st.floats(0, 4),
    printed=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_the_interval_holds_the_truth(
    seed: int, widths: tuple[int, int], sharpness: float, noise: float, printed: bool
) -> None:
    p, q = random_pair(seed, 6, 300, sharpness=sharpness, noise=noise)
    own = torch.randint(300, (6,), generator=torch.Generator().manual_seed(seed))
    lists = top(p, widths[0], own=own), top(q, widths[1], own=own)
    if printed:
        lists = rounded(lists[0]), rounded(lists[1])

    low, high = total_variation(*lists, align(*lists))

    truth = distance(p, q)
    assert float((low - truth).max()) <= 1e-9
    assert float((truth - high).max()) <= 1e-9
    assert bool((low >= 0).all())
    assert bool((high <= 1).all())


def test_with_every_token_listed_the_interval_is_the_distance() -> None:
    p, q = random_pair(3, 40, 30, sharpness=1.5, noise=1.0)

    low, high = interval(top(p, 30), top(q, 30))

    torch.testing.assert_close(low, distance(p, q), rtol=0, atol=1e-9)
    torch.testing.assert_close(high, distance(p, q), rtol=0, atol=1e-9)


def test_equal_lists_may_be_equal_distributions_or_differ_in_the_tail() -> None:
    p, _ = random_pair(4, 40, 300, sharpness=1.5, noise=0.0)
    side = top(p, 20)

    low, high = interval(side, side)

    assert float(low.max()) == 0.0
    torch.testing.assert_close(high, 1 - side.logprobs[:, :20].exp().sum(1), rtol=0, atol=1e-9)


def listing(probabilities: dict[int, float]) -> Listed:
    values = torch.tensor([[*probabilities.values()]], dtype=torch.float64).log()
    ids = torch.tensor([[*probabilities, NO_ID]])
    return Listed(ids, torch.cat([values, torch.zeros(1, 1)], 1), values[:, 0], values.amin(1))


def test_both_ends_by_hand() -> None:
    """Shared: 0.4 in common. Token 2 has 0.1 at most at the node, token 3 0.2 at the baseline; left: 0.2 and 0.5.

    At most in common: 0.4, 0.1 on token 2, 0.1 on token 3, and the lesser of what is left, 0.2 - 0.1 and 0.5 - 0.1.
    """
    baseline, node = listing({1: 0.6, 2: 0.2}), listing({1: 0.4, 3: 0.1})

    low, high = interval(baseline, node)

    assert float(low) == pytest.approx(1 - (0.4 + 0.1 + 0.1 + 0.1), abs=1e-9)
    assert float(high) == pytest.approx(0.6, abs=1e-9)


def test_the_node_cannot_give_a_token_more_than_it_has_left() -> None:
    """Tokens 2 and 3 of 0.2 each are under the node's cap, but only 0.1 is left there."""
    baseline, node = listing({1: 0.6, 2: 0.2, 3: 0.2}), listing({1: 0.6, 4: 0.3})

    low, _ = interval(baseline, node)

    assert float(low) == pytest.approx(1 - (0.6 + 0.1 + 0.0), abs=1e-9)


def test_entropy_is_never_above_that_of_the_whole_vocabulary() -> None:
    p, _ = random_pair(5, 100, 3000, sharpness=1.3, noise=0.0)
    whole = -(p.exp() * p).sum(1)

    got = entropy(top(p, 20))

    assert float((got - whole).max()) <= 0
    assert float((entropy(top(p, 100)) - got).min()) > 0


def test_entropy_by_hand() -> None:
    """0.5, 0.25 and one cell of 0.25: 1.5 bits."""
    assert float(entropy(listing({1: 0.5, 2: 0.25}))) == pytest.approx(1.5 * math.log(2), abs=1e-12)


def test_a_certain_token_has_no_entropy() -> None:
    """Printed as 0, with others that leave 1 - sum under 0 by rounding."""
    assert float(entropy(listing({1: 1.0, 2: 1e-9}))) == pytest.approx(0.0, abs=1e-7)
