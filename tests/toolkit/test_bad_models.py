"""Every command of the toolkit on models that cannot be used: a sentence that helps, and never a wrong number."""

import json
import math
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from quantwatch.cli.exit_codes import BREACH, OK, USAGE
from quantwatch.cli.main import main
from quantwatch.errors import InputError
from quantwatch.toolkit.library import transformers
from quantwatch.toolkit.model import Loaded, load
from quantwatch.toolkit.score import exam
from quantwatch.toolkit.subject import float32_weights
from support.tiny_folder import tiny_folder
from support.tiny_llama import tiny_tokenizer
from support.toolkit import SIZES, a_model, a_prompt

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
READERS = ("outliers", "growth")
MEASURERS = ("smooth", "quantize", "observers", "export", "diagnose")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("sound"))


@pytest.fixture(scope="module")
def ragged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tied embeddings, and 72 columns, which groups of 64 do not divide."""
    folder = tmp_path_factory.mktemp("ragged")
    tiny_folder(folder)
    sizes: dict[str, Any] = {"hidden_size": 72, "head_dim": 18, "vocab_size": 400, "tie_word_embeddings": True}
    a_model(**sizes).save_pretrained(folder)  # type: ignore[operator]  # transformers is used untyped
    return folder


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    made = tmp_path / "model"
    shutil.copytree(sound, made)
    return made


def command(name: str, folder: Path, *, group: str = "64") -> list[str]:
    """The command on the model, with prompts that lie beside it and few of them."""
    asked = ["toolkit", name, "--model", str(folder)]
    if name in READERS:
        return [*asked, "--prompts", str(folder / "few.yaml")]
    measured = "--sets" if name == "diagnose" else "--evaluate"
    asked += ["--calibration", str(folder / "few.yaml"), measured, str(folder / "others.yaml"), "--draw", "4"]
    asked += ["--cache", str(folder.parent / "cache")]
    return asked + {
        "quantize": ["--group", group, "--inject", "0"],
        "observers": ["--counts", "2"],
        "export": ["--scheme", "w8a8", "--out", str(folder.parent / "exported"), "--continuation-tokens", "8"],
        "diagnose": ["--group", group, "--continuation-tokens", "8", "--worst", "1"],
    }.get(name, [])


def config(folder: Path, **more: object) -> None:
    given = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(given | more), encoding="utf-8")


def unknown_architecture(folder: Path) -> None:
    sizes: dict[str, Any] = {
        name: SIZES[name] for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    }
    a_model("phi", **sizes).save_pretrained(folder)  # type: ignore[operator]  # transformers is used untyped


def missing_shard(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    names = sorted(tensors)
    parts = [names[: len(names) // 2], names[len(names) // 2 :]]
    (folder / WEIGHTS).unlink()
    where: dict[str, str] = {}
    for number, part in enumerate(parts, 1):
        file = f"model-{number:05d}-of-00002.safetensors"
        where |= dict.fromkeys(part, file)
        if number == 1:
            save_file({name: tensors[name] for name in part}, folder / file, metadata={"format": "pt"})
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": where}), encoding="utf-8")


def truncated(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-100])


def missing_tensor(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def nan_in(name: str) -> Callable[[Path], None]:
    def plant(folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS)
        tensors[name].view(-1)[5] = math.nan
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})

    return plant


def wrong_tokenizer(folder: Path) -> None:
    a_model(vocab_size=60).save_pretrained(folder)  # type: ignore[operator]  # transformers is used untyped


def no_tokenizer(folder: Path) -> None:
    for path in folder.glob("*token*"):
        path.unlink()


def damaged_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"version": "1.0", "model": 3}', encoding="utf-8")


def larger_than_memory(folder: Path) -> None:
    """A file with a hole of 300 GB in it, which takes no place on the disk."""
    size = 300 * 10**9
    head = json.dumps({"huge": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
    with (folder / WEIGHTS).open("wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        file.truncate(8 + len(head) + size)


def quantized_already(folder: Path) -> None:
    config(folder, quantization_config={"quant_method": "compressed-tensors", "format": "int-quantized"})


def no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def damaged_config(folder: Path) -> None:
    (folder / "config.json").write_text("{", encoding="utf-8")


def config_of_nothing(folder: Path) -> None:
    (folder / "config.json").write_text("{}", encoding="utf-8")


BAD = [
    (unknown_architecture, "'phi' cannot be quantized here; known types: llama, mistral, qwen2, qwen3. A new one is"),
    (missing_shard, "model-00002-of-00002.safetensors"),
    (truncated, "no whole safetensors file"),
    (missing_tensor, "1 weights are missing, such as model.layers.1.mlp.up_proj.weight"),
    (nan_in("model.layers.1.mlp.up_proj.weight"), "up_proj.weight holds numbers that are not finite"),
    (nan_in("lm_head.weight"), "lm_head.weight holds numbers that are not finite"),
    (wrong_tokenizer, "another model's tokenizer"),
    (no_tokenizer, "transformers can load"),
    (damaged_tokenizer, "transformers can load"),
    (larger_than_memory, "GB of memory are free; a larger machine is wanted"),
    (quantized_already, "is quantized already"),
    (no_config, "config.json is missing"),
    (damaged_config, "transformers can load"),
    (config_of_nothing, "transformers can load"),
]


@pytest.mark.parametrize(("spoil", "said"), BAD, ids=[str(number) for number in range(len(BAD))])
def test_every_command_refuses_a_bad_model_in_a_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], spoil: Callable[[Path], None], said: str
) -> None:
    spoil(folder)
    for name in (*READERS, *MEASURERS):
        assert main(command(name, folder)) == USAGE, name
        shown = capsys.readouterr()
        assert said in shown.err, name
        assert "Traceback" not in shown.err
        assert shown.out == ""
    assert not (folder.parent / "exported" / "config.json").exists()


@pytest.mark.parametrize(
    ("spoil", "code", "said"),
    [
        (unknown_architecture, OK, "0 faults"),
        (missing_shard, BREACH, "model-00002-of-00002.safetensors: missing; the index names it"),
        (truncated, BREACH, "truncated or damaged"),
        (missing_tensor, BREACH, "model.layers.1.mlp.up_proj.weight"),
        (nan_in("lm_head.weight"), BREACH, "1 NaN"),
        (no_tokenizer, OK, "0 faults"),
        (no_config, OK, "what tensors there should be is not known"),
        (damaged_config, BREACH, "cannot be read"),
    ],
    ids=lambda one: getattr(one, "__name__", None),
)
def test_a_checkpoint_is_checked_where_no_model_can_be_loaded(
    folder: Path, capsys: pytest.CaptureFixture[str], spoil: Callable[[Path], None], code: int, said: str
) -> None:
    spoil(folder)
    assert main(["toolkit", "check-checkpoint", str(folder)]) == code
    assert said in capsys.readouterr().out


def test_a_file_that_cannot_be_mapped_is_no_fault_of_the_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    larger_than_memory(folder)
    assert main(["toolkit", "check-checkpoint", str(folder)]) == USAGE
    assert "300.0 GB in one file are more than this machine can map" in capsys.readouterr().err


@pytest.mark.parametrize("name", [*READERS, *MEASURERS])
def test_tied_embeddings_and_ragged_groups_are_no_obstacle(
    ragged: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in ragged.iterdir()}
    told = ragged.parent / f"{name}.json"
    assert main([*command(name, ragged), "--json", str(told)]) == OK
    assert "nan" not in capsys.readouterr().out.lower()
    assert "NaN" not in told.read_text(encoding="utf-8")
    assert {path.name: path.stat().st_mtime_ns for path in ragged.iterdir()} == before


def test_ragged_groups_are_not_exported(ragged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["toolkit", "export", "--model", str(ragged), "--scheme", "int4", "--out", str(tmp_path / "out")]
    assert main(asked) == USAGE
    assert "72 columns" in capsys.readouterr().err
    assert main(["toolkit", "check-checkpoint", str(ragged)]) == OK


def test_a_given_answer_of_another_tokenizer_is_refused() -> None:
    import dataclasses  # noqa: PLC0415, beside its only use

    loaded = Loaded(a_model(vocab_size=300), tiny_tokenizer())
    prompts = [dataclasses.replace(a_prompt("a"), continuation="The quick brown fox"), a_prompt("b", 1)]
    with pytest.raises(InputError, match="another model's tokenizer"):
        exam(loaded, prompts, limit=8)


def test_weights_in_another_format_count_towards_memory_too(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"x" * 1000)
    assert float32_weights(tmp_path) == 1000


def test_a_tied_output_layer_is_loaded_from_the_embeddings(ragged: Path) -> None:
    model = load(ragged).model
    assert model.get_parameter("lm_head.weight") is model.get_parameter("model.embed_tokens.weight")
    assert transformers.AutoConfig.from_pretrained(ragged).tie_word_embeddings
    assert bool(torch.isfinite(model.get_parameter("lm_head.weight")).all())
