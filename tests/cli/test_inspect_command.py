"""`quantwatch inspect` as a user runs it: one look that changes nothing, or one that acts."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from quantwatch.cli.main import main
from quantwatch.record.archive import Archive
from support.daemons import PATIENCE, Site, site, started, write_prompts
from support.gateway import Gateway, served_gateway
from support.runs import node
from support.served import served
from support.tiny_node import TinyNode

SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "docs" / "compare.schema.json").read_bytes())


@dataclass(slots=True)
class Fleet:
    """Servers on real sockets: a baseline, a sound node a, a damaged node b."""

    baseline: str
    a: str
    b: str


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with served(TinyNode()) as baseline, served(node()) as a, served(node(1.5)) as b:
        yield Fleet(baseline, a, b)


def place(folder: Path, fleet: Fleet, *names: str, **sections: Any) -> Site:
    """A site that watches the named nodes, all where none is named."""
    return site(folder, fleet.baseline, {name: getattr(fleet, name) for name in names or ("a", "b")}, **sections)


def inspect(where: Site, *arguments: object) -> int:
    """Run the command; its exit code."""
    return main(["inspect", "--config", str(where.file), "--cache", str(where.cache), *map(str, arguments)])


def written(where: Site) -> set[str]:
    """What lies in the folder beside the configuration, its prompts and the cache."""
    return {one.name for one in where.folder.iterdir()} - {where.file.name, "letters.yaml", "cache", "out.json"}


def test_a_sound_node_ends_with_0(tmp_path: Path, fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    code = inspect(place(tmp_path, fleet, "a"))

    assert code == 0
    assert "a is ok: letters: all numbers are within their limits" in capsys.readouterr().out


def test_a_damaged_node_ends_with_1_and_its_json_keeps_the_schema_of_compare(
    tmp_path: Path, fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    where = place(tmp_path, fleet)
    where.content["targets"][1]["scheme"] = "int4"
    code = inspect(where.write(), "--json", tmp_path / "out.json")
    result = json.loads((tmp_path / "out.json").read_text())

    assert code == 1
    jsonschema.validate(result, SCHEMA)
    assert {one["target"]: one["quality"] for one in result["targets"]} == {"a": "ok", "b": "degraded"}
    assert (result["plan"]["scheme"], result["plan"]["seed"], result["plan"]["k"]) == ("mixed", None, 10)
    loads = [[one[f"load_{when}"]["generated_tokens"] for when in ("before", "after")] for one in sets_of(result)]
    assert all(before < after for before, after in loads)
    assert result["complete"] is True
    said = " ".join(capsys.readouterr().out.split())
    assert "b is degraded: letters: mean KL" in said
    assert "load of b on letters: 0 running, 0 waiting, KV cache 10% full" in said


def sets_of(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for target in result["targets"] for one in target["task_sets"]]


def test_json_on_standard_output_stands_alone(tmp_path: Path, fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    code = inspect(place(tmp_path, fleet, "a"), "--json", "-")
    result = json.loads(capsys.readouterr().out)

    assert code == 0
    assert result["plan"]["scheme"] == "int8"


def test_a_look_leaves_no_trace_although_a_node_is_bad_and_the_pool_may_act(tmp_path: Path, fleet: Fleet) -> None:
    with served_gateway(Gateway()) as gateway:
        where = place(tmp_path, fleet, **acting(gateway.url))
        code = inspect(where)

    assert code == 1
    assert written(where) == set()
    assert (gateway.gateway.calls, gateway.gateway.looks) == ([], 0)


def acting(gateway: str, mode: str = "enforce") -> dict[str, Any]:
    """Sections of a configuration that may act."""
    return {
        "pools": {"chat": {"mode": mode, "max_isolated": "50%"}},
        "gateway": {"driver": "webhook", "url": f"{gateway}/act", "state_url": f"{gateway}/state"},
    }


def test_with_act_a_breach_is_confirmed_carried_out_and_recorded(
    tmp_path: Path, fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway = Gateway()
    with served_gateway(gateway) as server:
        where = place(tmp_path, fleet, **acting(server.url))
        assert inspect(where, "--act", "--target", "a") == 0  # a clean run proves the baseline's answers
        code = inspect(where, "--act", "--json", tmp_path / "out.json")
    told = capsys.readouterr().err

    assert code == 1
    assert gateway.changes == [(fleet.b, True)]
    with Archive.open(where.store) as archive:
        runs = archive.history(target="b", limit=None)
        (decision,) = archive.decisions(target="b", limit=None)
        routing = [(one.old, one.new) for one in archive.timeline(target="b", limit=None) if one.axis == "routing"]
    assert [one.document["trigger"] for one in runs] == ["confirm", "manual"]
    assert decision.id == gateway.calls[0].body["decision_id"]
    assert sorted(routing) == [("in", "leaving"), ("leaving", "out")]
    assert "isolate: verified" in told
    result = json.loads((tmp_path / "out.json").read_text())
    jsonschema.validate(result, SCHEMA)
    (bad,) = [one for one in result["targets"] if one["target"] == "b"]
    assert [one["verdict"] for one in bad["task_sets"]] == [
        "degraded"
    ]  # the confirming run takes the first one's place


def test_with_act_in_a_pool_that_only_observes_nothing_is_called(tmp_path: Path, fleet: Fleet) -> None:
    gateway = Gateway()
    with served_gateway(gateway) as server:
        where = place(tmp_path, fleet, **acting(server.url, "observe"))
        code = inspect(where, "--act")

    assert code == 1
    assert gateway.calls == []
    with Archive.open(where.store) as archive:
        assert len(archive.history(limit=None)) == 3


def test_while_a_daemon_holds_the_store_nothing_acts_and_a_look_is_welcome(
    tmp_path: Path, fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    where = place(tmp_path, fleet, "a")
    with started(where) as daemon:
        daemon.until("watching")
        refused, looked = inspect(where, "--act"), inspect(where)

    assert (refused, looked) == (3, 0)
    told = " ".join(capsys.readouterr().err.split())
    assert f"process {daemon.process.pid} writes to this store already" in told


@pytest.mark.parametrize("option", ["--target", "--task-set"])
@pytest.mark.parametrize("act", [(), ("--act",)])
def test_an_unknown_name_is_refused_with_the_known_ones(
    tmp_path: Path, fleet: Fleet, capsys: pytest.CaptureFixture[str], option: str, act: tuple[str, ...]
) -> None:
    code = inspect(place(tmp_path, fleet), option, "nope", *act)

    known = "a, b" if option == "--target" else "letters"
    assert code == 3
    assert f"{option} nope: not in the configuration; known: {known}" in capsys.readouterr().err


def test_one_target_and_one_task_set_can_be_chosen(tmp_path: Path, fleet: Fleet) -> None:
    where = place(tmp_path, fleet)
    write_prompts(tmp_path, "words")
    where.content["task_sets"]["words"] = {**where.content["task_sets"]["letters"], "prompts": "words.yaml"}
    where.write()
    chosen = ("--target", "a", "--task-set", "words", "--json", tmp_path / "out.json")

    code = inspect(where, *chosen)

    assert code == 0
    (target,) = json.loads((tmp_path / "out.json").read_text())["targets"]
    assert (target["target"], [one["name"] for one in target["task_sets"]]) == ("a", ["words"])


def test_all_task_sets_of_a_target_stand_under_it(tmp_path: Path, fleet: Fleet) -> None:
    where = place(tmp_path, fleet, "a")
    write_prompts(tmp_path, "words")
    where.content["task_sets"]["words"] = {**where.content["task_sets"]["letters"], "prompts": "words.yaml"}

    inspect(where.write(), "--json", tmp_path / "out.json")

    (target,) = json.loads((tmp_path / "out.json").read_text())["targets"]
    assert [one["name"] for one in target["task_sets"]] == ["letters", "words"]


def test_a_server_that_is_down_ends_with_2(tmp_path: Path, fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    where = place(tmp_path, fleet, "a")
    where.content["targets"][0]["url"] = "http://127.0.0.1:9"

    assert inspect(where.write()) == 2
    assert "Is the server up, and the URL right?" in " ".join(capsys.readouterr().out.split())


def test_a_missing_secret_ends_with_3(tmp_path: Path, fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    where = place(tmp_path, fleet, "a")
    where.content["targets"][0]["api_key"] = "env:NO_SUCH_KEY"

    assert inspect(where.write()) == 3
    assert "the environment variable NO_SUCH_KEY is not set or empty" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_told_before_anything_runs(
    tmp_path: Path, fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    code = inspect(place(tmp_path, fleet, "a"), "--json", tmp_path / "no" / "out.json")

    assert code == 3
    assert "cannot be written" in capsys.readouterr().err
    assert not (tmp_path / "cache").exists()


def test_a_warning_ends_with_0_and_with_strict_with_1(tmp_path: Path, fleet: Fleet) -> None:
    with served(node(0.21)) as url:
        where = site(tmp_path, fleet.baseline, {"w": url})
        limits = {"kl_mean": {"warn": 0.0001, "critical": 9}, "top1_agreement": {"warn": 0.1, "critical": 0.1}}
        limits["perplexity_ratio"] = {"warn": 8, "critical": 9}
        where.content["task_sets"]["letters"] |= {"limits": limits}
        codes = (inspect(where.write()), inspect(where, "--strict"))

    assert codes == (0, 1)


def test_the_tables_fit_80_columns(tmp_path: Path, fleet: Fleet) -> None:
    where = place(tmp_path, fleet, "b")
    where.content["task_sets"]["letters"] |= {
        "draw": 2,
        "draw_at_most": 2,
    }  # too few prompts: inconclusive, the longest word
    told = subprocess.run(  # noqa: S603, our own command
        [*_command(where.write()), "--json", str(tmp_path / "out.json")],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
        env=os.environ | {"COLUMNS": "80"},
    )

    rows = [line for line in told.stdout.splitlines() if line.strip().startswith(("mean KL  ", "top-1 agreement  "))]
    assert len(rows) == 2
    assert all(line.rstrip().endswith("inconclusive") and len(line.rstrip()) <= 80 for line in rows)


def _command(where: Site) -> list[str]:
    fixed = [sys.executable, "-m", "quantwatch", "inspect"]
    return [*fixed, "--config", str(where.file), "--cache", str(where.cache)]


@pytest.mark.parametrize("act", [(), ("--act",)])
def test_ctrl_c_gives_what_is_there(tmp_path: Path, fleet: Fleet, act: tuple[str, ...]) -> None:
    with served(node(delay=2.0)) as url:
        where = place(tmp_path, fleet, "a")
        where.content["targets"].append({"name": "slow", "url": url, "scheme": "int8", "pool": "chat"})
        where.write()
        out = where.folder / "out.json"
        running = subprocess.Popen(  # noqa: S603, our own command
            [*_command(where), *act, "--json", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        _wait_for_a(running)
        running.send_signal(signal.SIGINT)
        told, _ = running.communicate(timeout=PATIENCE)

    result = json.loads(out.read_text())
    jsonschema.validate(result, SCHEMA)
    assert running.returncode == 2
    assert "Interrupted: this is what was known so far." in told
    assert [one["target"] for one in result["targets"]] == ["a"]
    assert result["complete"] is False


def _wait_for_a(running: subprocess.Popen[str]) -> None:
    """Until the run of the sound node has ended."""
    assert running.stderr is not None
    for line in running.stderr:
        if line.startswith("1/2 a") or "letters on a: ok" in line:
            return
    raise AssertionError("the run of a has never ended")


def test_ctrl_c_before_any_run_has_ended_says_so_and_ends_with_2(tmp_path: Path, fleet: Fleet) -> None:
    with served(node(delay=2.0)) as url:
        where = site(tmp_path, fleet.baseline, {"slow": url})
        running = subprocess.Popen(  # noqa: S603, our own command
            _command(where), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert running.stderr is not None
        running.stderr.readline()
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=PATIENCE)

    assert running.returncode == 2
    assert "No run came to its end" in told
    assert "Traceback" not in told
