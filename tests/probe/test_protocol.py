"""Which token ids belong to a protocol."""

import re

from quantwatch.probe.protocol import protocol_ids, sample

MARKS = ("{", "}", ":", '"')


def test_every_run_of_up_to_three_marks_stands_between_letters_with_and_without_a_space() -> None:
    text = sample(MARKS)
    runs = set(re.findall(r"(?<=a)[^a ]+(?=a)", text))
    assert len(runs) == 4 + 16 + 64
    assert {f" {run}" for run in runs} <= set(re.findall(r" [^a ]+", text))


def test_a_tag_stands_alone() -> None:
    assert sample(["<tool_call>"]) == "a<tool_call>a <tool_call>"


def test_tokens_of_marks_alone_are_protocol_whatever_blank_is_before_them() -> None:
    tokens = [(1, "{"), (2, '\u0120{"'), (3, '\u2581":'), (4, "a"), (5, '"a'), (6, "\u0120"), (7, "}\n"), (8, "{{{{")]
    assert protocol_ids(tokens, MARKS) == {1, 2, 3, 7, 8}


def test_a_tag_is_protocol_as_a_whole() -> None:
    tokens = [(1, "<tool_call>"), (2, "tool"), (3, "<"), (4, "{<tool_call>")]
    assert protocol_ids(tokens, ["<tool_call>", "{"]) == {1, 4}


def test_characters_that_mean_something_in_a_pattern_are_taken_as_they_are() -> None:
    assert protocol_ids([(1, "a"), (2, ".")], ["."]) == {2}
