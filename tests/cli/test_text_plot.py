"""Distributions as lines of blocks."""

import pytest

from quantwatch.cli.plots import require_plots
from quantwatch.cli.text_plot import BLOCKS, LABEL, place, text_plot
from quantwatch.errors import InputError
from quantwatch.flow.calibration import BINS, BINS_A_DECADE, Spread

START = LABEL + 4
"""Where the first bin of a line stands."""


def spread(counts: dict[int, int], zeros: int = 0) -> Spread:
    return Spread("node", tuple(counts.get(i, 0) for i in range(BINS)), zeros, 0.0, 0.0, 0.0)


def test_lines_fit_80_columns_and_bins_stand_under_each_other() -> None:
    lines = list(text_plot([spread({0: 1, BINS - 1: 1}), spread({5: 2})], [("w", 0.01), ("c", 0.02)]))

    assert max(map(len, lines)) <= 80
    assert {line[START - 1] for line in lines[:-1]} == {"|"}
    assert len({len(line) for line in lines[:-1]}) == 1


def test_the_largest_bin_is_full_and_a_single_value_is_still_seen() -> None:
    (line, *_) = text_plot([spread({3: 10_000, 7: 1, 9: 2500})], [])

    assert line[START + 3] == BLOCKS[-1]
    assert line[START + 7] == BLOCKS[1]
    assert line[START + 9] == BLOCKS[4]
    assert line[START + 4] == BLOCKS[0]


def test_the_share_of_exact_zeros_is_a_number() -> None:
    (line, *_) = text_plot([spread({3: 1}, zeros=3)], [])
    assert line[LABEL:START] == " 75|"


def test_nothing_at_all_is_an_empty_line() -> None:
    (line, *_) = text_plot([spread({})], [])
    assert line[START:-1].strip() == ""


def test_marks_stand_where_their_values_are() -> None:
    line = next(text_plot([], [("w", 0.011), ("c", 0.11)]))

    assert line.index("c", START) - line.index("w", START) == BINS_A_DECADE
    assert line[START + place(0.011)] == "w"


@pytest.mark.parametrize(("value", "expected"), [(0.0, 0), (1e-30, 0), (1.01e-7, 0), (1e30, BINS - 1)])
def test_what_is_beyond_an_end_stands_in_the_last_place(value: float, expected: int) -> None:
    assert place(value) == expected


def test_the_axis_has_a_number_at_each_decade() -> None:
    *_, axis = text_plot([], [])
    assert [axis[START + place(1.001 * 10.0**decade) :].split()[0] for decade in (-7, -3, -2, 0, 1)] == [
        *("1e-7", "1e-3", "0.01", "1", "10")
    ]


def test_a_picture_without_its_library_is_refused_with_the_command_that_brings_it() -> None:
    require_plots()
    with pytest.raises(InputError, match=r"pip install 'quantwatch\[plots\]'"):
        require_plots("a_library_that_is_not_there")
