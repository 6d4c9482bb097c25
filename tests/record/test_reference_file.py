"""A reference comes back as it was written, and anything else is refused in words."""

import json
import math
from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import deserialize, safe_open

from quantwatch.errors import StoreError
from quantwatch.flow.prompt import ProbeMode
from quantwatch.record.reference_file import DOCUMENT, Reference, _digest, decode, encode, load, save
from quantwatch.record.reference_folder import ReferenceFolder, joined
from quantwatch.record.references import StoredAnswer
from quantwatch.record.tensors import Damage, Tensor, pack, unpack
from support.references import MODES, reference, stored_answer
from support.stored import at

BITS = 8


def plain(one: StoredAnswer) -> list[Any]:
    """Everything of an answer in a form that can be compared, NaN included."""
    d = one.distribution
    columns = [
        [repr(value) for value in getattr(d, name)] for name in ("positions", "ids", "logprobs", "actual", "floor")
    ]
    return [one.prompt_id, one.k, one.mode, one.sequence, one.prompt_length, d.k, d.mode, d.prompt_length, *columns]


def all_plain(whole: Reference) -> dict[Any, Any]:
    return {(mode, name): plain(one) for mode, answers in whole.answers.items() for name, one in answers.items()}


def test_a_reference_comes_back_as_it_was_written(tmp_path: Path) -> None:
    whole = reference()
    kept = save(tmp_path / "math.safetensors", whole)
    back = load(tmp_path / "math.safetensors")

    assert all_plain(back) == all_plain(whole)
    assert len(all_plain(back)) == 4
    for name in ("name", "baseline", "pool", "k", "asked_k", "modes", "continuation_tokens", "made", "prompts", "free"):
        assert getattr(back, name) == getattr(whole, name)
    assert back.digest == kept.digest != ""
    assert back.fingerprint == whole.fingerprint


def test_a_prompt_without_an_answer_in_a_mode_keeps_its_reason(tmp_path: Path) -> None:
    whole = reference()
    mode = ProbeMode.PROMPT_SCORING
    answers = {**whole.answers, mode: {"math-02": whole.answers[mode]["math-02"]}}
    whole = replace(whole, answers=answers, left_out={**whole.left_out, mode: {"math-01": "too long"}})
    save(tmp_path / "x.safetensors", whole)
    back = load(tmp_path / "x.safetensors")

    assert back.left_out[mode] == {"math-01": "too long"}
    assert all_plain(back) == all_plain(whole)


def test_the_safetensors_package_reads_the_file_and_finds_the_same_numbers(tmp_path: Path) -> None:
    save(tmp_path / "math.safetensors", reference())
    content = (tmp_path / "math.safetensors").read_bytes()
    ours, metadata = unpack(content)

    theirs = dict(deserialize(content))  # type: ignore[no-untyped-call]
    assert set(theirs) == set(ours)
    for name, one in ours.items():
        assert tuple(theirs[name]["shape"]) == one.shape
        assert bytes(theirs[name]["data"]) == one.values.tobytes()
    with safe_open(tmp_path / "math.safetensors", "np") as file:
        assert file.metadata() == metadata
        assert file.get_tensor("prompt_scoring.ids").tolist()[0] == [6, 101, 102, -1]
        assert str(file.get_tensor("prompt_scoring.logprobs").dtype) == "float32"
        assert str(file.get_tensor("prompt_scoring.ids").dtype) == "int32"


def test_the_metadata_names_baseline_and_prompts_and_no_text() -> None:
    _, metadata = unpack(encode(reference())[0])
    document = json.loads(metadata[DOCUMENT])

    assert document["baseline"]["model"] == "llama"
    assert document["baseline"]["tokenizer"] == "t" * 8
    assert document["golden_set"] == "d" * 64
    assert document["prompts"] == ["math-01", "math-02"]
    assert document["modes"] == ["prompt_scoring", "one_token"]


def test_every_bit_that_is_turned_is_noticed() -> None:
    content = encode(reference("a"))[0]
    random = Random(1)
    for place in random.sample(range(len(content)), 250):
        damaged = bytearray(content)
        damaged[place] ^= 1 << random.randrange(BITS)
        if bytes(damaged[8:]).rstrip() == content[8:].rstrip():
            continue
        with pytest.raises(Damage):
            decode(bytes(damaged))


def test_a_file_cut_short_anywhere_is_refused() -> None:
    content = encode(reference("a"))[0]
    for size in range(0, len(content), 7):
        with pytest.raises(Damage):
            decode(content[:size])


@given(st.binary(max_size=200), st.integers(0, 400), st.integers(0, 50))
def test_bytes_put_anywhere_are_refused_in_our_own_words(extra: bytes, place: int, away: int) -> None:
    content = encode(reference("a"))[0]
    changed = content[:place] + extra + content[place + away :]
    if changed == content:
        return
    with pytest.raises(Damage):
        decode(changed)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5), lambda x: st.lists(x) | st.dictionaries(st.text(max_size=5), x)
    )
)
def test_any_json_header_is_refused_in_our_own_words(header: Any) -> None:
    head = json.dumps(header).encode()
    with pytest.raises(Damage):
        decode(len(head).to_bytes(8, "little") + head)


def test_a_header_that_is_nested_too_deeply_is_refused() -> None:
    head = b"[" * 200_000
    with pytest.raises(Damage, match="header"):
        unpack(len(head).to_bytes(8, "little") + head)


def test_an_error_names_file_field_and_cure(tmp_path: Path) -> None:
    path = tmp_path / "math.safetensors"
    path.write_bytes(encode(reference())[0][:-4])
    with pytest.raises(StoreError, match=r"math\.safetensors: the reference is damaged: sequences: .*enroll") as told:
        load(path)
    assert str(path) in str(told.value)


def test_a_file_that_is_not_there_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        load(tmp_path / "none.safetensors")


def edited(change: Callable[[dict[str, Any]], None]) -> bytes:
    """A file whose document was changed and whose digest fits all the same: what checks beyond the digest must find."""
    return forged(reference(), document=change)


def forged(
    whole: Reference,
    *,
    document: Callable[[dict[str, Any]], None] = lambda _: None,
    tensors: Callable[[dict[str, Tensor]], None] = lambda _: None,
) -> bytes:
    held, metadata = unpack(encode(whole)[0])
    said = json.loads(metadata[DOCUMENT])
    del said["sha256"]
    document(said)
    tensors(held)
    said["sha256"] = _digest(said, held)
    return pack(held, {DOCUMENT: json.dumps(said)})


DOCUMENTS: dict[str, dict[str, Any]] = {
    "format": {"format": 2},
    "name": {"name": None},
    "name: that of no task set": {"name": "../../etc/cron.d/x"},
    "k": {"k": 0},
    "asked_k": {"asked_k": "20"},
    "modes": {"modes": ["free"]},
    "prompts": {"prompts": ["math-01", "math-01"]},
    "made": {"made": "2026-01-01"},
    "baseline": {"baseline": {"name": "b"}},
    "baseline.root": {"baseline": {"name": "b", "url": "u", "model": "m", "root": 3}},
    "baseline.max_model_len": {"baseline": {"name": "b", "url": "u", "model": "m", "max_model_len": "4096"}},
    "left_out": {"left_out": {"one_token": ["math-01"]}},
    "free_answers": {"free_answers": {"math-01": [{"limit": 32}]}},
    "free_answers: no answers of these prompts": {"free_answers": {"other": []}},
    "one_token.offsets": {"left_out": {"one_token": {"math-01": "both"}}},
}


@pytest.mark.parametrize(("field", "change"), DOCUMENTS.items(), ids=DOCUMENTS)
def test_a_document_with_something_wrong_in_it_is_refused_by_name(field: str, change: dict[str, Any]) -> None:
    with pytest.raises(Damage, match=rf"^{field}\b"):
        decode(edited(lambda said: said.update(change)))


def setting(name: str, place: int, value: float) -> Callable[[dict[str, Tensor]], None]:
    def change(held: dict[str, Tensor]) -> None:
        held[name].values[place] = value

    return change


TENSORS = {
    "an id below zero": ("prompt_scoring.ids", setting("prompt_scoring.ids", 0, -2)),
    "an empty place in the top k": ("prompt_scoring.ids", setting("prompt_scoring.ids", 1, -1)),
    "a token twice": ("prompt_scoring.ids", setting("prompt_scoring.ids", 1, 102)),
    "a positive value": ("prompt_scoring.logprobs", setting("prompt_scoring.logprobs", 0, 0.5)),
    "a sum over one": ("one_token.logprobs", setting("one_token.logprobs", 1, -0.1)),
    "nothing finite": ("one_token.logprobs", setting("one_token.logprobs", 0, math.nan)),
    "a cap over rank k": ("one_token.floor", setting("one_token.floor", 0, -1.0)),
    "a token beyond rank k over the cap": ("prompt_scoring.floor", setting("prompt_scoring.logprobs", 7, -2.45)),
    "an own value that is not listed": ("one_token.actual", setting("one_token.actual", 1, -3.0)),
    "a sequence with another own token": ("prompt_scoring.actual", setting("sequences", 1, 77)),
    "a position outside": ("one_token.positions", setting("one_token.positions", 1, 6)),
    "a position of the prompt": ("one_token.positions", setting("one_token.positions", 0, 1)),
    "a missing position": ("prompt_scoring.positions", setting("prompt_scoring.positions", 0, 2)),
    "offsets that go back": ("prompt_scoring.offsets", setting("prompt_scoring.offsets", 1, 11)),
    "offsets that end early": ("sequence_offsets", setting("sequence_offsets", 2, 11)),
    "a prompt that is longer than its sequence": ("sequences", setting("prompt_lengths", 0, 7)),
}


@pytest.mark.parametrize(("field", "change"), TENSORS.values(), ids=TENSORS)
def test_numbers_that_cannot_be_are_refused_by_name(field: str, change: Callable[[dict[str, Tensor]], None]) -> None:
    with pytest.raises(Damage, match=rf"^{field}: "):
        decode(forged(reference(), tensors=change))


def test_a_tensor_of_another_shape_is_refused() -> None:
    def change(held: dict[str, Tensor]) -> None:
        held["one_token.ids"] = Tensor((16,), held["one_token.ids"].values)

    with pytest.raises(Damage, match=r"^one_token\.ids: shape \[16\] where \[4, 4\]"):
        decode(forged(reference(), tensors=change))


@pytest.mark.parametrize("more", [True, False])
def test_a_tensor_too_many_or_too_few_is_refused(more: bool) -> None:
    def change(held: dict[str, Tensor]) -> None:
        if more:
            held["pickle"] = Tensor((1,), array("i", [1]))
        else:
            del held["one_token.floor"]

    with pytest.raises(Damage, match=r"^tensors: (pickle|one_token\.floor) missing or unknown"):
        decode(forged(reference(), tensors=change))


def test_a_new_reference_supersedes_the_old_one_which_is_kept(tmp_path: Path) -> None:
    folder = ReferenceFolder(tmp_path / "references")
    first = folder.put(reference())
    second = folder.put(reference(k=4))

    assert load(folder.path("math")).digest == second.digest
    assert [load(one).digest for one in folder.superseded()] == [first.digest]
    assert folder.current() == [folder.path("math")]


def test_parts_are_joined_in_their_order(tmp_path: Path) -> None:
    parts = ReferenceFolder(tmp_path).parts("key")
    for name in ("b", "a"):
        parts.put(reference(name))
    found = [part for name in ("b", "a") if (part := parts.get(name)) is not None]
    whole = joined(found, made=at(3))

    assert whole.prompts == ("b", "a")
    assert whole.made == at(3)
    assert all_plain(decode(encode(whole)[0])) == all_plain(whole)
    assert {one for one, _ in all_plain(whole)} == set(MODES)


def test_a_damaged_part_and_one_of_another_prompt_are_none(tmp_path: Path) -> None:
    parts = ReferenceFolder(tmp_path).parts("key")
    assert parts.get("a") is None
    parts.put(reference("a"))
    (file,) = parts.folder.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert parts.get("a") is None

    file.write_bytes(encode(reference("b"))[0])
    assert parts.get("a") is None
    file.write_bytes(whole)
    assert parts.get("a") is not None


def test_two_cannot_enrol_into_one_folder(tmp_path: Path) -> None:
    folder = ReferenceFolder(tmp_path / "references")
    with folder.writing(), pytest.raises(StoreError, match="writes"), folder.writing():
        pass


def test_the_test_answers_are_what_a_server_can_give() -> None:
    assert stored_answer("a", ProbeMode.PROMPT_SCORING).distribution.actual[1] == -9.25
    assert math.isnan(stored_answer("a", ProbeMode.ONE_TOKEN).distribution.actual[1])
