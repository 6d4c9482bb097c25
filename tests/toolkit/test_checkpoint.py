"""Planted faults in checkpoints are found, and sound checkpoints are left in peace."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from quantwatch.cli.exit_codes import BREACH, OK, USAGE
from quantwatch.cli.main import main
from quantwatch.errors import InputError
from quantwatch.toolkit.checkpoint import INDEX, Complaint, Level, Stored, open_checkpoint
from quantwatch.toolkit.checkpoint_expected import expected_complaints
from quantwatch.toolkit.checkpoint_values import Values, values_complaints
from support.tiny_llama import tiny_llama

UP = "model.layers.1.mlp.up_proj.weight"
DOWN = "model.layers.0.mlp.down_proj.weight"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((sound / name).read_bytes())
    return tmp_path


def planted(folder: Path, change: Callable[[dict[str, Tensor]], None], **config: Any) -> Path:
    """Change the tensors and the configuration of a checkpoint."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file({name: one.contiguous() for name, one in tensors.items()}, folder / "model.safetensors")
    given = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(given | config), encoding="utf-8")
    return folder


def complaints(path: Path) -> list[Complaint]:
    checkpoint = open_checkpoint(path)
    return [*checkpoint.complaints, *expected_complaints(checkpoint), *values_complaints(checkpoint)]


def only(path: Path) -> Complaint:
    (one,) = complaints(path)
    return one


def poke(name: str, value: float, *, at: int = 0) -> Callable[[dict[str, Tensor]], None]:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors[name].view(-1)[at] = value

    return change


def scaled(scale: Tensor) -> Callable[[dict[str, Tensor]], None]:
    """An int8 weight and its scales in the place of a plain one."""

    def change(tensors: dict[str, Tensor]) -> None:
        tensors[UP] = (tensors[UP] * 40).round().clamp(-7, 7).to(torch.int8)
        tensors[UP.replace("weight", "weight_scale")] = scale

    return change


def int4(**more: Any) -> dict[str, Any]:
    return {"quantization_config": {"config_groups": {"group_0": {"weights": {"num_bits": 4} | more}}}}


def test_a_sound_checkpoint_has_nothing_to_complain_of(sound: Path) -> None:
    assert complaints(sound) == []


@pytest.mark.parametrize(("value", "what"), [(math.nan, "1 NaN of 8192"), (-math.inf, "1 infinite of 8192")])
def test_a_number_that_is_not_finite_is_a_fault(folder: Path, value: float, what: str) -> None:
    one = only(planted(folder, poke(UP, value, at=4711)))
    assert (one.level, one.place, one.what, one.layer) == (Level.FAULT, UP, what, 1)


@pytest.mark.parametrize(("value", "complained"), [(65519.0, 0), (65520.0, 1), (-1e30, 1)])
def test_what_becomes_infinite_in_fp16_is_a_risk(folder: Path, value: float, complained: int) -> None:
    """65519 still rounds to FP16's largest number, 65504."""
    assert bool(torch.tensor(value).half().isinf()) is bool(complained)
    found = complaints(planted(folder, poke(UP, value)))
    assert [one.level for one in found] == [Level.RISK] * complained


def test_bf16_is_held_against_fp16_too(folder: Path) -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors[DOWN] = tensors[DOWN].bfloat16()
        tensors[DOWN][0, 0] = 1e5

    assert "become infinite in FP16" in only(planted(folder, change)).what


def test_a_weight_of_zeros_is_a_risk(folder: Path) -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors[DOWN].zero_()

    one = only(planted(folder, change))
    assert (one.level, one.what, one.layer) == (Level.RISK, "zero throughout", 0)


SCALES = [
    (0.0, Level.FAULT, "are zero"),
    (math.nan, Level.FAULT, "1 NaN of 128"),
    (math.inf, Level.FAULT, "1 infinite of 128"),
    (-0.5, Level.RISK, "are negative"),
    (1e-40, Level.RISK, "are denormal"),
]


@pytest.mark.parametrize(("value", "level", "what"), SCALES)
def test_a_useless_scale_is_found(folder: Path, value: float, level: Level, what: str) -> None:
    scale = torch.full((128, 1), 0.02)
    scale[5] = value
    one = only(planted(folder, scaled(scale)))
    assert (one.level, one.layer) == (level, 1)
    assert what in one.what


def test_a_denormal_of_fp16_is_one_of_its_own_type(folder: Path) -> None:
    scale = torch.full((128, 1), 0.02).half()
    scale[3] = 1e-5
    assert "1 scales of 128 are denormal" in only(planted(folder, scaled(scale))).what


def test_sound_scales_are_left_alone(folder: Path) -> None:
    assert complaints(planted(folder, scaled(torch.full((128, 1), 0.02)), **int4())) == []


def test_a_code_outside_its_bits_is_a_fault(folder: Path) -> None:
    planted(folder, scaled(torch.full((128, 1), 0.02)), **int4())
    one = only(planted(folder, poke(UP, 9)))
    assert (one.level, one.what) == (Level.FAULT, "1 codes outside -8 to 7, the range of 4 bits")


def packed(word: int) -> Callable[[dict[str, Tensor]], None]:
    def change(tensors: dict[str, Tensor]) -> None:
        del tensors[UP]
        codes = torch.full((128, 13), 5, dtype=torch.int32)
        codes[2, 3] = word
        tensors[UP + "_packed"] = codes
        tensors[UP + "_scale"] = torch.full((128, 1), 0.02)

    return change


def test_packed_words_with_bits_beyond_their_codes_are_a_fault(folder: Path) -> None:
    """Five codes of six bits fill 30 bits of a word; any word of eight codes of four bits is one."""
    assert complaints(planted(folder, packed(2**30 - 1), **int4(num_bits=6))) == []
    assert complaints(planted(folder, lambda _: None, **int4())) == []


def test_a_packed_word_out_of_range_is_found(folder: Path) -> None:
    one = only(planted(folder, packed(2**30), **int4(num_bits=6)))
    assert one.what == "1 words with bits beyond the 5 codes of 6 bits"


def test_a_quantized_weight_without_its_scale_is_a_fault(folder: Path) -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors[UP] = tensors[UP].to(torch.float8_e4m3fn)

    one = only(planted(folder, change))
    assert (one.level, one.what) == (Level.FAULT, "quantized, and its weight_scale is missing")


def test_a_missing_tensor_is_a_fault_and_a_tied_output_layer_may_be_missing(folder: Path) -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        del tensors[DOWN]
        tensors.pop("lm_head.weight", None)

    assert {one.place for one in complaints(planted(folder, change))} == {DOWN, "lm_head.weight"}
    assert {one.place for one in complaints(planted(folder, lambda _: None, tie_word_embeddings=True))} == {DOWN}


def test_a_tensor_of_another_shape_is_a_fault(folder: Path) -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors[DOWN] = tensors[DOWN][:, :100]

    assert only(planted(folder, change)).what == "has shape [64, 100], and config.json asks for [64, 128]"


def test_an_unknown_family_is_looked_at_and_said_to_be_unknown(folder: Path) -> None:
    one = only(planted(folder, lambda _: None, model_type="phi"))
    assert one.level is Level.RISK
    assert "'phi'" in one.what


def test_a_truncated_file_is_a_fault_and_nothing_else_is_called_missing(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    assert "truncated or damaged" in only(folder).what


def test_a_pointer_of_git_lfs_is_named(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\nsize 9\n")
    assert "Git LFS" in only(folder).what


def sharded(folder: Path) -> Path:
    """The same tensors in two files with an index."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    halves = {"model-00001-of-00002.safetensors": names[:9], "model-00002-of-00002.safetensors": names[9:]}
    for file, held in halves.items():
        save_file({name: tensors[name] for name in held}, folder / file)
    where = {name: file for file, held in halves.items() for name in held}
    (folder / INDEX).write_text(json.dumps({"weight_map": where}), encoding="utf-8")
    return folder


def test_shards_are_one_checkpoint(folder: Path) -> None:
    assert complaints(sharded(folder)) == []


def test_a_missing_shard_is_found_with_and_without_the_index(folder: Path) -> None:
    (sharded(folder) / "model-00002-of-00002.safetensors").unlink()
    assert only(folder).what == "missing; the index names it"
    (folder / INDEX).unlink()
    assert {one.place for one in complaints(folder)} == {INDEX, "model-00002-of-00002.safetensors"}


def test_a_tensor_that_the_index_seeks_elsewhere_is_a_fault(folder: Path) -> None:
    index = json.loads((sharded(folder) / INDEX).read_text(encoding="utf-8"))
    index["weight_map"][UP] = "model-00001-of-00002.safetensors"
    (folder / INDEX).write_text(json.dumps(index), encoding="utf-8")
    assert "the index says" in only(folder).what
    del index["weight_map"][UP]
    (folder / INDEX).write_text(json.dumps(index), encoding="utf-8")
    assert only(folder).level is Level.RISK


def test_a_file_beside_the_index_is_one_risk(folder: Path) -> None:
    save_file({"a.weight": torch.ones(2, 2), "b.weight": torch.ones(2)}, sharded(folder) / "c.safetensors")
    one = only(folder)
    assert (one.level, one.place) == (Level.RISK, "c.safetensors")


def test_a_tensor_that_stands_twice_is_a_fault(folder: Path) -> None:
    second = folder / "model-00001-of-00002.safetensors"
    save_file({UP: load_file(sharded(folder) / "model-00002-of-00002.safetensors")[UP]} | load_file(second), second)
    assert "stands in" in complaints(folder)[0].what


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"weight_map": []}'])
def test_an_index_that_cannot_be_read_is_a_fault(folder: Path, text: str) -> None:
    (sharded(folder) / INDEX).write_text(text, encoding="utf-8")
    assert only(folder).place == INDEX


@pytest.mark.parametrize(("text", "level"), [(None, Level.RISK), ("{", Level.FAULT), ("[]", Level.FAULT)])
def test_a_configuration_that_cannot_be_used_is_told(folder: Path, text: str | None, level: Level) -> None:
    (folder / "config.json").unlink()
    if text is not None:
        (folder / "config.json").write_text(text, encoding="utf-8")
    assert (only(folder).level, only(folder).place) == (level, "config.json")


def test_one_file_is_checked_too(folder: Path) -> None:
    assert complaints(folder / "model.safetensors") == []


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        open_checkpoint(tmp_path / "none")
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(InputError, match=r"pytorch_model\.bin is of another format"):
        open_checkpoint(tmp_path)


def test_a_tensor_comes_in_blocks(folder: Path) -> None:
    save_file({"w": torch.zeros(5, 2**23, dtype=torch.int8)}, folder / "wide.safetensors")
    stored = Stored("w", folder / "wide.safetensors", (5, 2**23), "I8")
    assert [len(block) for block in stored.blocks()] == [2, 2, 1]


def test_values_are_counted_by_hand() -> None:
    seen = Values()
    seen.add(torch.tensor([0.0, -1.0, math.nan, math.inf, -math.inf, 1e-39, 7e4]), tiny=1e-38)
    assert (seen.count, seen.nan, seen.infinite, seen.zero) == (7, 1, 2, 1)
    assert (seen.negative, seen.denormal, seen.over, seen.largest) == (1, 1, 1, 70000.0)


def test_the_exit_code_tells(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["toolkit", "check-checkpoint", str(folder)]
    assert main(command) == OK
    planted(folder, poke(UP, 1e30))
    assert main(command) == OK
    assert main([*command, "--strict"]) == BREACH
    planted(folder, poke(DOWN, math.nan))
    capsys.readouterr()
    assert main([*command, "--json", "-"]) == BREACH
    told = capsys.readouterr()
    assert [one["layer"] for one in json.loads(told.out)["complaints"]] == [0, 1]
    assert "1 faults, 1 risks" in told.err
    assert main(["toolkit", "check-checkpoint", str(folder / "none")]) == USAGE
