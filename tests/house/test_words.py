"""No file of the project speaks of one developer's machine, or of work that is left for later."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = {".git", "__pycache__", "dist", "build", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}

# Written in pieces, so that this file does not find itself.
FOLDERS = ["work", "root", "tmp" + "/dev"]
MACHINE = re.compile(rf"(?<![\w.~/-])/(?:{'|'.join(FOLDERS)})/")
LATER = re.compile(rf"\b(?:{'TO' + 'DO'}|{'FIX' + 'ME'})\b")


def project_files() -> Iterator[Path]:
    """What git knows or would add; every file where there is no git."""
    git = shutil.which("git")
    if git is not None and (ROOT / ".git").exists():
        command = [git, "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603, git alone
        yield from (ROOT / name for name in sorted(set(listed.stdout.split("\0"))) if name)
        return
    for folder, inner, names in os.walk(ROOT):
        inner[:] = [name for name in inner if name not in SKIPPED and not name.startswith(".venv")]
        yield from (Path(folder) / name for name in sorted(names))


def words_found(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in project_files():
        if path.is_file():
            for number, line in enumerate(path.read_bytes().decode("utf-8", errors="replace").splitlines(), 1):
                found += [f"{path.relative_to(ROOT)}:{number}: {match[0]}" for match in pattern.finditer(line)]
    return found


def test_no_file_names_a_developers_machine() -> None:
    assert words_found(MACHINE) == []


def test_no_file_leaves_work_for_later() -> None:
    assert words_found(LATER) == []


def test_the_files_of_the_project_are_read() -> None:
    assert {"pyproject.toml", "README.md", "LICENSE"} <= {path.name for path in project_files()}


CAUGHT = ["see /WORK/main", "'/ROOT/.cache'", "=/TMP/dev/bin/python", "(/WORK/x)"]
FINE = ["/home/ada/x", "https://a.test/work/x", "src/work/x", "~/work/x", "the root/ of", "/workshop/", "network/"]


@pytest.mark.parametrize("text", CAUGHT)
def test_a_path_of_a_machine_is_found(text: str) -> None:
    assert MACHINE.search(text.lower())


@pytest.mark.parametrize("text", FINE)
def test_another_path_is_left_alone(text: str) -> None:
    assert not MACHINE.search(text)


@pytest.mark.parametrize("word", ["TO" + "DO", "# FIX" + "ME: x"])
def test_work_left_for_later_is_found(word: str) -> None:
    assert LATER.search(word)


@pytest.mark.parametrize("word", ["todo list", "TO" + "DOS", "método"])
def test_an_ordinary_word_is_left_alone(word: str) -> None:
    assert not LATER.search(word)
