"""Everything is caught where a command must end with a code and a message, where a watch must outlive a run, or a run
its evidence, around the code of packages that we do not know, and where our own code runs inside a server of somebody
else.
"""

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src" / "quantwatch"
FILES = sorted(SRC.rglob("*.py"))
ALLOWED = {"act/package.py": 3, "cli/main.py": 1, "cli/gathering.py": 1, "flows/evidence.py": 1, "flows/turn.py": 1}
ALLOWED |= {"flows/late_tokens.py": 1, "vllm_plugin/processor.py": 3, "vllm_plugin/start.py": 1}
BROAD = {"Exception", "BaseException"}


def names_in(node: ast.expr | None) -> set[str]:
    """Names of the exceptions that an expression lists; nothing at all stands for every one."""
    if node is None:
        return {"BaseException"}
    return {part.id if isinstance(part, ast.Name) else getattr(part, "attr", "") for part in ast.walk(node)}


def broad_handlers(text: str) -> list[int]:
    """Lines that catch everything: `except Exception`, a bare except, or suppress(Exception)."""
    lines = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ExceptHandler) and names_in(node.type) & BROAD:
            lines.append(node.lineno)
        elif isinstance(node, ast.Call) and "suppress" in names_in(node.func):
            lines += [node.lineno for argument in node.args if names_in(argument) & BROAD]
    return lines


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))
def test_only_a_command_a_turn_evidence_and_the_wall_around_packages_catch_everything(path: Path) -> None:
    allowed = ALLOWED.get(path.relative_to(SRC).as_posix(), 0)
    assert len(broad_handlers(path.read_text(encoding="utf-8"))) == allowed


CAUGHT = [
    "try: f()\nexcept Exception: pass",
    "try: f()\nexcept BaseException as exc: pass",
    "try: f()\nexcept: pass",
    "try: f()\nexcept (ValueError, Exception): pass",
    "try: f()\nexcept builtins.Exception: pass",
    "try: f()\nexcept* Exception: pass",
    "with suppress(Exception): f()",
    "with contextlib.suppress(ValueError, BaseException): f()",
]
FINE = ["try: f()\nexcept ValueError: pass", "with suppress(OSError): f()", "raise Exception", "f(Exception)"]


@pytest.mark.parametrize("text", CAUGHT)
def test_a_broad_handler_is_found(text: str) -> None:
    assert len(broad_handlers(text)) == 1


@pytest.mark.parametrize("text", FINE)
def test_a_narrow_handler_is_left_alone(text: str) -> None:
    assert broad_handlers(text) == []
