"""One token id to the limit."""

import pytest

from quantwatch.measure.corruption import MIN_RUN, one_id_to_the_limit


@pytest.mark.parametrize(
    ("ids", "limit", "broken"),
    [
        ([0] * 32, 32, True),
        ([0] * 31, 32, False),
        ([0] * 31 + [5], 32, False),
        ([0] * (MIN_RUN - 1), MIN_RUN - 1, False),
        ([], 32, False),
    ],
)
def test_only_one_id_repeated_to_the_limit_is_a_sign(ids: list[int], limit: int, broken: bool) -> None:
    assert one_id_to_the_limit(ids, limit) is broken
