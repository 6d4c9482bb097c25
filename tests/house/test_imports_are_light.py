"""Quick commands stay quick: what they import never drags in tensors or statistics."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ["torch", "transformers", "numpy", "scipy", "pandas", "matplotlib"]

PROGRAM = """\
import contextlib, io, json, sys
arguments = json.loads(sys.argv[1])
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    import quantwatch.cli.main
    code = 0 if arguments is None else quantwatch.cli.main.main(arguments)
print(json.dumps([code, sorted(name for name in sys.modules if "." not in name)]))
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
]


def modules_after(arguments: list[str] | None) -> tuple[int, set[str]]:
    """Exit code of a command in a fresh interpreter, and the packages that it has imported by then."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)  # noqa: S603, our own program
    code, modules = json.loads(done.stdout)
    return code, set(modules)


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: " ".join(arguments or ["import"]))
def test_a_quick_command_imports_nothing_heavy(arguments: list[str] | None) -> None:
    code, modules = modules_after(arguments)
    assert code == 0
    assert modules & set(HEAVY) == set()


def test_the_modules_are_seen() -> None:
    assert {"quantwatch", "typer"} <= modules_after(None)[1]
