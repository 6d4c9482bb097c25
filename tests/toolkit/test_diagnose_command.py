"""`quantwatch toolkit diagnose` from the command line, on a tiny model."""

import json
from pathlib import Path

import pytest

from quantwatch.cli.exit_codes import OK, USAGE
from quantwatch.cli.main import main
from quantwatch.cli.toolkit_options import hearer
from support.tiny_folder import tiny_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("tiny"))


def asked(folder: Path, *more: str) -> list[str]:
    prompts = ["--calibration", str(folder / "few.yaml"), "--sets", str(folder / "others.yaml"), "--draw", "6"]
    tokens = ["--continuation-tokens", "12", "--cache", str(folder.parent / "cache")]
    return ["toolkit", "diagnose", "--model", str(folder), *prompts, *tokens, *more]


def test_sets_layers_and_cures_are_told_written_and_drawn(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, told = tmp_path / "report.html", tmp_path / "told.json"

    assert main(asked(folder, "--worst", "1", "--keep", "5%", "--out", str(page), "--json", str(told))) == OK

    shown = capsys.readouterr()
    for part in ("int4 g64 by task set", "Each layer quantized alone", "Inside the worst", "Cures, over all"):
        assert part in shown.out
    rows = [line for line in shown.out.splitlines() if line.strip().startswith(("others", "none", "layer", "0 "))]
    assert len(rows) > 6
    assert max(map(len, rows)) <= 80
    assert "…" not in shown.out
    assert "layer by layer 2/2" in shown.err
    result = json.loads(told.read_text(encoding="utf-8"))
    assert (result["variant"], result["limits"], list(result["sets"])) == ("int4 g64", "int4", ["others"])
    assert len(result["causes"]["layers"]) == 2
    assert "5 % of channels kept" in [one["name"] for one in result["cures"]]
    assert all(line in shown.out for line in result["conclusion"])
    assert "data:image/png;base64," in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("given", "variant", "limits"),
    [("int8", "w8a8", "int8"), ("fp8", "fp8-e4m3", "fp8"), ("int6", "int6 g64", "int8"), ("w4a8", "w4a8 g64", "int4")],
)
def test_schemes_go_by_the_names_of_servers_too(
    folder: Path, capsys: pytest.CaptureFixture[str], given: str, variant: str, limits: str
) -> None:
    assert main(asked(folder, "--scheme", given, "--worst", "0", "--json", "-")) == OK
    result = json.loads(capsys.readouterr().out)
    assert (result["variant"], result["limits"]) == (variant, limits)
    assert result["causes"]["inside_the_worst"] == []


@pytest.mark.parametrize(
    ("of", "told"),
    [(1, [1]), (2, [1, 2]), (8, [1, 4, 8]), (29, [1, 15, 29]), (30, [1, *range(3, 31, 3)])],
)
def test_long_steps_are_told_of_more_often(capsys: pytest.CaptureFixture[str], of: int, told: list[int]) -> None:
    heard = hearer("layer by layer")
    for done in range(1, of + 1):
        heard(done, of)
    assert capsys.readouterr().err.splitlines() == [f"layer by layer {one}/{of}" for one in told]


REFUSED = [
    (["--scheme", "int5"], "one of int4, int6"),
    (["--scheme", "int8", "--group", "32"], "with w8a8 leave it out"),
    (["--sets", "chat,maths"], "did you mean math?"),
    (["--sets", " , "], "one task set at least"),
    (["--sets", "nothing-like-it"], "no shipped task set and no file. Shipped: chat"),
    (["--keep", "60%"], "up to a half"),
    (["--out", "nowhere/report.html"], "cannot be written"),
    (["--json", "nowhere/told.json"], "cannot be written"),
]


@pytest.mark.parametrize(("given", "said"), REFUSED)
def test_what_makes_no_sense_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], given: list[str], said: str
) -> None:
    assert main(asked(folder, *given)) == USAGE
    assert said in capsys.readouterr().err


def test_it_is_not_diagnosed_on_what_it_was_calibrated_with(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(asked(folder, "--sets", str(folder / "few.yaml"))) == USAGE
    assert "flatters every scale" in capsys.readouterr().err
