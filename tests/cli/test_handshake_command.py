"""`quantwatch handshake` as a user runs it, against tiny nodes on real sockets."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quantwatch.cli.main import main
from support.daemons import site
from support.runs import node
from support.served import served
from support.tiny_node import TinyNode


@pytest.fixture(scope="module")
def baseline() -> Iterator[str]:
    with served(TinyNode()) as url:
        yield url


def told(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(path.read_bytes())
    return loaded


def test_comparable_servers_end_with_0_and_a_line_a_check(baseline: str, capsys: pytest.CaptureFixture[str]) -> None:
    with served(node()) as url:
        code = main(["handshake", "--baseline", baseline, "--node", f"int8={url}"])

    out = capsys.readouterr().out
    assert code == 0
    assert "int8: comparable, 51 tokens" in out
    assert "raw_logprobs; sampling parameters do not change the list" in out


def test_another_mode_ends_with_2_and_says_what_to_do(
    tmp_path: Path, baseline: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(node(mode="processed_logits")) as bad, served(node()) as good:
        nodes = ["--node", f"bad={bad}", "--node", f"good={good}"]
        code = main(["handshake", "--baseline", baseline, *nodes, "--json", str(tmp_path / "out.json")])

    result = told(tmp_path / "out.json")
    checks = {one["server"]: {check["check"]: check for check in one["checks"]} for one in result["servers"]}
    assert code == 2
    assert result["comparable"] is False
    assert [one["ok"] for one in result["servers"]] == [True, False, True]
    assert checks["bad"]["logprobs_mode"]["seen"] == "the server answers processed_logits, not raw_logprobs"
    assert "--logprobs-mode raw_logprobs" in checks["bad"]["logprobs_mode"]["advice"]
    assert "bad: not comparable" in capsys.readouterr().out


def test_json_on_standard_output_is_all_that_is_there(baseline: str, capsys: pytest.CaptureFixture[str]) -> None:
    with served(node()) as url:
        main(["handshake", "--baseline", baseline, "--node", url, "--json", "-"])

    assert json.loads(capsys.readouterr().out)["comparable"] is True


def test_one_url_twice_is_one_server(baseline: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["handshake", "--baseline", baseline, "--node", baseline]) == 2
    assert "same server" in capsys.readouterr().out


def test_a_server_that_is_down_cannot_be_told(baseline: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["handshake", "--baseline", baseline, "--node", "http://127.0.0.1:9"])

    assert code == 2
    assert "cannot connect" in capsys.readouterr().out


def test_a_configuration_is_met_whole_with_its_ranks(tmp_path: Path, baseline: str) -> None:
    ranked = node(engines=2)
    with served(ranked) as url:
        where = site(tmp_path, baseline, {"a": url})
        where.content["targets"][0]["data_parallel_size"] = 2
        where.write()
        code = main(["handshake", "--config", str(where.file), "--json", str(tmp_path / "out.json")])

    assert code == 0
    assert [one["server"] for one in told(tmp_path / "out.json")["servers"]] == ["baseline", "a"]
    assert {"0", "1"} <= set(ranked.ranks)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--baseline is missing"),
        (["--baseline", "http://a"], "--node is missing"),
        (["--config", "q.yaml", "--node", "http://a"], "--config and --node exclude each other"),
        (["--baseline", "nonsense", "--node", "http://a"], "no usable URL"),
        (["--baseline", "http://a", "--node", "http://b", "--node", "http://b"], "two nodes are called b"),
    ],
)
def test_wrong_usage_ends_with_3(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["handshake", *arguments]) == 3
    assert said in capsys.readouterr().err
