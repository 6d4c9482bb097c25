"""Ready id sequences: read whole, or refused with the place of the fault."""

import json
from pathlib import Path
from typing import Any

import pytest

from quantwatch.errors import PromptError
from quantwatch.flow.prompt import GoldenSequence
from quantwatch.prompts.sequences import load_sequences


def written(content: Any, folder: Path) -> Path:
    file = folder / "sequences.json"
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def test_sequences_are_read_in_order(tmp_path: Path) -> None:
    found, _ = load_sequences(written([[[1, 2, 3], 2], [[4, 0], 1]], tmp_path))
    assert found == (GoldenSequence("sequence-0", (1, 2, 3), 2), GoldenSequence("sequence-1", (4, 0), 1))


FAULTS: list[tuple[Any, str]] = [
    ([], "a non-empty list of [ids, prompt_length] is wanted"),
    ({}, "a non-empty list of [ids, prompt_length] is wanted"),
    (5, "a non-empty list of [ids, prompt_length] is wanted"),
    ([5], "sequence 0: [ids, prompt_length] is wanted"),
    ([[[1, 2]]], "sequence 0: [ids, prompt_length] is wanted"),
    ([[[1, 2], 1, 1]], "sequence 0: [ids, prompt_length] is wanted"),
    ([[[1, 2], 1], [[1, "2"], 1]], "sequence 1: ids must be a list of whole numbers, 0 or more"),
    ([[[1, -2], 1]], "sequence 0: ids must be a list of whole numbers, 0 or more"),
    ([[[1, 2.0], 1]], "sequence 0: ids must be a list of whole numbers, 0 or more"),
    ([[[1, True], 1]], "sequence 0: ids must be a list of whole numbers, 0 or more"),
    ([["12", 1]], "sequence 0: ids must be a list of whole numbers, 0 or more"),
    ([[[1, 2], 0]], "sequence 0: prompt_length 0 must be within 1..1, ids go on after it"),
    ([[[1, 2], 2]], "sequence 0: prompt_length 2 must be within 1..1, ids go on after it"),
    ([[[1, 2, 3], "1"]], "sequence 0: prompt_length '1' must be within 1..2, ids go on after it"),
    ([[[1, 2], True]], "sequence 0: prompt_length True must be within 1..1, ids go on after it"),
]


@pytest.mark.parametrize(("content", "words"), FAULTS)
def test_a_fault_is_told_with_its_place(content: Any, words: str, tmp_path: Path) -> None:
    file = written(content, tmp_path)
    with pytest.raises(PromptError) as caught:
        load_sequences(file)
    assert str(caught.value) == f"{file}: {words}"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match=r"gone\.json: no such sequences file"):
        load_sequences(tmp_path / "gone.json")


@pytest.mark.parametrize("content", [b"", b"[1,", b"\xff\xfe", b"ids"])
def test_a_file_that_is_no_json_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_bytes(content)
    with pytest.raises(PromptError, match=r"s\.json: no readable JSON: "):
        load_sequences(tmp_path / "s.json")


def test_a_folder_is_no_sequences_file(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="no readable JSON"):
        load_sequences(tmp_path)


@pytest.mark.parametrize("other", [[[[1, 2, 4], 2]], [[[1, 2, 3], 1]], [[[1, 2, 3], 2], [[1, 2, 3], 2]]])
def test_any_change_of_content_changes_the_digest(other: Any, tmp_path: Path) -> None:
    digest = load_sequences(written([[[1, 2, 3], 2]], tmp_path))[1]
    assert load_sequences(written(other, tmp_path))[1] != digest


def test_white_space_does_not_change_the_digest(tmp_path: Path) -> None:
    digest = load_sequences(written([[[1, 2, 3], 2]], tmp_path))[1]
    (tmp_path / "spaced.json").write_text("[ [ [1,2,\n3],2] ]", encoding="utf-8")
    assert load_sequences(tmp_path / "spaced.json")[1] == digest
