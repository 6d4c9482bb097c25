"""`quantwatch compare` as a user runs it, against tiny nodes on real sockets."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from starlette.responses import Response

from quantwatch.cli.compare import _compare
from quantwatch.cli.main import main
from quantwatch.config.schema import ProbeSettings
from quantwatch.flow.prompt import GoldenSequence
from quantwatch.net import Endpoint
from support.runs import TEXTS, census, node, plan
from support.served import served
from support.tiny_node import TinyNode

SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "docs" / "compare.schema.json").read_bytes())


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """A small task set in a file of its own."""
    path = tmp_path / "letters.yaml"
    entries = "".join(
        f"  - id: letters-{i}\n    language: en\n    length: short\n    tags: [x]\n    prompt: {json.dumps(text)}\n"
        for i, text in enumerate(TEXTS)
    )
    path.write_text(f"schema: 1\nname: letters\ndescription: d\nlicense: Apache-2.0\nprompts:\n{entries}")
    return path


@pytest.fixture
def baseline() -> Iterator[str]:
    with served(TinyNode()) as url:
        yield url


def compare(tmp_path: Path, baseline_url: str, *arguments: object) -> int:
    cache = ["--cache", str(tmp_path / "cache")]
    fixed = ["compare", "--baseline", baseline_url, *cache, "--continuation-tokens", "24"]
    return main([*fixed, *map(str, arguments)])


def test_a_healthy_node_ends_with_0(
    tmp_path: Path, baseline: str, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(node()) as url:
        code = compare(tmp_path, baseline, "--node", url, "--task-set", prompts, "--prompts", 6)

    out = capsys.readouterr().out
    assert code == 0
    assert "letters on 127.0.0.1" in out
    assert "is ok: letters: all numbers are within their limits" in out


def test_a_damaged_node_ends_with_1_and_says_which_limit(
    tmp_path: Path, baseline: str, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(node(1.5)) as url:
        code = compare(tmp_path, baseline, "--node", f"n1={url}", "--task-set", prompts, "--prompts", 12)

    out = capsys.readouterr().out
    assert code == 1
    assert "n1 is degraded: letters: mean KL" in out
    assert "over the critical limit 0.05" in out


def test_exact_ids_are_asked_in_one_token_mode_and_named_as_the_estimator(
    tmp_path: Path, baseline: str, prompts: Path
) -> None:
    out = tmp_path / "out.json"
    with served(node(1.5)) as url:
        code = compare(
            tmp_path, baseline, "--node", url, "--task-set", prompts, "--prompts", 4, "--exact-ids", "--json", out
        )

    written = json.loads(out.read_text())
    jsonschema.validate(written, SCHEMA)
    (one,) = written["targets"][0]["task_sets"]
    assert code in (1, 2)
    assert (one["mode"], one["estimator"], one["topk_overlap"]) == ("one_token", "exact_ids", None)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--mode", "prompt_scoring"), "--exact-ids needs mode one_token, and letters is asked in prompt_scoring"),
        (("--k", "129"), "--exact-ids takes --k of 128 at most, as vLLM does; found 129"),
    ],
)
def test_exact_ids_that_cannot_be_asked_for_are_refused(
    tmp_path: Path, prompts: Path, arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing listens there: it is refused before anything is sent."""
    code = compare(
        tmp_path, "http://127.0.0.1:1", "--node", "http://127.0.0.1:2", "--task-set", prompts, "--exact-ids", *arguments
    )

    assert code == 3
    assert said in capsys.readouterr().err


def test_a_nan_node_is_corrupted_and_ends_with_1(
    tmp_path: Path, baseline: str, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(node(nan_on=lambda _: True)) as url:
        code = compare(tmp_path, baseline, "--node", f"n1={url}", "--task-set", prompts)

    assert code == 1
    assert "n1 is corrupted" in capsys.readouterr().out


def test_a_warning_ends_with_0_and_with_strict_with_1(tmp_path: Path, baseline: str, prompts: Path) -> None:
    with served(node(0.21)) as url:
        arguments = ("--node", f"n1={url}", "--task-set", prompts, "--prompts", 12, "--json", tmp_path / "out.json")
        code = compare(tmp_path, baseline, *arguments)
        strict = compare(tmp_path, baseline, *arguments, "--strict")

    assert json.loads((tmp_path / "out.json").read_text())["targets"][0]["quality"] == "warn"
    assert (code, strict) == (0, 1)


def test_the_same_url_twice_cannot_be_told_and_ends_with_2(
    tmp_path: Path, baseline: str, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = compare(tmp_path, baseline, "--node", baseline.replace("127.0.0.1", "localhost"), "--task-set", prompts)

    assert code == 2
    assert "same server" in capsys.readouterr().out


def test_a_server_that_is_down_ends_with_2_and_a_question(
    tmp_path: Path, baseline: str, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = compare(tmp_path, baseline, "--node", "http://127.0.0.1:9", "--task-set", prompts)

    assert code == 2
    assert "Is the server up, and the URL right?" in " ".join(capsys.readouterr().out.split())


def test_a_slow_server_ends_with_2(
    tmp_path: Path, baseline: str, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(node(delay=5.0)) as url:
        code = compare(tmp_path, baseline, "--node", url, "--task-set", prompts, "--timeout", 1)

    assert code == 2
    assert "no complete answer within 1 s" in " ".join(capsys.readouterr().out.split())


def test_a_wrong_model_ends_with_3_and_names_what_is_served(
    tmp_path: Path, baseline: str, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(node()) as url:
        code = compare(tmp_path, baseline, "--node", url, "--task-set", prompts, "--model", "nope")

    assert code == 3
    assert "it serves tiny" in " ".join(capsys.readouterr().out.split())


def test_the_key_comes_from_the_environment(
    tmp_path: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NODE_KEY", "s3cret-value")
    with served(TinyNode(api_key="s3cret-value")) as reference, served(node(api_key="s3cret-value")) as url:
        arguments = ("--node", url, "--task-set", prompts, "--prompts", 4)
        assert compare(tmp_path, reference, *arguments) == 3
        assert compare(tmp_path, reference, *arguments, "--api-key", "env:NODE_KEY") == 0

    said = capsys.readouterr()
    assert "s3cret-value" not in said.out + said.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--task-set", "maht"], "did you mean math?"),
        (["--task-set", "no/such.yaml"], "no shipped task set and no file"),
        (["--sequences", "no.json"], "no such sequences file"),
        (["--sequences", "no.json", "--task-set", "math"], "exclude each other"),
        (["--positions", "some"], "continuation or all is wanted"),
        (["--api-key", "sk-123"], "secrets are not written here"),
        (["--api-key", "env:QUANTWATCH_NOT_SET"], "QUANTWATCH_NOT_SET is not set"),
        (["--mode", "guess"], "guess"),
        (["--prompts", "1"], "--prompts"),
        (["--node", "ftp://x"], "http://HOST:PORT is wanted"),
        (["--node", "a=http://x", "--node", "a=http://y"], "two nodes are called a"),
        (["--json", "/no/such/folder/out.json", "--task-set", "math"], "cannot be written"),
        (["--nonsense"], "nonsense"),
        (["--node", "http://[::1"], "no usable URL"),
        (["--node", "http://h:99999"], "no usable URL"),
        (["--node", "http://h:0"], "no usable URL"),
        (["--node", "http://u:pass-word@h"], "http://...@h: a name or password in a URL"),
        (["--node", "baseline=http://h"], "no node can be called baseline"),
        (["--node", "m=http://127.0.0.1:9/v1/"], "two nodes have the URL http://127.0.0.1:9"),
        (["--task-set", "math", "--task-set", "math"], "names a task set twice"),
        (["--timeout", "1e20", "--task-set", "math"], "--timeout"),
        (["--positions", "all", "--task-set", "long_context"], "needs mode prompt_scoring"),
    ],
)
def test_usage_errors_end_with_3_and_say_what_to_do(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["compare", "--baseline", "http://127.0.0.1:9", "--node", "n=http://127.0.0.1:9", *arguments])

    assert code == 3
    assert words in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("url", ["ftp://u:pass-word@h", "http://u:pass-word@h"])
def test_a_password_in_a_bad_url_is_not_repeated(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--baseline", "http://h", "--node", url, "--task-set", "math"]) == 3
    assert "pass-word" not in capsys.readouterr().err


@pytest.mark.parametrize("key", ["s3cret\n", "  s3cret\r\n"])
def test_white_space_around_a_key_is_taken_off(
    tmp_path: Path, prompts: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_KEY", key)
    with served(TinyNode(api_key="s3cret")) as reference, served(node(api_key="s3cret")) as url:
        arguments = ("--node", url, "--task-set", prompts, "--prompts", 2, "--api-key", "env:NODE_KEY")
        assert compare(tmp_path, reference, *arguments) == 0


@pytest.mark.parametrize("key", ["s3\ncret", "s3crét"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_repeated(
    key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NODE_KEY", key)
    arguments = ["--node", "http://h", "--task-set", "math", "--api-key", "env:NODE_KEY"]

    assert main(["compare", "--baseline", "http://g", *arguments]) == 3

    said = capsys.readouterr().err
    assert "env:NODE_KEY holds characters that no HTTP header can carry" in said
    assert "s3" not in said


def test_a_tiny_patience_is_a_number_like_any_other(tmp_path: Path, baseline: str, prompts: Path) -> None:
    with served(node(waiting=3)) as url:
        arguments = ("--node", url, "--task-set", prompts, "--prompts", 2, "--patience", 0.00001)
        assert compare(tmp_path, baseline, *arguments) == 2


def test_nothing_is_asked_when_the_result_cannot_be_written(tmp_path: Path, prompts: Path) -> None:
    asked = TinyNode()
    with served(asked) as reference, served(node()) as url:
        code = compare(
            tmp_path, reference, "--node", url, "--task-set", prompts, "--json", tmp_path / "none" / "out.json"
        )

    assert code == 3
    assert asked.asked == []


def result_of(tmp_path: Path, baseline_url: str, *arguments: object) -> dict[str, Any]:
    out = tmp_path / "out.json"
    compare(tmp_path, baseline_url, *arguments, "--json", out)
    loaded: dict[str, Any] = json.loads(out.read_text())
    return loaded


def test_results_of_every_kind_follow_the_schema(tmp_path: Path, baseline: str, prompts: Path) -> None:
    kinds = {"ok": node(), "degraded": node(1.5), "corrupted": node(nan_on=lambda _: True), "skipped": node(waiting=9)}
    for quality, server in kinds.items():
        with served(server) as url:
            patience = ("--prompts", 4) if quality != "skipped" else ("--prompts", 4, "--patience", 0.1)
            result = result_of(tmp_path, baseline, "--node", url, "--task-set", prompts, *patience)
        jsonschema.validate(result, SCHEMA)
        assert result["targets"][0]["quality"] in (quality, "inconclusive")


def test_the_result_repeats_what_it_rests_on(tmp_path: Path, baseline: str, prompts: Path) -> None:
    with served(node(0.5)) as url:
        result = result_of(tmp_path, baseline, "--node", url, "--task-set", prompts, "--prompts", 5, "--seed", 3)

    one = result["targets"][0]["task_sets"][0]
    assert (one["name"], one["prompts"], one["seed"], one["k"]) == ("letters", 5, 3, 20)
    assert (one["mode"], one["estimator"], one["evidence"]) == ("prompt_scoring", "sharp", "draw")
    assert len(one["pool"]) == 64
    assert one["kl_interval"][0] < one["kl_mean"] < one["kl_interval"][1]
    assert result["baseline"]["model"] == "tiny"
    assert result["complete"] is True


def test_json_to_standard_output_leaves_nothing_else_there(
    tmp_path: Path, baseline: str, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(node()) as url:
        compare(tmp_path, baseline, "--node", url, "--task-set", prompts, "--prompts", 4, "--json", "-")

    said = capsys.readouterr()
    assert json.loads(said.out)["schema"] == 1
    assert "letters on" in said.err


def test_ready_sequences_are_judged_by_their_own_figures(tmp_path: Path, baseline: str) -> None:
    sequences = tmp_path / "five.json"
    sequences.write_text(json.dumps([[[256, 72, 105, 44, 32, 121, 111, 117, 46], 3], [[256, 65, 66, 67, 68], 2]]))
    with served(node(1.5)) as url:
        result = result_of(tmp_path, baseline, "--node", url, "--sequences", sequences, "--positions", "all")

    one = result["targets"][0]["task_sets"][0]
    assert (one["name"], one["prompts"], one["positions"], one["evidence"]) == ("five", 2, 12, "census")
    assert one["verdict"] == "degraded"


def test_a_process_start_that_is_no_number_does_not_cost_the_result(
    tmp_path: Path, baseline: str, prompts: Path
) -> None:
    with served(node()) as plain, served(TinyNode(started=float("nan"))) as odd:
        result = result_of(tmp_path, baseline, "--node", odd, "--node", plain, "--task-set", prompts, "--prompts", 2)

    jsonschema.validate(result, SCHEMA)
    assert result["targets"][0]["identity"]["started"] is None


def test_half_a_character_from_a_server_does_not_cost_the_result(tmp_path: Path, baseline: str, prompts: Path) -> None:
    def version(path: str) -> Response | None:
        return Response(r'{"version": "0.32 \ud800"}') if path == "/version" else None

    with served(node(replace=version)) as url:
        result = result_of(tmp_path, baseline, "--node", url, "--task-set", prompts, "--prompts", 2)

    assert result["targets"][0]["identity"]["version"] is None  # a name that nothing could print is none


def test_a_fault_of_our_own_keeps_what_was_measured(tmp_path: Path, baseline: str) -> None:
    """A plan without weights for its second sequence is such a fault."""
    first, second = (GoldenSequence(f"s{i}", (256, 72, 105, 33, 34 + i), 2) for i in range(2))
    whole = census(first, second)
    with served(node()) as url:
        result, crash = _compare(
            (Endpoint("baseline", baseline), None),
            [(Endpoint("n", url), None)],
            plan(replace(whole, weights={"s0": 1})),
            ProbeSettings(),
            tmp_path,
        )

    assert isinstance(crash, KeyError)
    assert result.complete is False
    assert result.targets[0].task_sets[0].divergence is not None


def test_a_reader_that_is_gone_costs_neither_file_nor_exit_code(tmp_path: Path, baseline: str, prompts: Path) -> None:
    out = tmp_path / "out.json"
    with served(node()) as url:
        command = [sys.executable, "-m", "quantwatch", "compare", "--baseline", baseline, "--node", f"n={url}"]
        options = ["--task-set", str(prompts), "--prompts", "2", "--json", str(out), "--cache", str(tmp_path / "c")]
        running = subprocess.Popen(  # noqa: S603, our own command
            [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert running.stdout is not None
        running.stdout.close()
        code = running.wait(60)

    assert code == 0
    assert json.loads(out.read_text())["targets"][0]["quality"] == "ok"


def test_strict_sees_a_warning_beside_a_set_that_cannot_tell(tmp_path: Path, baseline: str, prompts: Path) -> None:
    other = tmp_path / "others.yaml"
    other.write_text(prompts.read_text().replace("letters", "others").replace("length: short", "length: short", 1))
    text = other.read_text()
    other.write_text(
        text.replace(json.dumps(TEXTS[0]), json.dumps("word " * 400)).replace("length: short", "length: medium", 1)
    )
    with served(node(0.21)) as url:
        sets = ("--task-set", prompts, "--task-set", other, "--prompts", 12, "--max-scored-tokens", 200)
        arguments = ("--node", f"n={url}", *sets, "--json", tmp_path / "out.json")
        code, strict = compare(tmp_path, baseline, *arguments), compare(tmp_path, baseline, *arguments, "--strict")

    verdicts = [one["verdict"] for one in json.loads((tmp_path / "out.json").read_text())["targets"][0]["task_sets"]]
    assert "warn" in verdicts
    assert (code, strict) in ((2, 1), (0, 1))


def test_several_nodes_share_one_run(tmp_path: Path, baseline: str, prompts: Path) -> None:
    with served(node(1.5)) as bad, served(node()) as good:
        result = result_of(
            tmp_path, baseline, "--node", f"bad={bad}", "--node", f"good={good}", "--task-set", prompts, "--prompts", 8
        )

    assert {one["target"]: one["quality"] for one in result["targets"]} == {"bad": "degraded", "good": "ok"}


def test_several_task_sets_end_with_an_overview(
    tmp_path: Path, baseline: str, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "others.yaml"
    other.write_text(prompts.read_text().replace("letters", "others"))
    with served(node(1.5)) as url:
        sets = ("--task-set", prompts, "--task-set", other)
        compare(tmp_path, baseline, "--node", f"n={url}", *sets, "--prompts", 6)

    out = capsys.readouterr().out
    assert "n over all task sets" in out
    assert "(and 1 more task sets)" in out


def test_a_fixed_continuation_is_scored_instead_of_the_baselines_answer(tmp_path: Path, prompts: Path) -> None:
    fixed = prompts.read_text().replace("tags: [x]\n", "tags: [x]\n    continuation: ' and so on'\n")
    prompts.write_text(fixed)
    reference = TinyNode()
    with served(reference) as first, served(node()) as second:
        result = result_of(tmp_path, first, "--node", second, "--task-set", prompts, "--prompts", 4)

    one = result["targets"][0]["task_sets"][0]
    assert one["positions"] == 4 * len(" and so on")
    assert all(body["max_tokens"] == 1 for body in reference.completions())


def test_ctrl_c_prints_what_is_known_so_far(tmp_path: Path, prompts: Path) -> None:
    out = tmp_path / "out.json"
    with served(TinyNode(delay=0.3)) as reference, served(node(1.5)) as url:
        command = [sys.executable, "-m", "quantwatch", "compare", "--baseline", reference, "--node", f"n={url}"]
        options = ["--task-set", str(prompts), "--prompts", "40", "--json", str(out), "--cache", str(tmp_path / "c")]
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        running = subprocess.Popen(  # noqa: S603, our own command
            [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        _wait_for_progress(running)
        running.send_signal(signal.SIGINT)
        said, _ = running.communicate(timeout=60)

    result = json.loads(out.read_text())
    jsonschema.validate(result, SCHEMA)
    assert "Interrupted: this is what was known so far." in said
    assert result["complete"] is False
    assert running.returncode in (1, 2)


def _wait_for_progress(running: subprocess.Popen[str]) -> None:
    """Until the run says that it has done two sequences."""
    assert running.stderr is not None
    for line in running.stderr:
        if "2/" in line:
            return
    raise AssertionError("the run ended before it had done two sequences")
