"""From a folder and a recipe to a model that serves."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from quantwatch.errors import InputError
from quantwatch.toolkit.fake_quant import Int8Linear
from quantwatch.toolkit.model import load
from quantwatch.toolkit.prepare import Prepared, calibration_prompts, prepare
from quantwatch.toolkit.recipe import KvBits, Observer, Recipe, Scheme
from support.tiny_llama import tiny_llama
from support.toolkit import a_prompt, some_ids

CALIBRATION = [a_prompt("The quick brown fox SELECT name FROM users"), a_prompt("def add(a, b): 今天天气很好", 1)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("tiny"))


def prepared(folder: Path, recipe: Recipe) -> Prepared:
    return prepare(folder, recipe, calibration=CALIBRATION, tell=print)


def divergence(folder: Path, recipe: Recipe) -> float:
    """Mean full-vocabulary KL in nats from the full-precision model, over random texts."""
    ids = some_ids(48, batch=4)
    p, q = (prepared(folder, one).logits(ids).log_softmax(-1) for one in (Recipe(), recipe))
    return float((p.exp() * (p - q)).sum(-1).mean())


def test_full_precision_is_what_transformers_computes(folder: Path) -> None:
    ids, loaded = some_ids(), load(folder)
    assert torch.equal(prepared(folder, Recipe()).logits(ids), loaded.model(ids).logits)


def test_a_model_only_infers(folder: Path) -> None:
    model = prepared(folder, Recipe(Scheme.W8A8)).model
    assert not model.training
    assert not any(one.requires_grad for one in model.parameters())
    assert {one.dtype for one in model.parameters()} == {torch.float32}
    assert not prepared(folder, Recipe()).logits(some_ids()).requires_grad


def test_outliers_and_smoothing_leave_full_precision_alone(folder: Path) -> None:
    assert divergence(folder, Recipe(outliers=100.0, smooth=0.5)) < 1e-6


def test_outliers_wreck_w8a8_and_smoothing_cures_it(folder: Path) -> None:
    plain = divergence(folder, Recipe(Scheme.W8A8))
    wrecked = divergence(folder, Recipe(Scheme.W8A8, outliers=100.0))
    cured = divergence(folder, Recipe(Scheme.W8A8, outliers=100.0, smooth=0.5))
    assert wrecked > 5 * plain
    assert wrecked > 5 * cured


def test_outliers_wreck_static_scales_most(folder: Path) -> None:
    dynamic = divergence(folder, Recipe(Scheme.W8A8, outliers=100.0))
    static = divergence(folder, Recipe(Scheme.W8A8_STATIC, outliers=100.0))
    assert static > dynamic


def test_static_scales_are_taken_after_smoothing(folder: Path) -> None:
    """Scales from before would clip or waste what smoothing has moved."""
    wrecked = divergence(folder, Recipe(Scheme.W8A8_STATIC, outliers=100.0))
    assert divergence(folder, Recipe(Scheme.W8A8_STATIC, outliers=100.0, smooth=0.5)) < wrecked / 5


def test_the_observers_choose_different_scales(folder: Path) -> None:
    minmax, *others = (
        prepared(folder, Recipe(Scheme.W8A8_STATIC, observer=one)).logits(some_ids()) for one in Observer
    )
    assert len(others) == 2
    assert not any(torch.equal(minmax, one) for one in others)


def test_another_seed_makes_another_node(folder: Path) -> None:
    one, other = (
        prepared(folder, Recipe(Scheme.W8A8, outliers=100.0, seed=seed)).logits(some_ids()) for seed in (0, 1)
    )
    assert not torch.equal(one, other)


def test_the_same_recipe_makes_the_same_node(folder: Path) -> None:
    recipe = Recipe(Scheme.W8A8_STATIC, outliers=100.0, smooth=0.5, kv=KvBits.INT8, observer=Observer.HISTOGRAM, seed=3)
    one, other = (prepared(folder, recipe).logits(some_ids()) for _ in range(2))
    assert torch.equal(one, other)


def test_calibration_prompts_are_read_only_where_they_are_needed(folder: Path) -> None:
    told: list[str] = []
    prepare(folder, Recipe(Scheme.W8A8, outliers=2.0), calibration=(), tell=told.append)
    assert [line for line in told if "calibrating" in line] == []
    with pytest.raises(InputError, match="one prompt"):
        prepare(folder, Recipe(smooth=0.5), calibration=(), tell=told.append)


def test_the_shipped_prompts_calibrate_by_default(folder: Path) -> None:
    told: list[str] = []
    ids, default = some_ids(), prepare(folder, Recipe(Scheme.W8A8, smooth=0.5), tell=told.append)
    given = prepare(folder, Recipe(Scheme.W8A8, smooth=0.5), calibration=calibration_prompts(), tell=told.append)
    assert torch.equal(default.logits(ids), given.logits(ids))
    assert told.count("calibrating on 24 prompts") == 2


def test_loading_says_nothing_on_stdout(folder: Path) -> None:
    program = """
import sys
from pathlib import Path
from quantwatch.toolkit.prepare import prepare
from quantwatch.toolkit.recipe import KvBits, Recipe, Scheme
recipe = Recipe(Scheme.W8A8_STATIC, outliers=100.0, smooth=0.5, kv=KvBits.INT8)
prepare(Path(sys.argv[1]), recipe, tell=lambda _: None)
"""
    done = subprocess.run([sys.executable, "-c", program, folder], capture_output=True, check=True)  # noqa: S603, our own program
    assert done.stdout == b""
    assert done.stderr == b""


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config\.json is missing"):
        load(tmp_path)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config\.json is missing"):
        load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "config", [{}, {"model_type": "t5"}, {"model_type": "never-heard-of"}], ids=["empty", "no causal model", "unknown"]
)
def test_a_config_of_no_causal_language_model_is_refused(config: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="no causal language model"):
        load(tmp_path)


def test_a_config_that_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match="no causal language model"):
        load(tmp_path)


def test_missing_weights_are_refused_not_drawn_at_random(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path / "deep", num_hidden_layers=3)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 4}))
    with pytest.raises(InputError, match=r"9 weights are missing, such as model\.layers\.3\."):
        load(folder)


@pytest.mark.parametrize("kept", [0, 100, 20_000])
def test_a_truncated_weights_file_is_refused(kept: int, tmp_path: Path) -> None:
    weights = tiny_llama(tmp_path / "cut") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:kept])
    with pytest.raises(InputError, match="no causal language model"):
        load(weights.parent)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path / "mute")
    for path in folder.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(InputError, match="no causal language model"):
        load(folder)


def test_a_quantized_node_keeps_its_output_layer(folder: Path) -> None:
    model = prepared(folder, Recipe(Scheme.W8A8)).model
    assert isinstance(model.get_submodule("lm_head"), nn.Linear)
    assert sum(isinstance(part, Int8Linear) for part in model.modules()) == 14
