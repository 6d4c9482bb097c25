"""`quantwatch toolkit smooth` and `quantwatch toolkit quantize` from the command line, on a tiny model."""

import json
from pathlib import Path

import pytest
import torch

from quantwatch.cli.exit_codes import OK, USAGE
from quantwatch.cli.main import main
from quantwatch.toolkit.model import load
from support.tiny_folder import tiny_folder
from support.toolkit import some_ids


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("tiny"))


def asked(folder: Path, command: str) -> list[str]:
    prompts = ["--calibration", str(folder / "few.yaml"), "--evaluate", str(folder / "others.yaml"), "--draw", "6"]
    return ["toolkit", command, "--model", str(folder), *prompts, "--cache", str(folder.parent / "cache")]


@pytest.mark.parametrize("alpha", ["0.5", "auto"])
def test_smooth_tells_drop_and_divergence_and_saves_the_same_function(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], alpha: str
) -> None:
    told, saved = tmp_path / "told.json", tmp_path / "smoothed"
    files = ["--json", str(told), "--save", str(saved)]

    assert main([*asked(folder, "smooth"), "--alpha", alpha, "--deep", "--inject", "100", *files]) == OK

    shown = capsys.readouterr().out
    assert "One scale for the tensor shrinks by" in shown
    assert "naive has" in shown
    assert max(len(line) for line in shown.splitlines() if line.lstrip().startswith("w8a8")) <= 80
    assert "…" not in shown
    result = json.loads(told.read_text(encoding="utf-8"))
    assert len(result["groups"]) == 8
    for scheme in ("w8a8", "w8a8-static"):
        naive, cured = (result["results"][scheme][which]["kl_mean"]["value"] for which in ("naive", "smoothed"))
        assert naive > 2 * cured
    before, after = (load(one).model(some_ids()).logits for one in (folder, saved))
    torch.testing.assert_close(after, before, rtol=1e-3, atol=1e-3 * float(before.abs().max()))


def test_quantize_tells_every_variant_for_both_models(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = tmp_path / "told.json"

    assert main([*asked(folder, "quantize"), "--group", "48", "--keep", "5%", "--json", str(told)]) == OK

    shown = capsys.readouterr().out
    assert "The model as it is" in shown
    assert "With injected outlier channels" in shown
    assert max(len(line) for line in shown.splitlines() if line.lstrip().startswith("int4")) <= 80
    results = json.loads(told.read_text(encoding="utf-8"))["results"]
    assert [(one["variant"], one["injected"]) for one in results] == [
        (f"int4 g48{cure}", injected) for injected in (False, True) for cure in ("", ", 5 % kept", ", scaled")
    ]
    assert [one["recovered"] is None for one in results] == [True, False, False] * 2


@pytest.mark.parametrize("scheme", ["w8", "fp8-e4m3"])
def test_other_formats_have_no_cure(folder: Path, capsys: pytest.CaptureFixture[str], scheme: str) -> None:
    assert main([*asked(folder, "quantize"), "--scheme", scheme, "--inject", "0", "--json", "-"]) == OK
    (one,) = json.loads(capsys.readouterr().out)["results"]
    assert (one["variant"], one["injected"], one["recovered"]) == (scheme, False, None)


REFUSED = [
    (["smooth", "--alpha", "half"], "a number from 0 to 1, or auto"),
    (["smooth", "--alpha", "1.5"], "a number from 0 to 1, or auto"),
    (["quantize", "--keep", "60%"], "up to a half"),
    (["quantize", "--keep", "some"], "up to a half"),
    (["quantize", "--scheme", "w8", "--group", "64"], "are for int4, int6 and w4a8"),
    (["quantize", "--evaluate", "prosa"], "did you mean prose?"),
]


@pytest.mark.parametrize(("given", "said"), REFUSED)
def test_what_makes_no_sense_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], given: list[str], said: str
) -> None:
    assert main(["toolkit", given[0], "--model", str(folder), *given[1:]]) == USAGE
    assert said in capsys.readouterr().err


def test_a_model_is_not_measured_on_what_it_was_calibrated_with(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*asked(folder, "quantize"), "--evaluate", str(folder / "few.yaml")]) == USAGE
    assert "flatters every scale" in capsys.readouterr().err


def test_a_folder_that_holds_something_is_not_written_to(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*asked(folder, "smooth"), "--save", str(folder)]) == USAGE
    assert "is not empty" in capsys.readouterr().err


def test_growth_tells_every_layer(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["toolkit", "growth", "--model", str(folder), "--prompts", str(folder / "few.yaml")]
    assert main([*command, "--out", str(tmp_path), "--json", str(tmp_path / "told.json")]) == OK
    assert "int4 g64: the residual stream" in capsys.readouterr().out
    layers = json.loads((tmp_path / "told.json").read_text(encoding="utf-8"))["layers"]
    assert [one["layer"] for one in layers] == [0, 1]
    assert layers[1]["error"] > 0
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (tmp_path / "growth.svg").read_bytes()


def test_observers_tell_how_the_result_moves_with_the_prompts(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*asked(folder, "observers"), "--counts", "1,3", "--inject", "100", "--out", str(tmp_path)]
    assert main([*command, "--json", str(tmp_path / "told.json")]) == OK
    shown = capsys.readouterr().out
    assert "percentile" in shown
    assert "…" not in shown
    results = json.loads((tmp_path / "told.json").read_text(encoding="utf-8"))["results"]
    assert [(one["observer"], one["prompts_calibrated"]) for one in results] == [
        (observer, count) for count in (1, 3) for observer in ("minmax", "histogram", "percentile")
    ]
    assert len({one["kl_mean"]["value"] for one in results}) > 3
    assert (tmp_path / "observers.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("counts", ["0,3", "a", "4", ""])
def test_counts_that_make_no_sense_are_refused(folder: Path, capsys: pytest.CaptureFixture[str], counts: str) -> None:
    assert main([*asked(folder, "observers"), "--counts", counts]) == USAGE
    assert "--counts" in capsys.readouterr().err
