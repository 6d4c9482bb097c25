"""Export to compressed-tensors: words by hand, what is read back is what was rounded, and refusals name a way out."""

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from quantwatch.cli.exit_codes import OK, USAGE
from quantwatch.cli.main import main
from quantwatch.errors import InputError
from quantwatch.toolkit.capture import Heard
from quantwatch.toolkit.checkpoint import open_checkpoint
from quantwatch.toolkit.checkpoint_expected import expected_complaints
from quantwatch.toolkit.checkpoint_values import values_complaints
from quantwatch.toolkit.compressed import compressed, decompressed, packed, unpacked
from quantwatch.toolkit.export import Cure, cure, export, read_back, refuse_unexportable
from quantwatch.toolkit.families import FAMILIES, groups
from quantwatch.toolkit.formats import BITS, GROUPED, Format, Variant
from quantwatch.toolkit.model import Loaded
from quantwatch.toolkit.salience import stored
from support.tiny_folder import tiny_folder
from support.tiny_llama import tiny_tokenizer
from support.toolkit import a_model, logits, some_ids

EVERY = [Variant(one, 32 if one in GROUPED else 0) for one in Format if one is not Format.INT6]
SMALL = 2**15


def exported(folder: Path, variant: Variant, kind: str = "llama", *, shard: int = SMALL, tied: bool = True) -> Loaded:
    loaded = Loaded(a_model(kind, vocab_size=400, tie_word_embeddings=tied), tiny_tokenizer())
    export(loaded, variant, folder, shard=shard)
    return loaded


def test_words_by_hand() -> None:
    """Codes -8..-1 are stored as 0..7, the first in the lowest four bits: 0x76543210. 0, 1 and 7 are 8, 9 and 15."""
    codes = torch.tensor([[-8, -7, -6, -5, -4, -3, -2, -1], [0, 1, 7, 0, 0, 0, 0, 7]], dtype=torch.int8)
    words = packed(codes, bits=4)
    assert [one % 2**32 for one in words.flatten().tolist()] == [0x76543210, 0xF8888F98]
    assert torch.equal(unpacked(words, bits=4, columns=8), codes)


def test_words_of_eight_bits_by_hand() -> None:
    codes = torch.tensor([[-128, -127, 0, 127]], dtype=torch.int8)
    words = packed(codes, bits=8)
    assert [one % 2**32 for one in words.flatten().tolist()] == [0xFF800100]
    assert torch.equal(unpacked(words, bits=8, columns=4), codes)


@pytest.mark.parametrize("variant", EVERY, ids=lambda one: one.name)
@pytest.mark.parametrize("size", [1.0, 1e-42])
def test_a_weight_comes_back_as_it_was_rounded(variant: Variant, size: float) -> None:
    weight = size * torch.randn(24, 64, generator=torch.Generator().manual_seed(1))
    weight[3] = 0.0
    weight[5, 32:] = 0.0
    made = compressed(weight, variant)
    assert torch.equal(decompressed(made, bits=BITS[variant.format]), stored(weight, variant))
    assert made["weight_scale"][3].tolist() == [1.0] * made["weight_scale"].shape[1]


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("variant", EVERY, ids=lambda one: one.name)
def test_a_folder_is_sound_and_reads_back_exactly(tmp_path: Path, variant: Variant, kind: str) -> None:
    loaded = exported(tmp_path, variant, kind)

    checkpoint = open_checkpoint(tmp_path)
    assert [*checkpoint.complaints, *expected_complaints(checkpoint), *values_complaints(checkpoint)] == []
    rounded = {f"{name}.weight" for group in groups(loaded.model) for name in group.names}
    found = read_back(tmp_path)
    expected = {name: value for name, value in loaded.model.state_dict().items() if name != "lm_head.weight"}
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        wanted = stored(value, variant) if name in rounded else value
        assert torch.equal(found[name], wanted), name
    assert {one.stat().st_mode & 0o777 for one in tmp_path.glob("*.safetensors")} == {0o644}


def test_the_configuration_tells_vllm_how_to_read(tmp_path: Path) -> None:
    exported(tmp_path, Variant(Format.INT4, 32), tied=False)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert (config["architectures"], config["dtype"]) == (["LlamaForCausalLM"], "float32")
    told = config["quantization_config"]
    assert (told["quant_method"], told["format"], told["ignore"]) == (
        "compressed-tensors",
        "pack-quantized",
        ["lm_head"],
    )
    (group,) = told["config_groups"].values()
    assert (group["weights"]["num_bits"], group["weights"]["strategy"], group["weights"]["group_size"]) == (
        4,
        "group",
        32,
    )
    assert group["input_activations"] is None
    assert "lm_head.weight" in read_back(tmp_path)


@pytest.mark.parametrize(("form", "layout"), [(Format.W8A8, "int-quantized"), (Format.FP8, "float-quantized")])
def test_activations_stand_in_the_configuration(tmp_path: Path, form: Format, layout: str) -> None:
    exported(tmp_path, Variant(form))
    told = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))["quantization_config"]
    (group,) = told["config_groups"].values()
    assert told["format"] == layout
    assert group["weights"]["strategy"] == "channel"
    assert (group["input_activations"]["strategy"], group["input_activations"]["dynamic"]) == ("token", True)


def test_shards_are_small_and_one_file_needs_no_index(tmp_path: Path) -> None:
    many, one = tmp_path / "many", tmp_path / "one"
    for folder, shard in ((many, SMALL), (one, 10**9)):
        folder.mkdir()
        exported(folder, Variant(Format.W8A8), shard=shard)
    assert [file.name for file in one.glob("*.safetensors*")] == ["model.safetensors"]
    index = json.loads((many / "model.safetensors.index.json").read_text(encoding="utf-8"))
    files = sorted(many.glob("*.safetensors"))
    assert len(files) > 3
    assert not list(many.glob("*.part"))
    for file in files:
        with safe_open(file, framework="pt") as opened:
            names = opened.keys()
            assert {index["weight_map"][name] for name in names} == {file.name}
    assert read_back(many).keys() == read_back(one).keys()


def test_curing_keeps_the_function() -> None:
    model, ids = a_model(), some_ids()
    before = logits(model, ids)
    scaled, cures = Variant(Format.W4A8, 32, scaled=True), Cure(smooth=True, alpha=None, deep=True)
    cure(model, [some_ids(60, seed=3)], cures, scaled, hearer=_silent)
    assert float((logits(model, ids) - before).abs().max()) < 1e-4 * float(before.abs().max())
    fresh = a_model()
    gain = "model.layers.0.input_layernorm.weight"
    assert not torch.equal(model.get_parameter(gain), fresh.get_parameter(gain))


def _silent(_doing: str) -> Heard:
    return lambda _done, _of: None


UNFIT = [
    (Variant(Format.INT4, 64, keep=0.01), "--scaled keeps the format uniform"),
    (Variant(Format.INT6, 64), "export int4, w8, w4a8"),
    (Variant(Format.INT4, 48), "--group may be one of 32, 64"),
]


@pytest.mark.parametrize(("variant", "said"), UNFIT)
def test_what_cannot_be_written_is_refused_with_a_way_out(variant: Variant, said: str) -> None:
    with pytest.raises(InputError, match=said):
        refuse_unexportable(a_model(), variant)


def test_broken_weights_are_refused_by_name(tmp_path: Path) -> None:
    model = a_model()
    model.get_parameter("model.layers.1.mlp.up_proj.weight").data[0, 0] = math.nan
    with pytest.raises(InputError, match=r"layers\.1\.mlp\.up_proj\.weight: holds NaN"):
        export(Loaded(model, tiny_tokenizer()), Variant(Format.W8A8), tmp_path)
    assert not list(tmp_path.iterdir())


def test_values_beyond_half_precision_are_refused(tmp_path: Path) -> None:
    model = a_model()
    model.get_parameter("model.norm.weight").data[0] = 1e5
    loaded = Loaded(model, tiny_tokenizer())
    with pytest.raises(InputError, match=r"model\.norm\.weight: .*--dtype bfloat16"):
        export(loaded, Variant(Format.W8A8, rest="float16"), tmp_path)
    assert not (tmp_path / "config.json").exists()
    export(loaded, Variant(Format.W8A8, rest="bfloat16"), tmp_path)
    assert kinds(tmp_path)["model.norm.weight"] == torch.bfloat16
    assert kinds(tmp_path)["model.layers.0.mlp.up_proj.weight_scale"] == torch.float32


def kinds(folder: Path) -> dict[str, torch.dtype]:
    with safe_open(folder / "model.safetensors", framework="pt") as opened:
        names = opened.keys()
        return {name: opened.get_tensor(name).dtype for name in names}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("tiny"))


def asked(folder: Path, out: Path, *more: str) -> list[str]:
    cache = ["--cache", str(folder.parent / "cache"), "--calibration", str(folder / "few.yaml")]
    return ["toolkit", "export", "--model", str(folder), "--out", str(out), *cache, *more]


def test_the_command_predicts_and_its_folder_is_sound(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kl = {}
    measured = ["--evaluate", str(folder / "others.yaml"), "--draw", "4", "--inject", "100"]
    for name, more in {"plain": [], "smooth": ["--smooth", "0.5"]}.items():
        told = tmp_path / f"{name}.json"
        assert main([*asked(folder, tmp_path / name, *measured, *more), "--json", str(told)]) == OK
        kl[name] = json.loads(told.read_text(encoding="utf-8"))["prediction"]["kl_mean"]["value"]
        shown = capsys.readouterr().out
        assert "14 linears in w8a8" in shown
        assert "vLLM 0.32" not in shown
        assert main(["toolkit", "check-checkpoint", str(tmp_path / name), "--strict"]) == OK
    assert kl["plain"] > 3 * kl["smooth"] > 0


def test_int4_with_searched_scales_from_the_command_line(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "made"
    assert main(asked(folder, out, "--scheme", "int4", "--group", "32", "--scaled", "--dtype", "bfloat16")) == OK
    assert json.loads((out / "config.json").read_text(encoding="utf-8"))["dtype"] == "bfloat16"


REFUSED = [
    (["--scheme", "int4", "--keep", "1%"], "--scaled keeps the format uniform"),
    (["--scheme", "int6"], "weights of 4 or 8 bits, not of 6"),
    (["--scheme", "w8a8", "--group", "64"], "are for int4 and w4a8"),
    (["--scheme", "int4", "--group", "48"], "--group may be one of 32, 64"),
    (["--smooth", "2"], "--smooth 2: a number from 0 to 1"),
    (["--deep"], "give --smooth as well"),
]


@pytest.mark.parametrize(("more", "said"), REFUSED)
def test_the_command_refuses_and_leaves_no_folder(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], said: str
) -> None:
    assert main(asked(folder, tmp_path / "made", *more)) == USAGE
    assert said in capsys.readouterr().err
    assert not (tmp_path / "made").exists()


def test_a_folder_that_holds_something_is_not_written_to(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(asked(folder, folder)) == USAGE
    assert "is not empty" in capsys.readouterr().err
