"""The baseline's own answers: kept whole under its fingerprint, made anew when they cannot be used."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantwatch.flow.identity import Identity
from quantwatch.record.continuations import Continuations, fingerprint

BASELINE = Identity(
    name="baseline",
    url="http://fp16.test:8000",
    model="m",
    root="org/m",
    max_model_len=4096,
    version="0.32.0",
    started=1700000000.0,
    tokenizer="abc",
)
PROMPT, ANSWER = [1, 2, 3], [7, 8]


def kept(folder: Path) -> Path:
    """The one file that is kept, after one answer was stored."""
    Continuations(folder, BASELINE).put(PROMPT, 96, ANSWER)
    (file,) = folder.rglob("*.json")
    return file


def test_a_stored_answer_is_found_again(tmp_path: Path) -> None:
    Continuations(tmp_path, BASELINE).put(PROMPT, 96, ANSWER)
    assert Continuations(tmp_path, BASELINE).get(PROMPT, 96) == (7, 8)


def test_nothing_stored_is_nothing_found(tmp_path: Path) -> None:
    assert Continuations(tmp_path, BASELINE).get(PROMPT, 96) is None


def test_an_empty_answer_is_an_answer(tmp_path: Path) -> None:
    store = Continuations(tmp_path, BASELINE)
    store.put(PROMPT, 96, [])
    assert store.get(PROMPT, 96) == ()


def test_the_limit_is_part_of_the_key(tmp_path: Path) -> None:
    store = Continuations(tmp_path, BASELINE)
    store.put(PROMPT, 96, ANSWER)
    assert store.get(PROMPT, 95) is None


def test_answers_of_different_limits_live_side_by_side(tmp_path: Path) -> None:
    store = Continuations(tmp_path, BASELINE)
    store.put(PROMPT, 1, [7])
    store.put(PROMPT, 2, [7, 8])
    assert (store.get(PROMPT, 1), store.get(PROMPT, 2)) == ((7,), (7, 8))


@pytest.mark.parametrize("other", [[1, 2], [1, 2, 3, 4], [3, 2, 1], [12, 3], []])
def test_another_prompt_has_no_answer(other: list[int], tmp_path: Path) -> None:
    store = Continuations(tmp_path, BASELINE)
    store.put(PROMPT, 96, ANSWER)
    assert store.get(other, 96) is None


def test_the_last_answer_stored_counts(tmp_path: Path) -> None:
    store = Continuations(tmp_path, BASELINE)
    store.put(PROMPT, 96, ANSWER)
    store.put(PROMPT, 96, [9])
    assert store.get(PROMPT, 96) == (9,)


def test_tuples_and_lists_name_the_same_prompt(tmp_path: Path) -> None:
    store = Continuations(tmp_path, BASELINE)
    store.put(tuple(PROMPT), 96, tuple(ANSWER))
    assert store.get(PROMPT, 96) == (7, 8)


@given(st.lists(st.integers(0, 2**31)), st.integers(1, 1024), st.lists(st.integers(0, 2**31)))
def test_any_answer_is_found_again(
    tmp_path_factory: pytest.TempPathFactory, prompt: list[int], limit: int, answer: list[int]
) -> None:
    store = Continuations(tmp_path_factory.mktemp("store"), BASELINE)
    store.put(prompt, limit, answer)
    assert store.get(prompt, limit) == tuple(answer)


def test_one_small_json_file_is_one_answer(tmp_path: Path) -> None:
    assert json.loads(kept(tmp_path).read_bytes()) == {"prompt": PROMPT, "continuation": ANSWER}


def test_nothing_else_is_left_behind(tmp_path: Path) -> None:
    file = kept(tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [file]


def test_the_folder_is_named_after_the_fingerprint(tmp_path: Path) -> None:
    assert kept(tmp_path).parent == tmp_path / fingerprint(BASELINE)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"prompt": [1, 2, 3], "continuation": [7'])
def test_a_file_that_is_no_json_is_made_anew(content: bytes, tmp_path: Path) -> None:
    kept(tmp_path).write_bytes(content)
    store = Continuations(tmp_path, BASELINE)
    assert store.get(PROMPT, 96) is None
    store.put(PROMPT, 96, ANSWER)
    assert store.get(PROMPT, 96) == (7, 8)


WRONG: list[Any] = [
    None,
    5,
    [7, 8],
    "78",
    {},
    {"prompt": PROMPT},
    {"continuation": ANSWER},
    {"prompt": PROMPT, "continuation": None},
    {"prompt": PROMPT, "continuation": "78"},
    {"prompt": PROMPT, "continuation": {"7": 8}},
    {"prompt": PROMPT, "continuation": [7, "8"]},
    {"prompt": PROMPT, "continuation": [7, 8.0]},
    {"prompt": PROMPT, "continuation": [7, True]},
    {"prompt": PROMPT, "continuation": [7, None]},
    {"prompt": [1, 2], "continuation": ANSWER},
    {"prompt": None, "continuation": ANSWER},
]


@pytest.mark.parametrize("content", WRONG, ids=str)
def test_a_file_with_other_content_is_no_answer(content: Any, tmp_path: Path) -> None:
    kept(tmp_path).write_text(json.dumps(content), encoding="utf-8")
    assert Continuations(tmp_path, BASELINE).get(PROMPT, 96) is None


@pytest.mark.parametrize(
    "change",
    [{"model": "n"}, {"root": "org/n"}, {"max_model_len": 8192}, {"version": "0.33.0"}, {"tokenizer": "abd"}],
    ids=str,
)
def test_another_baseline_has_no_answers(change: dict[str, Any], tmp_path: Path) -> None:
    Continuations(tmp_path, BASELINE).put(PROMPT, 96, ANSWER)
    assert Continuations(tmp_path, replace(BASELINE, **change)).get(PROMPT, 96) is None


@pytest.mark.parametrize("change", [{"name": "b"}, {"url": "http://c.test"}, {"started": 1.0}], ids=str)
def test_a_restarted_or_moved_baseline_keeps_its_answers(change: dict[str, Any], tmp_path: Path) -> None:
    Continuations(tmp_path, BASELINE).put(PROMPT, 96, ANSWER)
    assert Continuations(tmp_path, replace(BASELINE, **change)).get(PROMPT, 96) == (7, 8)


def test_what_a_server_does_not_say_is_not_what_another_says() -> None:
    assert fingerprint(replace(BASELINE, root=None)) != fingerprint(replace(BASELINE, root="None"))


def test_a_fingerprint_never_changes_between_runs() -> None:
    assert fingerprint(BASELINE) == "eeef8f198116e51f"


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    store = Continuations(tmp_path / "a" / "b", BASELINE)
    store.put(PROMPT, 96, ANSWER)
    assert store.get(PROMPT, 96) == (7, 8)


def test_a_store_that_cannot_be_written_is_no_reason_to_stop(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder", encoding="utf-8")
    store = Continuations(blocked, BASELINE)
    store.put(PROMPT, 96, ANSWER)
    assert store.get(PROMPT, 96) is None


def test_a_store_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder", encoding="utf-8")
    Continuations(blocked, BASELINE).put(PROMPT, 96, ANSWER)
    assert [path.read_text(encoding="utf-8") for path in tmp_path.iterdir()] == ["not a folder"]


def test_a_folder_in_the_place_of_an_answer_is_no_answer(tmp_path: Path) -> None:
    file = kept(tmp_path)
    file.unlink()
    file.mkdir()
    assert Continuations(tmp_path, BASELINE).get(PROMPT, 96) is None


def test_an_answer_that_cannot_take_its_place_leaves_nothing_behind(tmp_path: Path) -> None:
    file = kept(tmp_path)
    file.unlink()
    file.mkdir()
    Continuations(tmp_path, BASELINE).put(PROMPT, 96, ANSWER)
    assert list(tmp_path.rglob("*.part")) == []


def test_a_deeply_nested_file_is_made_anew(tmp_path: Path) -> None:
    kept(tmp_path).write_bytes(b"[" * 100_000)
    assert Continuations(tmp_path, BASELINE).get(PROMPT, 96) is None
