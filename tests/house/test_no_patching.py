"""Nothing is patched: what a test needs to be different, it passes in."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
FILES = sorted(TESTS.rglob("*.py"))
MOCKS = {"mock", "unittest.mock", "pytest_mock"}
PATCHING = {"setattr", "delattr", "setitem", "delitem"}


def patches(text: str) -> list[int]:
    """Lines that patch: monkeypatch.setattr and its kin, anything of unittest.mock, the fixture of pytest-mock."""
    lines = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute):
            on = ast.unparse(node.value)
            if (on == "monkeypatch" and node.attr in PATCHING) or (on, node.attr) == ("mock", "patch"):
                lines.append(node.lineno)
        elif isinstance(node, ast.Import):
            lines += [node.lineno for alias in node.names if alias.name in MOCKS]
        elif isinstance(node, ast.ImportFrom):
            names = {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
            lines += [node.lineno] * bool(names & MOCKS)
        elif isinstance(node, ast.arg) and node.arg == "mocker":
            lines.append(node.lineno)
    return lines


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TESTS)))
def test_a_test_patches_nothing(path: Path) -> None:
    assert patches(path.read_text(encoding="utf-8")) == []


CAUGHT = [
    "monkeypatch.setattr(x, 'y', 1)",
    "monkeypatch.setitem(x, 'y', 1)",
    "import unittest.mock",
    "from unittest import mock",
    "from unittest.mock import patch",
    "import mock as m",
    "@mock.patch('a.b')\ndef f(): pass",
    "def test_x(mocker): pass",
]
FINE = [
    "monkeypatch.setenv('A', 'b')",
    "monkeypatch.chdir(x)",
    "setattr(x, 'y', 1)",
    "import unittest",
    "text = 'mock.patch'",
]


@pytest.mark.parametrize("text", CAUGHT)
def test_patching_is_found(text: str) -> None:
    assert patches(text) == [1]


@pytest.mark.parametrize("text", FINE)
def test_what_is_no_patching_is_left_alone(text: str) -> None:
    assert patches(text) == []
