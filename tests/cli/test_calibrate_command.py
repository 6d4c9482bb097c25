"""`quantwatch calibrate` as a user runs it, against tiny nodes on real sockets."""

import json
import os
import signal
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from quantwatch.cli.main import main
from quantwatch.config.limits import LimitSettings, Scheme, limits_for
from quantwatch.config.load import load_settings
from quantwatch.flow.verdict import Metric
from quantwatch.prompts.load import shipped_sets
from support.calibrating import configuration, healthy
from support.served import served
from support.tiny_node import TinyNode


@pytest.fixture
def baseline() -> Iterator[str]:
    with served(TinyNode()) as url:
        yield url


@pytest.fixture
def node() -> Iterator[str]:
    with served(healthy()) as url:
        yield url


def calibrate(config: Path, *arguments: object) -> int:
    fixed = [
        "calibrate",
        "--config",
        str(config),
        "--cache",
        str(config.parent / "cache"),
        "--cycles",
        "4",
        "--seed",
        "1",
    ]
    return main([*fixed, *map(str, arguments)])


def merged(config: Path, proposed: str) -> Path:
    """The configuration with a proposal put into it, block by block, as a person would."""
    whole, extra = yaml.safe_load(config.read_text()), yaml.safe_load(proposed)

    def put(into: dict[str, Any], more: dict[str, Any]) -> None:
        for key, value in more.items():
            if isinstance(value, dict) and isinstance(into.get(key), dict):
                put(into[key], value)
            else:
                into[key] = value

    put(whole, extra)
    path = config.with_name("adopted.yaml")
    path.write_text(yaml.safe_dump(whole))
    return path


def test_limits_come_on_standard_output_as_yaml_and_the_rest_beside(
    tmp_path: Path, baseline: str, node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configuration(tmp_path, baseline, {"n1": (node, "int8")})
    before = config.read_bytes()

    code = calibrate(config)
    said = capsys.readouterr()

    assert code == 0
    assert set(yaml.safe_load(said.out)["task_sets"]["letters"]["limits"]) == {metric.value for metric in Metric}
    assert "Nothing is in force yet" in said.err
    assert "node, positions" in said.err
    assert config.read_bytes() == before


def test_what_is_proposed_loads_as_part_of_the_configuration(
    tmp_path: Path, baseline: str, node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configuration(tmp_path, baseline, {"n1": (node, "int8")})
    out = tmp_path / "limits.yaml"

    assert calibrate(config, "--out", out) == 0
    settings = load_settings(merged(config, out.read_text()), shipped=shipped_sets())

    written = yaml.safe_load(out.read_text())["task_sets"]["letters"]["limits"]
    got = limits_for(Scheme.INT8, settings.task_sets["letters"].limits)
    assert {metric.value: {"warn": at.warn, "critical": at.critical} for metric, at in got.items()} == written
    assert "letters on n1" in capsys.readouterr().out


def test_every_number_has_its_evidence_beside_it(tmp_path: Path, baseline: str, node: str) -> None:
    config = configuration(tmp_path, baseline, {"n1": (node, "int8")})
    out = tmp_path / "limits.yaml"
    calibrate(config, "--out", out)
    text = out.read_text()

    assert "4 cycles of 12 prompts, 10 different" in text
    assert "k 5, prompt_scoring, " in text
    assert "node tiny (vLLM 0.32.0); baseline tiny (vLLM 0.32.0)" in text
    for label in ("mean KL", "p99 KL", "perplexity ratio", "top-1 agreement"):
        (line,) = [line for line in text.splitlines() if f"letters on n1: {label} " in line]
        assert ", 95 % " in line
        assert ", cycles " in line
        assert "noise floor " in line
        assert "critical is " in line


def test_two_nodes_of_a_scheme_share_the_wider_limits(tmp_path: Path, baseline: str, node: str) -> None:
    out = tmp_path / "limits.yaml"
    with served(healthy(0.3, started=1_700_000_900.0)) as other:
        config = configuration(tmp_path, baseline, {"n1": (node, "int8"), "n2": (other, "int8")})
        assert calibrate(config, "--out", out) == 0

    found = json.loads(out.with_suffix(".json").read_text())["sets"]
    each = [one["metrics"]["kl_mean"]["limit"] for one in found]
    shared = yaml.safe_load(out.read_text())["task_sets"]["letters"]["limits"]["kl_mean"]
    assert each[0] != each[1]
    assert shared == max(each, key=lambda limit: limit["critical"])


def test_nodes_of_two_schemes_get_limits_by_scheme(tmp_path: Path, baseline: str, node: str) -> None:
    out = tmp_path / "limits.yaml"
    with served(healthy(0.3, started=1_700_000_900.0)) as other:
        config = configuration(tmp_path, baseline, {"n1": (node, "int8"), "n2": (other, "int4")})
        assert calibrate(config, "--out", out) == 0

    written = yaml.safe_load(out.read_text())
    settings = load_settings(merged(config, out.read_text()), shipped=shipped_sets())
    assert set(written) == {"limits"}
    assert set(written["limits"]) == {"int8", "int4"}
    assert settings.limits[Scheme.INT4] == LimitSettings.model_validate(written["limits"]["int4"])


def test_one_target_alone_names_those_that_its_limits_would_hold_for_too(
    tmp_path: Path, baseline: str, node: str
) -> None:
    out = tmp_path / "limits.yaml"
    config = configuration(tmp_path, baseline, {"n1": (node, "int8"), "n2": ("http://127.0.0.1:9", "int8")})

    assert calibrate(config, "--target", "n1", "--out", out) == 0
    assert "# Not measured, and limits hold for all targets of a task set or scheme: n2" in out.read_text()


def test_limits_of_parts_stand_under_slices_and_load_as_well(tmp_path: Path, baseline: str, node: str) -> None:
    out = tmp_path / "limits.yaml"
    config = configuration(tmp_path, baseline, {"n1": (node, "int8")})

    assert calibrate(config, "--parts", "--out", out) == 0
    written = yaml.safe_load(out.read_text())["task_sets"]["letters"]
    settings = load_settings(merged(config, out.read_text()), shipped=shipped_sets())
    assert set(written["slices"]) == {"depth", "language", "length"}
    assert set(written["slices"]["language"]["en"]) == {"kl_mean", "perplexity_ratio", "top1_agreement"}
    assert len(settings.task_sets["letters"].slices.values()) == 3


def test_a_refused_metric_is_left_out_with_the_reason_and_the_command_ends_with_2(
    tmp_path: Path, baseline: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "limits.yaml"
    with served(healthy(1.5)) as url:
        config = configuration(tmp_path, baseline, {"n1": (url, "int8")})
        assert calibrate(config, "--out", out) == 2

    text = out.read_text()
    assert "# kl_mean: no limit proposed" in text
    assert "look at this node first; a faulty node must not become the new normal" in text
    assert "kl_mean" not in str(yaml.safe_load(text))
    assert "none proposed: mean KL" in capsys.readouterr().out
    load_settings(merged(config, text), shipped=shipped_sets())


def test_a_node_that_cannot_be_asked_leaves_a_file_of_comments(tmp_path: Path, baseline: str) -> None:
    out = tmp_path / "limits.yaml"
    config = configuration(tmp_path, baseline, {"n1": ("http://127.0.0.1:9", "int8")})

    assert calibrate(config, "--out", out, "--cycles", 2) == 2
    assert yaml.safe_load(out.read_text()) is None
    assert "# 2 cycles left out: n1: cannot connect" in out.read_text()


def test_an_existing_file_is_not_overwritten_without_force(
    tmp_path: Path, baseline: str, node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configuration(tmp_path, baseline, {"n1": (node, "int8")})
    out = tmp_path / "limits.yaml"
    out.write_text("mine")

    assert calibrate(config, "--out", out) == 3
    assert "is there already; name another file, or give --force" in " ".join(capsys.readouterr().err.split())
    assert out.read_text() == "mine"
    assert calibrate(config, "--out", out, "--force") == 0
    assert "kl_mean" in out.read_text()


def test_the_evidence_beside_is_not_overwritten_either(tmp_path: Path, baseline: str, node: str) -> None:
    config = configuration(tmp_path, baseline, {"n1": (node, "int8")})
    (tmp_path / "limits.json").write_text("mine")

    assert calibrate(config, "--out", tmp_path / "limits.yaml") == 3
    assert not (tmp_path / "limits.yaml").exists()


def test_a_later_calibration_is_held_against_an_earlier_one(
    tmp_path: Path, baseline: str, node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configuration(tmp_path, baseline, {"n1": (node, "int8")})
    calibrate(config, "--json", tmp_path / "then.json")
    with served(healthy(0.5)) as worse:
        config = configuration(tmp_path, baseline, {"n1": (worse, "int8")})
        capsys.readouterr()
        calibrate(config, "--against", tmp_path / "then.json", "--out", tmp_path / "now.yaml")

    said = " ".join(capsys.readouterr().out.split())
    assert "x as far from the baseline: more than the draw of the prompts" in said


def test_levels_of_another_k_are_not_held_against_each_other(
    tmp_path: Path, baseline: str, node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configuration(tmp_path, baseline, {"n1": (node, "int8")})
    then = tmp_path / "then.json"
    calibrate(config, "--json", then, "--cycles", 2)
    document = json.loads(then.read_text())
    document["sets"][0]["k"] = 20
    then.write_text(json.dumps(document))
    capsys.readouterr()

    calibrate(config, "--against", then, "--cycles", 2)
    said = capsys.readouterr().err
    assert "another k then, so the levels are not compared" in said
    assert "as far from the baseline" not in said


def test_json_on_standard_output_is_whole_and_alone(
    tmp_path: Path, baseline: str, node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configuration(tmp_path, baseline, {"n1": (node, "int8")})
    assert calibrate(config, "--json", "-") == 0

    document = json.loads(capsys.readouterr().out)
    (one,) = document["sets"]
    assert (document["schema"], document["complete"], one["cycles"]) == (1, True, 4)
    assert len(one["metrics"]["kl_mean"]["cycles"]) == 4
    assert set(one["metrics"]["kl_mean"]["noise"]) == {"baseline", "cold", "warm"}
    assert one["node"]["version"] == "0.32.0"


def test_the_picture_is_a_png_with_lines_in_it(tmp_path: Path, baseline: str, node: str) -> None:
    config = configuration(tmp_path, baseline, {"n1": (node, "int8")})
    picture = tmp_path / "levels.png"
    assert calibrate(config, "--plot", picture) == 0

    width, height, colours = png(picture.read_bytes())
    assert width > 500
    assert height > 300
    assert colours > 20


def png(content: bytes) -> tuple[int, int, int]:
    """Width, height, and how many different pixels of the picture's rows there are."""
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", content[16:24])
    at, data = 8, b""
    while at < len(content):
        (length,) = struct.unpack(">I", content[at : at + 4])
        if content[at + 4 : at + 8] == b"IDAT":
            data += content[at + 8 : at + 8 + length]
        at += 12 + length
    rows = zlib.decompress(data)
    return width, height, len({rows[i : i + 4] for i in range(0, len(rows), 4)})


USAGE = [
    (["--target", "n11"], "--target n11: not in the configuration; did you mean n1?"),
    (["--task-set", "leters"], "did you mean letters?"),
    (["--cycles", "1"], "--cycles"),
    (["--against", "no.json"], "cannot be read"),
    (["--plot", "/no/such/folder/x.png"], "cannot be written"),
    (["--out", "/no/such/folder/x.yaml"], "cannot be written"),
]


@pytest.mark.parametrize(("arguments", "words"), USAGE)
def test_usage_errors_end_with_3(
    tmp_path: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configuration(tmp_path, "http://127.0.0.1:9", {"n1": ("http://127.0.0.1:10", "int8")})

    assert calibrate(config, *arguments) == 3
    assert words in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "it is no JSON"),
        ("[]", "it is no calibration"),
        ('{"kind": "calibration", "schema": 2}', "its schema is 2"),
        ('{"kind": "calibration", "schema": 1, "at": "2026-01-01", "sets": [{}]}', "it is damaged"),
        ('{"kind": "calibration", "schema": 1, "at": "2026-01-01", "sets": 5}', "it is damaged"),
    ],
)
def test_an_earlier_calibration_that_is_none_ends_with_3(
    tmp_path: Path, content: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configuration(tmp_path, "http://127.0.0.1:9", {"n1": ("http://127.0.0.1:10", "int8")})
    (tmp_path / "then.json").write_text(content)

    assert calibrate(config, "--against", tmp_path / "then.json") == 3
    assert words in " ".join(capsys.readouterr().err.split())


def test_ctrl_c_proposes_from_what_was_gathered_and_ends_with_2(tmp_path: Path) -> None:
    with served(TinyNode(delay=0.01)) as reference, served(healthy()) as url:
        config = configuration(tmp_path, reference, {"n1": (url, "int8")})
        command = [sys.executable, "-m", "quantwatch", "calibrate", "--config", str(config), "--cycles", "200"]
        running = subprocess.Popen(  # noqa: S603, our own command
            [*command, "--cache", str(tmp_path / "c"), "--out", str(tmp_path / "limits.yaml")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        _wait_for(running, "cycle 6/200: letters")
        running.send_signal(signal.SIGINT)
        said, _ = running.communicate(timeout=120)

    assert running.returncode == 2
    assert "Interrupted: this is what the cycles so far say." in said
    text = (tmp_path / "limits.yaml").read_text()
    assert "# Interrupted or stopped early" in text
    assert yaml.safe_load(text)["task_sets"]["letters"]["limits"]["kl_mean"]["critical"] > 0


def _wait_for(running: subprocess.Popen[str], words: str) -> None:
    assert running.stderr is not None
    for line in running.stderr:
        if words in line:
            return
    raise AssertionError(f"the run ended before it said {words}")
