"""docs/failures.md: enough reports, each once, and every kind of failure with tests that exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
REPORT = re.compile(r"\[([^\]#]+)#(\d+)\]\(https://github\.com/([\w.-]+/[\w.-]+)/issues/(\d+)\)")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
KINDS = re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]


@cache
def names_in(file: str) -> frozenset[str]:
    """Names of the test functions in a file."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))


def title(kind: str) -> str:
    return kind.splitlines()[0]


def test_there_are_a_hundred_distinct_reports() -> None:
    reports = [(repository, number) for _, _, repository, number in REPORT.findall(TEXT)]

    assert len(reports) >= 100
    assert [one for one in reports if reports.count(one) > 1] == []


def test_a_link_says_where_it_leads() -> None:
    assert [one for one in REPORT.findall(TEXT) if one[1] != one[3]] == []


@pytest.mark.parametrize("kind", KINDS, ids=title)
def test_every_kind_has_reports_a_detector_a_verdict_and_tests_that_exist(kind: str) -> None:
    assert REPORT.search(kind)
    assert re.search(r"^- \*\*Detector:\*\* \S", kind, re.MULTILINE)
    assert re.search(r"^- \*\*Verdict:\*\* \S", kind, re.MULTILINE)
    named = TEST.findall(kind)
    assert named
    assert [f"{file}::{name}" for file, name in named if name not in names_in(file)] == []


@pytest.mark.parametrize("kind", KINDS, ids=title)
def test_every_source_that_a_detector_names_exists(kind: str) -> None:
    sources = re.findall(r"`((?:\w+/)?\w+\.py)`", kind)

    assert [one for one in sources if not (ROOT / "src" / "quantwatch" / one).exists()] == []


def test_every_row_has_a_report_an_engine_and_what_was_seen() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("| [")]

    assert len(rows) > 80
    assert [row for row in rows if len([cell for cell in row.strip("| ").split(" | ") if cell.strip()]) != 3] == []
