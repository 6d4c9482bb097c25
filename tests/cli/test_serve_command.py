"""What `quantwatch serve` refuses before anything is loaded, and how it names a model."""

from pathlib import Path

import pytest

from quantwatch.cli.main import main
from quantwatch.cli.serve import served_name


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--fd", "0", "--port", "8000"], "--fd takes the place of --host and --port"),
        (["--fd", "0", "--host", "127.0.0.1"], "--fd takes the place of --host and --port"),
        (["--observer", "minmax"], "--observer is for --scheme w8a8-static"),
        (["--observer", "histogram", "--scheme", "w8a8"], "--observer is for --scheme w8a8-static"),
        (["--calibration", "some.yaml"], "--calibration is for --smooth and --scheme w8a8-static"),
        (["--calibration", "some.yaml", "--scheme", "w8"], "--calibration is for --smooth and --scheme w8a8-static"),
    ],
)
def test_an_option_that_would_change_nothing_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")

    assert main(["serve", "--model", "no-such-folder", *arguments]) == 3

    assert said in capsys.readouterr().err


def test_a_folder_of_the_same_name_does_not_rename_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "smollm2").mkdir()
    monkeypatch.chdir(tmp_path)

    assert served_name("smollm2", tmp_path / "models" / "smollm2-135m-instruct-bcc81830") == "smollm2"


def test_a_model_is_called_as_its_folder_however_it_is_written(tmp_path: Path) -> None:
    assert served_name("~/tiny", tmp_path / "tiny") == "tiny"
