"""The root of the repository holds what the design names, and nothing else."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ALLOWED = {
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "Dockerfile",
    "src",
    "tests",
    "configs",
    "golden_prompts",
    "docs",
}


def top_level() -> set[str]:
    """Names at the root that git knows or would add; skips where there is no git."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("no git checkout")
    command = [git, "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603, git alone
    if listed.returncode:
        pytest.skip(f"git does not list this checkout: {listed.stderr.strip()}")
    return {name.split("/")[0] for name in listed.stdout.split("\0") if name}


def test_the_root_holds_nothing_else() -> None:
    assert {name for name in top_level() if not name.startswith(".")} - ALLOWED == set()


def test_the_root_holds_what_the_design_names() -> None:
    assert ALLOWED - top_level() == set()


def test_source_holds_one_package() -> None:
    assert [path.name for path in (ROOT / "src").iterdir() if not path.name.endswith(".egg-info")] == ["quantwatch"]


def test_tests_are_no_packages() -> None:
    assert list((ROOT / "tests").rglob("__init__.py")) == []
