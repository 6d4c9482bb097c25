"""Which token ids belong to a protocol: those that are written with its marks alone (`{`, `":`, `"},`).

A tokenizer joins neighbouring marks into tokens of their own, so a text with every run of up to three marks is given to
it, and the tokens that came of it are looked at. Whitespace before a mark is part of many tokens and does not count.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import product

BLANKS = "\u0120\u010a\u2581 \n\t"
"""What tokenizers write for a space or a line's end inside a token, and these themselves."""

LONGEST_RUN = 3
"""Marks in a row; longer runs are put together from shorter tokens."""


def sample(marks: Sequence[str]) -> str:
    """A text in which every mark stands between letters, with and without a space before it.

    Marks of one character stand there in every run of up to three; a tag is a token of its own or none.
    """
    single = [mark for mark in marks if len(mark) == 1]
    runs = ["".join(run) for length in range(2, LONGEST_RUN + 1) for run in product(single, repeat=length)]
    runs += marks
    return "".join(f"a{run}a {run}" for run in runs)


def protocol_ids(tokens: Iterable[tuple[int, str]], marks: Sequence[str]) -> frozenset[int]:
    """The ids of the tokens that consist of marks. tokens: id and text of each token of the sample."""
    only = re.compile("(?:" + "|".join(re.escape(mark) for mark in sorted(marks, key=len, reverse=True)) + ")+")
    return frozenset(token for token, text in tokens if only.fullmatch(text.strip(BLANKS)))
