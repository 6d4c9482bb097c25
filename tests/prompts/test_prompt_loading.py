"""Golden prompt files -> pools; what is wrong is told with its line, and the digest is that of the content."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from quantwatch.errors import ConfigError, Problem, PromptError
from quantwatch.flow.prompt import LengthBucket, Message, ProbeMode, PromptSet
from quantwatch.prompts.load import load_set, shipped_folder, shipped_sets

GOOD = """\
schema: 1
name: tiny
description: a few words
license: Apache-2.0
prompts:
  - id: tiny-text
    language: en
    length: short
    tags: [a, b-c]
    prompt: How old is the sea?
    continuation: Older than the land.
  - id: tiny-chat
    language: zh
    length: short
    tags: [a]
    messages:
      - {role: system, content: Be brief.}
      - {role: user, content: "Why is salt white?"}
    answer_schema: {type: object}
"""


def loaded(text: str, folder: Path) -> PromptSet:
    file = folder / "tiny.yaml"
    file.write_text(text, encoding="utf-8")
    return load_set(file)


def edited(old: str, new: str) -> str:
    assert GOOD.count(old) == 1
    return GOOD.replace(old, new)


def problems_of(text: str, folder: Path) -> tuple[Problem, ...]:
    with pytest.raises(ConfigError) as caught:
        loaded(text, folder)
    return caught.value.problems


def test_a_pool_has_the_name_and_description_of_its_file(tmp_path: Path) -> None:
    pool = loaded(GOOD, tmp_path)
    assert (pool.name, pool.description) == ("tiny", "a few words")


def test_prompts_keep_the_order_of_the_file(tmp_path: Path) -> None:
    assert [prompt.id for prompt in loaded(GOOD, tmp_path).prompts] == ["tiny-text", "tiny-chat"]


def test_a_raw_prompt_keeps_its_text_and_continuation(tmp_path: Path) -> None:
    prompt = loaded(GOOD, tmp_path).prompts[0]
    assert (prompt.text, prompt.messages) == ("How old is the sea?", ())
    assert prompt.continuation == "Older than the land."


def test_a_conversation_keeps_its_turns(tmp_path: Path) -> None:
    prompt = loaded(GOOD, tmp_path).prompts[1]
    assert prompt.text is None
    assert prompt.messages == (Message("system", "Be brief."), Message("user", "Why is salt white?"))


def test_language_length_and_tags_are_kept(tmp_path: Path) -> None:
    prompt = loaded(GOOD, tmp_path).prompts[0]
    assert (prompt.language, prompt.length, prompt.tags) == ("en", LengthBucket.SHORT, ("a", "b-c"))


def test_an_answer_schema_is_kept(tmp_path: Path) -> None:
    assert [prompt.answer_schema for prompt in loaded(GOOD, tmp_path).prompts] == [None, {"type": "object"}]


def test_a_pool_without_a_mode_is_scored(tmp_path: Path) -> None:
    assert loaded(GOOD, tmp_path).mode is ProbeMode.PROMPT_SCORING


def test_a_pool_may_recommend_a_mode(tmp_path: Path) -> None:
    assert loaded("mode: one_token\n" + GOOD, tmp_path).mode is ProbeMode.ONE_TOKEN


TURNS = GOOD[GOOD.index("    messages:") : GOOD.index("    answer_schema")]

FAULTS = {
    "id with capitals": ("tiny-text", "Tiny-Text", 6, "prompts[0].id", "match pattern"),
    "id with an underscore": ("tiny-text", "tiny_text", 6, "prompts[0].id", "match pattern"),
    "language in words": ("language: en", "language: english", 7, "prompts[0].language", "match pattern"),
    "unknown length": ("short\n    tags: [a, b", "tiny\n    tags: [a, b", 8, "prompts[0].length", "'tiny'"),
    "no tags": ("[a, b-c]", "[]", 9, "prompts[0].tags", "at least 1"),
    "nine tags": ("[a, b-c]", "[a, b, c, d, e, f, g, h, i]", 9, "prompts[0].tags", "at most 8"),
    "empty prompt": ("How old is the sea?", "''", 10, "prompts[0].prompt", "at least 1"),
    "empty continuation": ("Older than the land.", "''", 11, "prompts[0].continuation", "at least 1"),
    "unknown key": ("    continuation:", "    continuatoin:", 11, "prompts[0].continuatoin", "did you mean continua"),
    "unknown role": ("role: system", "role: sytem", 17, "prompts[1].messages[0].role", "did you mean system?"),
    "text and turns": ("    messages:\n", "    prompt: p\n    messages:\n", 12, "prompts[1]", "exactly one of"),
    "neither": ("    prompt: How old is the sea?\n", "", 6, "prompts[0]", "exactly one of prompt and messages"),
    "last turn is not the user's": ("role: user", "role: assistant", 12, "prompts[1]", "end with a turn of the user"),
    "empty turn": ("content: Be brief.", "content: ''", 17, "prompts[1].messages[0].content", "at least 1"),
    "no schema number": ("schema: 1\nname", "name", 1, "schema", "required and missing"),
    "schema of the future": ("schema: 1\nname", "schema: 2\nname", 1, "schema", "allowed: 1"),
    "name with a space": ("name: tiny", "name: tiny pool", 2, "name", "match pattern"),
    "no license": ("license: Apache-2.0\n", "", 1, "license", "required and missing"),
    "unknown mode": ("license:", "mode: scoring\nlicense:", 4, "mode", "'one_token'"),
    "schema that is no mapping": ("{type: object}", "[object]", 19, "prompts[1].answer_schema", "valid dictionary"),
    "no turns": (TURNS, "    messages: []\n", 12, "prompts[1]", "end with a turn"),
}


@pytest.mark.parametrize(("old", "new", "line", "key", "words"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_told_with_line_key_and_words(
    old: str, new: str, line: int, key: str, words: str, tmp_path: Path
) -> None:
    (problem,) = problems_of(edited(old, new), tmp_path)
    assert str(problem).startswith(f"{tmp_path / 'tiny.yaml'}:{line}: ")
    assert problem.key == key
    assert words in problem.message


def test_a_pool_without_prompts_is_refused(tmp_path: Path) -> None:
    (problem,) = problems_of(GOOD[: GOOD.index("prompts:")] + "prompts: []\n", tmp_path)
    assert (problem.line, problem.key) == (5, "prompts")


def test_an_id_used_twice_is_told_at_both_places(tmp_path: Path) -> None:
    found = problems_of(edited("tiny-chat", "tiny-text"), tmp_path)
    assert [(problem.line, problem.key) for problem in found] == [(6, "prompts[0].id"), (12, "prompts[1].id")]
    assert {problem.message for problem in found} == {"tiny-text is used twice"}


def test_a_key_used_twice_is_told(tmp_path: Path) -> None:
    (problem,) = problems_of(edited("language: en", "language: en\n    language: de"), tmp_path)
    assert (problem.line, problem.key) == (8, "prompts[0].language")


def test_a_missing_file_is_named_with_the_shipped_sets(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match=r"gone\.yaml: no such prompts file; shipped task sets: chat, chinese, code"):
        load_set(tmp_path / "gone.yaml")


def test_a_folder_is_no_prompts_file(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="no such prompts file"):
        load_set(tmp_path)


def test_shipped_sets_are_named_after_their_files(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yaml", "notes.txt"):
        (tmp_path / name).write_text("", encoding="utf-8")
    assert list(shipped_sets(tmp_path).items()) == [("a", tmp_path / "a.yaml"), ("b", tmp_path / "b.yaml")]


def test_the_shipped_folder_holds_the_shipped_sets() -> None:
    assert {path.parent for path in shipped_sets().values()} == {shipped_folder()}


CHANGES: dict[str, tuple[str, str]] = {
    "id": ("tiny-text", "tiny-words"),
    "language": ("language: en", "language: de"),
    "length": ("length: short\n    tags: [a, b-c]", "length: medium\n    tags: [a, b-c]"),
    "tags": ("[a, b-c]", "[a, b-d]"),
    "order of tags": ("[a, b-c]", "[b-c, a]"),
    "prompt": ("the sea?", "the sea ?"),
    "continuation": ("the land.", "the land!"),
    "no continuation": ("    continuation: Older than the land.\n", ""),
    "role": ("role: system", "role: assistant"),
    "words of a turn": ("salt white", "salt blue"),
    "answer schema": ("{type: object}", "{type: array}"),
}


@pytest.mark.parametrize(("old", "new"), CHANGES.values(), ids=CHANGES.keys())
def test_any_change_of_content_changes_the_digest(old: str, new: str, tmp_path: Path) -> None:
    assert loaded(edited(old, new), tmp_path).digest != loaded(GOOD, tmp_path).digest


def rearranged(change: Any) -> str:
    data = yaml.safe_load(GOOD)
    change(data)
    return yaml.safe_dump(data, allow_unicode=True)


def test_the_order_of_prompts_does_not_change_the_digest(tmp_path: Path) -> None:
    moved = rearranged(lambda data: data["prompts"].reverse())
    assert loaded(moved, tmp_path).digest == loaded(GOOD, tmp_path).digest


def test_the_order_of_keys_does_not_change_the_digest(tmp_path: Path) -> None:
    assert loaded(rearranged(dict), tmp_path).digest == loaded(GOOD, tmp_path).digest


def test_comments_do_not_change_the_digest(tmp_path: Path) -> None:
    assert loaded("# a note\n" + GOOD, tmp_path).digest == loaded(GOOD, tmp_path).digest


def test_another_prompt_changes_the_digest(tmp_path: Path) -> None:
    more = GOOD + "  - {id: tiny-more, language: en, length: short, tags: [a], prompt: And then?}\n"
    assert loaded(more, tmp_path).digest != loaded(GOOD, tmp_path).digest


def test_the_digest_is_the_same_on_every_machine_and_release(tmp_path: Path) -> None:
    assert loaded(GOOD, tmp_path).digest == "012516e0b583e521153a38b1337beb19b7d73f115d992e199cee303c0eaf0ddb"
