"""Everything that the product says: its string constants, and the messages of its errors, read from the source."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SRC = Path(__file__).resolve().parents[2] / "src" / "quantwatch"
ROOMS = ("act", "config", "daemon", "expose", "flows", "judge", "net.py", "probe", "prompts", "record")
COMMANDS = (
    "accept",
    "admin",
    "calibrate",
    "compare",
    "config",
    "gateway",
    "gateway_guard",
    "history",
    "inspect",
    "output",
    "plots",
    "prompts",
    "servers",
    "store",
)
"""Whose messages the runbook explains; the commands of the lab node and the demo explain themselves."""

ERRORS = (
    *("InputError", "PromptError", "StoreError", "GatewayUnavailable", "GatewayRefused", "Unanswered"),
    *("NodeUnreachable", "NodeTimeout", "NodeFailed", "NodeBusy", "Misconfigured", "OverCap", "OverBudget"),
    *("ReplyInvalid", "ReplyCorrupted", "RowInvalid", "NotACompletion", "invalid"),
    *("Obstacle", "Objection", "Problem", "problem"),
)
"""What carries a message to a user; the last of a line are helpers that make one."""


@dataclass(frozen=True)
class Message:
    """A message of an error: where it stands, and the fixed parts of its text."""

    place: str
    parts: tuple[str, ...]


def constants(node: ast.AST) -> list[str]:
    """Every string within, in order; an f-string gives its fixed parts."""
    return [one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]


@cache
def said() -> tuple[str, ...]:
    """Every string of the product that is no docstring."""
    found = []
    for path in sorted(SRC.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        alone = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}
        used = (one for one in ast.walk(tree) if isinstance(one, ast.Constant) and id(one) not in alone)
        found += [one.value for one in used if isinstance(one.value, str)]
    return tuple(found)


def _files() -> Iterator[Path]:
    for room in ROOMS:
        place = SRC / room
        yield from sorted(place.rglob("*.py")) if place.is_dir() else [place]
    yield from (SRC / "cli" / f"{name}.py" for name in COMMANDS)


def _raises(call: ast.Call, path: Path) -> bool:
    name = ast.unparse(call.func).rpartition(".")[2]
    return name in ERRORS or (name == "ValueError" and path.parent.name == "config")


@cache
def messages() -> tuple[Message, ...]:
    """Every message of an error that a user can meet and that has fixed words."""
    found = []
    for path in _files():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and _raises(node, path):
                parts = tuple(text.strip(" ;,:.") for one in node.args for text in constants(one))
                worded = tuple(text for text in parts if " " in text)
                if worded:
                    found.append(Message(f"{path.relative_to(SRC)}:{node.lineno}", worded))
    return tuple(found)
