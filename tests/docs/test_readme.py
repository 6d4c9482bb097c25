"""README.md and its Chinese twin: what they show is valid, and both say the same."""

import re
import tomllib
from pathlib import Path

import pytest

from quantwatch.config.advice import advice
from quantwatch.config.load import load_settings
from quantwatch.demo.plan import FULL
from quantwatch.prompts.load import load_set, shipped_sets
from support.typed import blocks

ROOT = Path(__file__).resolve().parents[2]
ENGLISH = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "docs" / "README.zh-CN.md").read_text(encoding="utf-8")
EACH = pytest.mark.parametrize("text", [ENGLISH, CHINESE], ids=["English", "Chinese"])


def without_comments(block: str) -> str:
    return re.sub(r"\s+#.*", "", block)


@EACH
def test_the_configuration_is_valid(text: str, tmp_path: Path) -> None:
    (block,) = blocks(text, "yaml")
    file = tmp_path / "quantwatch.yaml"
    file.write_text(block, encoding="utf-8")

    settings = load_settings(file, shipped=shipped_sets())

    assert [one for one in advice(settings) if "signing_secret" not in str(one)] == []


@pytest.mark.parametrize("kind", ["sh", "yaml"])
def test_both_show_the_same_commands_and_configuration(kind: str) -> None:
    assert [without_comments(one) for one in blocks(ENGLISH, kind)] == [
        without_comments(one) for one in blocks(CHINESE, kind)
    ]


def test_both_have_the_same_chapters_and_rows() -> None:
    def outline(text: str) -> list[tuple[int, int]]:
        chapters = re.split(r"^## ", text, flags=re.MULTILINE)
        return [
            (len(re.findall(r"^\|", one, re.MULTILINE)), len(re.findall(r"^(?:\d\.|-) ", one, re.MULTILINE)))
            for one in chapters
        ]

    assert outline(ENGLISH) == outline(CHINESE)


@EACH
def test_the_shipped_task_sets_are_named_with_their_numbers(text: str) -> None:
    counts = {name: len(load_set(path).prompts) for name, path in shipped_sets().items()}

    assert all(f"`{name}`" in text for name in counts)
    assert set(counts.values()) == {48, 24}
    assert counts["long_context"] == 24


def test_the_first_command_installs_what_the_demo_needs() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    (command,) = [one for one in blocks(ENGLISH, "sh") if "quantwatch demo" in one]

    assert "'.[demo]'" in command
    assert {"transformers", "gguf", "accelerate"} <= {re.split(r"[<>=]", one)[0] for one in extras["demo"]}


def test_the_picture_shows_the_demo() -> None:
    picture = (ROOT / "docs" / "demo.svg").read_text(encoding="utf-8")

    assert "docs/demo.svg" in ENGLISH
    assert "(demo.svg)" in CHINESE
    assert all(name in picture for name in FULL.task_sets)
    assert "http" not in picture.replace("http://www.w3.org", "")  # nothing is fetched to show it
