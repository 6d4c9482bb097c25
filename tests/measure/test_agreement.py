"""Tokens that both sides name among their most probable ones, ties and lists of different width."""

import pytest
import torch

from quantwatch.flow.distribution import NO_ID
from quantwatch.measure.agreement import same_top, topk_overlap
from quantwatch.measure.kl import align
from quantwatch.measure.listed import Listed
from support.vocabulary import random_pair, top


def ranked(*tokens: int, values: tuple[float, ...] = (), own: tuple[int, float] | None = None) -> Listed:
    """One position: tokens in order of rank, and the sequence's own token beyond them."""
    given = values or tuple(-1.0 - i for i in range(len(tokens)))
    own_id, own_value = own or (NO_ID, 0.0)
    return Listed(
        torch.tensor([[*tokens, own_id]]),
        torch.tensor([[*given, own_value]], dtype=torch.float64),
        torch.tensor([own_value], dtype=torch.float64),
        torch.tensor([min(given)], dtype=torch.float64),
    )


def overlap(baseline: Listed, node: Listed) -> float:
    return float(topk_overlap(baseline, node, align(baseline, node)))


def agree(baseline: Listed, node: Listed) -> bool:
    return bool(same_top(baseline, node, align(baseline, node)))


def test_overlap_is_the_share_of_tokens_in_both_lists() -> None:
    assert overlap(ranked(1, 2, 3, 4), ranked(4, 5, 1, 6)) == 0.5
    assert overlap(ranked(1, 2), ranked(2, 1)) == 1.0
    assert overlap(ranked(1, 2), ranked(3, 4)) == 0.0


@pytest.mark.parametrize("turned", [False, True])
def test_of_the_wider_list_only_the_first_k_count(turned: bool) -> None:
    """Tokens 3 and 4 are listed by both, but beyond rank 2 of the wider side."""
    wide, narrow = ranked(1, 2, 3, 4), ranked(1, 3)

    assert (overlap(narrow, wide) if turned else overlap(wide, narrow)) == 0.5


def test_the_own_token_beyond_rank_k_is_not_within_the_top_k() -> None:
    assert overlap(ranked(1, 2, own=(9, -7.0)), ranked(1, 9)) == 0.5
    assert overlap(ranked(1, 2, own=(9, -7.0)), ranked(1, 3, own=(9, -8.0))) == 0.5


def test_tokens_that_tie_with_rank_k_count_as_within_it() -> None:
    """Token 3 of the wider list could as well stand at rank 2."""
    assert overlap(ranked(1, 2, 3, values=(-1.0, -2.0, -2.0)), ranked(1, 3)) == 1.0


def test_a_list_agrees_with_itself_wholly_even_where_all_tie() -> None:
    tied = ranked(1, 2, 3, 4, values=(-1.4, -1.4, -1.4, -1.4))

    assert overlap(tied, tied) == 1.0
    assert overlap(tied, ranked(3, 4)) == 1.0
    assert agree(tied, ranked(4, 9))


def test_random_lists_of_different_width_against_sets() -> None:
    p, q = random_pair(3, 50, 400, sharpness=1.4, noise=1.0)
    wide, narrow = top(p, 100), top(q, 10)

    got = topk_overlap(wide, narrow, align(wide, narrow))

    first, second = p.topk(10, dim=1).indices.tolist(), q.topk(10, dim=1).indices.tolist()
    expected = [len(set(a) & set(b)) / 10 for a, b in zip(first, second, strict=True)]
    torch.testing.assert_close(got, torch.tensor(expected, dtype=torch.float64))


def test_tops_agree_by_id_across_different_widths() -> None:
    assert agree(ranked(7, 2, 3), ranked(7))
    assert not agree(ranked(7, 2, 3), ranked(2))
