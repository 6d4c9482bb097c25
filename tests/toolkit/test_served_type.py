"""What a node computes that serves a folder in another type than float32: scales and arithmetic of that type."""

import copy
import json
from pathlib import Path

import pytest
import torch

from quantwatch.cli.exit_codes import OK
from quantwatch.cli.main import main
from quantwatch.toolkit.export import export, read_back
from quantwatch.toolkit.families import groups
from quantwatch.toolkit.formats import Format, Variant
from quantwatch.toolkit.model import Loaded
from quantwatch.toolkit.quantize_study import quantized, served
from quantwatch.toolkit.salience import grouped, stored
from support.tiny_folder import tiny_folder
from support.tiny_llama import tiny_tokenizer
from support.toolkit import a_model, logits, some_ids

ALL = [*Format]
EXPORTED = [Format.INT4, Format.W8, Format.W4A8, Format.W8A8]


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("rest", ["bfloat16", "float16"])
def test_every_format_runs_in_half_precision_near_its_own_self(kind: Format, rest: str) -> None:
    model, ids = a_model(), some_ids()
    made = quantized(model, Variant(kind, 64, rest=rest), {})
    before = logits(made, ids).log_softmax(-1)
    after = logits(served(copy.deepcopy(made), rest), ids)
    assert after.dtype is getattr(torch, rest)
    after = after.float().log_softmax(-1)
    kl = float((before.exp() * (before - after)).sum(-1).mean())
    assert 0 < kl < 0.02


def test_what_positions_are_rotated_by_stays_in_float32() -> None:
    made = served(quantized(a_model(), Variant(Format.INT4, 64), {}), "bfloat16")
    assert {one.dtype for name, one in made.named_buffers() if "inv_freq" in name} == {torch.float32}


@pytest.mark.parametrize("kind", EXPORTED)
@pytest.mark.parametrize("rest", ["float32", "bfloat16", "float16"])
def test_scales_in_the_folder_are_those_that_the_engine_can_hold(tmp_path: Path, kind: Format, rest: str) -> None:
    """So what is predicted with is what is served, to the last bit."""
    model, variant = a_model(), Variant(kind, 64, rest=rest)
    export(Loaded(model, tiny_tokenizer()), variant, tmp_path)
    held = read_back(tmp_path)
    for group in groups(model):
        for name, linear in zip(group.names, group.linears, strict=True):
            assert torch.equal(held[f"{name}.weight"], stored(linear.weight, variant))


@pytest.mark.parametrize(
    ("kind", "rest", "expected"),
    [
        (Format.INT4, "float32", "float32"),
        (Format.INT4, "bfloat16", "bfloat16"),
        (Format.W8, "float16", "float16"),
        (Format.W4A8, "float32", "bfloat16"),
        (Format.W8A8, "bfloat16", "float32"),
        (Format.FP8, "bfloat16", "float32"),
    ],
)
def test_which_type_an_engine_holds_scales_in(kind: Format, rest: str, expected: str) -> None:
    assert Variant(kind, 64, rest=rest).scales == expected


@pytest.mark.parametrize("size", [0.0, 1e-9, 1e-30])
def test_scales_that_are_too_small_for_a_type_divide_by_something(size: float) -> None:
    made = grouped(torch.tensor([[size, -size / 2, 0.0, 0.0]]), bits=4, group=4, scales="float16")
    assert bool(made.isfinite().all())
    assert float(made.abs().max()) <= 1e-6


def test_a_scale_by_hand() -> None:
    """7.03 / 7 is 1.00428..., the nearest bfloat16 is 1.0078125; 3.5 / 1.0078 rounds to 3."""
    made = grouped(torch.tensor([[7.03, 3.5]]), bits=4, group=2, scales="bfloat16")
    assert made.tolist() == [[7 * 1.0078125, 3 * 1.0078125]]


def test_the_command_predicts_in_the_type_that_it_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tiny_folder(tmp_path / "tiny")
    kl = {}
    for rest in ("float32", "bfloat16"):
        told, out = tmp_path / f"{rest}.json", tmp_path / rest
        where = ["--model", str(folder), "--out", str(out), "--cache", str(tmp_path / "cache"), "--json", str(told)]
        prompts = ["--calibration", str(folder / "few.yaml"), "--evaluate", str(folder / "others.yaml"), "--draw", "4"]
        assert main(["toolkit", "export", "--scheme", "int4", "--group", "64", "--dtype", rest, *where, *prompts]) == OK
        kl[rest] = json.loads(told.read_text(encoding="utf-8"))["prediction"]["kl_mean"]["value"]
    assert kl["bfloat16"] != kl["float32"]
    assert kl["bfloat16"] == pytest.approx(kl["float32"], rel=0.5)
    shown = capsys.readouterr().out
    assert shown.count("--dtype bfloat16\n") == shown.count("--dtype float32\n") == 1
    assert "fails at the first request for int4 in float32" in shown
    assert "runs int4 with AVX-512" in shown
