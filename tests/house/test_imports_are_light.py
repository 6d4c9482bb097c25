"""Quick commands stay quick: what they import never drags in tensors or statistics."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ["torch", "transformers", "numpy", "scipy", "pandas", "matplotlib"]

PROGRAM = """\
import contextlib, io, json, sys
seen, told = set(), []
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        import quantwatch.cli.main
        code = 0 if arguments is None else quantwatch.cli.main.main(arguments)
    found = {name for name in sys.modules if "." not in name}
    told.append([code, sorted(found - seen)])
    seen |= found
print(json.dumps(told))
"""

COMMANDS: list[list[str] | None] = [
    None,
    ["--help"],
    ["version"],
    ["compare", "--help"],
    ["accept", "--help"],
    ["schema", "--plan"],
    ["handshake", "--help"],
    ["calibrate", "--help"],
    ["schema"],
    ["check-config", "configs/minimal.yaml"],
    ["prompts", "list"],
    ["prompts", "check", "golden_prompts/math.yaml"],
    ["run", "--help"],
    ["serve", "--help"],
    ["inspect", "--help"],
    ["gateway", "test", "--help"],
    ["drill", "--help"],
    ["status", "--help"],
    ["watch", "--help"],
    ["support-bundle", "--help"],
    ["history", "--help"],
    ["show", "--help"],
    ["diff", "--help"],
    ["report", "--help"],
    ["store", "--help"],
    ["enroll", "--help"],
    ["references", "--help"],
    ["toolkit", "--help"],
    ["toolkit", "outliers", "--help"],
    ["toolkit", "check-checkpoint", "--help"],
    ["toolkit", "smooth", "--help"],
    ["toolkit", "quantize", "--help"],
    ["toolkit", "growth", "--help"],
    ["toolkit", "export", "--help"],
    ["toolkit", "observers", "--help"],
    ["toolkit", "diagnose", "--help"],
]


def name(arguments: list[str] | None) -> str:
    return " ".join(arguments or ["import"])


@cache
def told() -> dict[str, tuple[int, set[str]]]:
    """Exit code of every command, and the packages that it was the first to import, one after the other in one fresh
    interpreter: what none of them has imported by the end, none imports alone.
    """
    command = [sys.executable, "-c", PROGRAM, json.dumps(COMMANDS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)  # noqa: S603, our own program
    return {name(one): (code, set(found)) for one, (code, found) in zip(COMMANDS, json.loads(done.stdout), strict=True)}


@pytest.mark.parametrize("arguments", COMMANDS, ids=name)
def test_a_quick_command_imports_nothing_heavy(arguments: list[str] | None) -> None:
    code, modules = told()[name(arguments)]
    assert code == 0
    assert modules & set(HEAVY) == set()


def test_the_modules_are_seen() -> None:
    assert {"quantwatch", "typer"} <= told()[name(None)][1]


def test_what_a_later_command_imports_is_seen() -> None:
    """Each in its own place, or nothing heavy would be found beyond the first."""
    assert "yaml" in set().union(*(modules for _, modules in list(told().values())[1:]))
