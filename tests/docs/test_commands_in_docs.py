"""What the documents tell people to type is taken by the command, and what they name exists."""

import re
from functools import cache
from pathlib import Path

import pytest

from support.typed import FENCE, mentions, options, refusal, shell_calls

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
FOR_OPERATORS = [page for page in PAGES if page.name in {"runbook.md", "getting-started.md", "configuration.md"}]

OTHERS_OPTIONS = {
    *(
        "--max-logprobs",
        "--logprobs-mode",
        "--served-model-name",
        "--data-parallel-size",
        "--max-model-len",
        "--enable-prefix-caching",
    ),
    *("--api-key", "--data-parallel-size", "--port", "--host", "--quantization", "--dtype", "--enable-feature"),
}
"""Options of vLLM and Prometheus that the pages name."""


@cache
def keys() -> frozenset[str]:
    """Every key of the configuration, and every block."""
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    return frozenset(re.findall(r"^- `([^`]+)`: ", text, re.MULTILINE))


def named_keys(text: str) -> set[str]:
    """Dotted paths in code spans that begin with a block of the configuration."""
    top = {key.partition("[")[0] for key in keys() if "." not in key}
    spans = re.findall(r"`([a-z_]+(?:\[\])?(?:\.[A-Za-z0-9_\[\]]+)+)(?::[^`]*)?`", FENCE.sub("", text))
    return {span for span in spans if re.split(r"[.\[]", span)[0] in top and not span.endswith((".yaml", ".py", ".md"))}


@EACH_PAGE
def test_every_command_line_is_taken(page: Path) -> None:
    calls = shell_calls(page.read_text(encoding="utf-8"))
    assert [(call, why) for call in calls if (why := refusal(call)) is not None] == []


@EACH_PAGE
def test_every_command_in_a_sentence_is_taken_or_lacks_something_alone(page: Path) -> None:
    calls = [call for call in mentions(page.read_text(encoding="utf-8")) if "COMMAND" not in call]
    refused = [(call, why) for call in calls if (why := refusal(call)) is not None]
    assert [(call, why) for call, why in refused if not re.match("Missing |.*requires an argument", why)] == []


def test_command_lines_are_found() -> None:
    assert len([call for page in PAGES for call in shell_calls(page.read_text(encoding="utf-8"))]) > 30
    assert len([call for page in PAGES for call in mentions(page.read_text(encoding="utf-8"))]) > 20


@pytest.mark.parametrize("page", FOR_OPERATORS, ids=lambda page: page.name)
def test_every_option_named_exists(page: Path) -> None:
    named = set(re.findall(r"`(--[a-z-]+)[^`]*`", page.read_text(encoding="utf-8")))
    assert named - options() - OTHERS_OPTIONS == set()


@EACH_PAGE
def test_every_key_named_exists(page: Path) -> None:
    wrong = set()
    for key in named_keys(page.read_text(encoding="utf-8")):
        generic = re.sub(r"^(pools|task_sets)\.(?!NAME)[^.]+", r"\1.NAME", key)
        wrong |= {key} if generic not in keys() and generic not in {"pools.NAME", "task_sets.NAME"} else set()
    assert wrong == set()


def test_keys_are_found() -> None:
    assert len(named_keys((ROOT / "docs" / "runbook.md").read_text(encoding="utf-8"))) > 30


LINES = {
    "quantwatch status --config FILE   # how it is": [["status", "--config", "FILE"]],
    "$ .venv/bin/quantwatch version && quantwatch schema | head": [["version"], ["schema"]],
    "A=b quantwatch run \\\n  --config FILE &": [["run", "--config", "FILE"]],
    "quantwatch history --config FILE [--target T]": [["history", "--config", "FILE", "--target", "T"]],
    "docker run -p 1:1 quantwatch": [],
    "it's broken: quantwatch": [],
}


@pytest.mark.parametrize(("line", "calls"), LINES.items())
def test_calls_are_told_from_their_surroundings(line: str, calls: list[list[str]]) -> None:
    assert shell_calls(f"```sh\n{line}\n```\n") == calls


def test_a_sentence_is_read_over_its_line_breaks() -> None:
    assert mentions("Run `quantwatch\nstatus` now, not\n```sh\n`quantwatch x`\n```\n") == [["status"]]


REFUSED = {
    "no command": ["stats", "--config", "FILE"],
    "no option": ["status", "--config", "FILE", "--jsn", "x"],
    "one argument too many": ["version", "x"],
    "no number": ["history", "--limit", "many"],
    "nothing required": ["status"],
    "no command of a group": ["store", "dump"],
}


@pytest.mark.parametrize("arguments", REFUSED.values(), ids=REFUSED.keys())
def test_a_wrong_command_line_is_refused(arguments: list[str]) -> None:
    assert refusal(arguments)


def test_a_right_command_line_is_not_carried_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(["store", "check", "--config", "FILE"]) is None
    assert capsys.readouterr().out == ""
