"""Sizes of functions and files, and how many arguments go by position."""

import ast
import io
import statistics
import tokenize
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src" / "quantwatch"
FILES = sorted(SRC.rglob("*.py"))
EACH_FILE = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))

LONGEST_BODY = 50
MEDIAN_BODY = 8
P90_BODY = 25
LONGEST_FILE = 250
LONGEST_USE_CASE = 150
BY_POSITION = 2
"""The design's budget for arguments by position; PUBLIC and PRIVATE are what the code holds today."""

BY_POSITION_PUBLIC = 4
BY_POSITION_PRIVATE = 5
WITHIN_BUDGET = 0.85

Function = ast.FunctionDef | ast.AsyncFunctionDef
SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


@dataclass(frozen=True)
class Measured:
    """A function: where it is, lines of code in its body, and its arguments by position."""

    name: str
    lines: int
    by_position: tuple[str, ...]
    command: bool

    @property
    def public(self) -> bool:
        return self.name == "__init__" or not self.name.startswith("_")


@cache
def code_lines(text: str) -> frozenset[int]:
    """Numbers of the lines that hold code: no blank lines, comments or docstrings. Asked for more than once."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {line for token in tokens if token.type not in SILENT for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return frozenset(lines)


@cache
def functions(text: str) -> tuple[Measured, ...]:
    return tuple(measured(text))


def measured(text: str) -> Iterator[Measured]:
    lines = sorted(code_lines(text))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, Function):
            arguments = [one.arg for one in (*node.args.posonlyargs, *node.args.args) if one.arg not in ("self", "cls")]
            body = bisect_right(lines, node.end_lineno or lines[-1]) - bisect_left(lines, node.body[0].lineno)
            yield Measured(node.name, body, tuple(arguments), command=is_command(node))


def is_command(function: Function) -> bool:
    """Whether the arguments are options of a command, which Typer gives by name."""
    return any(one.annotation is not None and "typer." in ast.unparse(one.annotation) for one in function.args.args)


@cache
def all_functions() -> tuple[Measured, ...]:
    return tuple(one for path in FILES for one in functions(path.read_text(encoding="utf-8")))


@EACH_FILE
def test_no_function_is_too_long(path: Path) -> None:
    found = functions(path.read_text(encoding="utf-8"))
    assert [(one.name, one.lines) for one in found if one.lines > LONGEST_BODY] == []


@EACH_FILE
def test_no_file_is_too_long(path: Path) -> None:
    budget = LONGEST_USE_CASE if path.parent.name == "flows" else LONGEST_FILE
    assert len(code_lines(path.read_text(encoding="utf-8"))) <= budget


@EACH_FILE
def test_few_arguments_go_by_position(path: Path) -> None:
    found = [one for one in functions(path.read_text(encoding="utf-8")) if not one.command]
    budget = {one: BY_POSITION_PUBLIC if one.public else BY_POSITION_PRIVATE for one in found}
    assert [(one.name, one.by_position) for one in found if len(one.by_position) > budget[one]] == []


def test_half_of_the_functions_are_short() -> None:
    assert statistics.median(one.lines for one in all_functions()) <= MEDIAN_BODY


def test_nine_of_ten_functions_are_not_long() -> None:
    lengths = sorted(one.lines for one in all_functions())
    assert lengths[len(lengths) * 9 // 10] <= P90_BODY


def test_most_functions_take_two_arguments_by_position_at_most() -> None:
    within = [len(one.by_position) <= BY_POSITION for one in all_functions()]
    assert sum(within) >= WITHIN_BUDGET * len(within)


def test_the_house_is_measured() -> None:
    assert len(all_functions()) > 100


SAMPLE = '''\
"""A module."""

# a comment
import os


def short(a, b, /, c, *, d):
    """Say something
    at length.
    """
    # a comment
    x = [
        1,

        2,
    ]
    return """two
lines"""


class A:
    """A class."""

    async def method(self, a):
        return os
'''


def test_code_lines_leave_out_blanks_comments_and_docstrings() -> None:
    assert code_lines(SAMPLE) == {4, 7, 12, 13, 15, 16, 17, 18, 21, 24, 25}


def test_a_function_is_measured_without_its_head() -> None:
    assert [(one.name, one.lines) for one in functions(SAMPLE)] == [("short", 6), ("method", 1)]


def test_arguments_by_position_are_counted_without_self() -> None:
    assert [one.by_position for one in functions(SAMPLE)] == [("a", "b", "c"), ("a",)]
