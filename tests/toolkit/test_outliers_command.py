"""`quantwatch toolkit outliers` from the command line, on a tiny model."""

import json
from pathlib import Path

import pytest

from quantwatch.cli.exit_codes import OK, USAGE
from quantwatch.cli.main import main
from quantwatch.errors import InputError
from quantwatch.toolkit.extra import require_toolkit
from quantwatch.toolkit.model import Loaded
from quantwatch.toolkit.subject import available_memory, float32_weights, subject, texts
from support.tiny_folder import tiny_folder
from support.tiny_llama import tiny_tokenizer
from support.toolkit import a_model, a_prompt


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("tiny"))


def test_outliers_are_told_written_and_drawn(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, told = tmp_path / "out", tmp_path / "told.json"
    command = ["toolkit", "outliers", "--model", str(folder), "--prompts", str(folder / "few.yaml"), "--inject", "200"]

    assert main([*command, "--out", str(out), "--json", str(told)]) == OK

    shown = capsys.readouterr()
    assert "12 places seen" in shown.out
    assert "S = max|X| / 127" in shown.out
    assert "reading prompts 3/3" in shown.err
    assert max(len(line) for line in shown.out.splitlines() if line.lstrip().startswith("0 q k v")) <= 80
    assert "…" not in shown.out
    assert {path.name for path in out.iterdir()} == {
        "report.html",
        *(f"{name}.{kind}" for name in ("heat_map", "histograms") for kind in ("png", "svg")),
    }
    sites = json.loads(told.read_text(encoding="utf-8"))["sites"]
    assert len(sites) == 12
    assert sum(len(one["outliers"]) for one in sites) >= 4


def test_what_cannot_be_used_is_refused_before_any_work(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    nowhere = [["--json", str(tmp_path / "no" / "x.json")], ["--out", str(tmp_path / "file" / "x")]]
    wrong = [["--prompts", "maths"], *nowhere]
    for one in wrong:
        assert main(["toolkit", "outliers", "--model", str(folder), *one]) == USAGE
    said = capsys.readouterr().err
    assert "did you mean math?" in said
    assert said.count("cannot be written") == 2


def test_a_missing_package_is_named_with_its_cure() -> None:
    with pytest.raises(InputError, match=r"needs no_such_package, .*quantwatch\[toolkit\]"):
        require_toolkit(("json", "no_such_package"))
    require_toolkit()


def test_a_model_larger_than_memory_is_refused(folder: Path) -> None:
    wanted = float32_weights(folder)
    assert wanted > 4 * 64 * 128
    with pytest.raises(InputError, match="GB of memory are free"):
        subject(folder, inject=None, seed=0, tell=print, available=wanted - 1)
    assert subject(folder, inject=None, seed=0, tell=print, available=wanted).model.training is False


def test_free_memory_is_read_where_the_system_tells_it(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   5 kB\n", encoding="utf-8")
    assert available_memory(tmp_path / "meminfo") == 5 * 1024
    assert available_memory(tmp_path / "none") is None


def test_a_truncated_file_is_told(folder: Path, tmp_path: Path) -> None:
    (weights,) = folder.glob("*.safetensors")
    (tmp_path / "model.safetensors").write_bytes(weights.read_bytes()[:-10])
    with pytest.raises(InputError, match="no whole safetensors file"):
        float32_weights(tmp_path)


def test_another_models_tokenizer_is_refused() -> None:
    loaded = Loaded(a_model(vocab_size=100), tiny_tokenizer())
    with pytest.raises(InputError, match="another model's tokenizer"):
        texts(loaded, [a_prompt("The quick brown fox 今天")])


def test_a_prompt_of_no_token_is_refused() -> None:
    with pytest.raises(InputError, match="no token"):
        texts(Loaded(a_model(), tiny_tokenizer()), [a_prompt("")])
