"""What the demo concludes: from the daemon's own store, the gateway's calls and the client's requests."""

import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from quantwatch.demo.client import Client, Reply
from quantwatch.demo.facts import LEAST_RATIO, Check, Facts, Stay, checks, kl_ratio
from quantwatch.demo.gateway import Call, Gateway
from quantwatch.demo.plan import FAST, Addresses
from quantwatch.demo.stage import SCENES, Mark, Stage
from quantwatch.demo.summary import as_json, show, summary
from quantwatch.demo.view import View
from quantwatch.expose.as_json import board_json
from quantwatch.flow.verdict import Quality
from support.boards import AT as BOARD_TIME
from support.boards import board, set_board, target_board
from support.stored import after, at, opened, run

AT = Addresses("http://b", "http://n", "http://g", "http://m", "http://a")
STAYS = {"healthy": Stay(at(0), at(10)), "outlier": Stay(at(20), at(40)), "smoothed": Stay(at(40))}
BEGAN = {"healthy": 0, "outlier": 20, "smoothed": 40}


def facts(folder: Path, **given: Any) -> Facts:
    return Facts(FAST, AT, folder, folder / "cache", **{"stays": dict(STAYS), **given})


def stored(folder: Path, *measured: tuple[str, str, float]) -> None:
    """Runs of the node: what ran (a role), on which task set, with which mean KL; the newest last."""
    with opened(folder, name="quantwatch.db") as store:
        for i, (role, task_set, kl) in enumerate(measured):
            record = run(i, kl, target="int8", task_set=task_set, started=at(BEGAN[role] + i))
            assert record.report is not None
            store.add_run(replace(record, report=replace(record.report, name=task_set)), after(record))


def reply(at: float, by: str, *, seconds: float = 0.5, error: str | None = None) -> Reply:
    return Reply(at, seconds, by, "q", "a", error)


GOOD = [reply(1, "int8"), reply(9, "int8"), reply(11, "baseline"), reply(21, "int8")]


def client(replies: Sequence[Reply] = GOOD) -> Client:
    return Client("http://g", "m", replies=list(replies))


def gateway(*actions: str, node: str = "int8") -> Gateway:
    told = zip((10.0, 20.0, 30.0), actions or ("isolate", "release"), strict=False)
    calls = [Call(at, action, node, "baseline", "d-1", "why") for at, action in told]
    return Gateway({}, serving="int8", calls=calls)


RATIO = "KL of the outlier node over the smoothed one"
BOTH = (
    ("outlier", "math", 0.3),
    ("outlier", "chinese", 0.2),
    ("smoothed", "math", 0.02),
    ("smoothed", "chinese", 0.03),
)


def failed(found: list[Check]) -> list[str]:
    return [one.name for one in found if not one.passed]


def test_everything_that_happened_as_it_should_passes(tmp_path: Path) -> None:
    stored(tmp_path, *BOTH)
    one = facts(tmp_path)

    assert failed(checks(one, gateway(), client())) == []
    assert kl_ratio(one.rows()) == pytest.approx((0.3 + 0.2) / (0.02 + 0.03))


def test_the_latest_run_of_each_node_on_each_set_counts(tmp_path: Path) -> None:
    stored(tmp_path, ("outlier", "math", 0.1), ("smoothed", "math", 0.05), ("outlier", "math", 0.4))

    rows = facts(tmp_path).rows()

    assert [row.kl_mean for row in rows["outlier"]] == [0.4]
    assert [row.kl_mean for row in rows["smoothed"]] == [0.05]
    assert rows["healthy"] == []


def test_a_run_across_a_change_of_nodes_belongs_to_neither(tmp_path: Path) -> None:
    with opened(tmp_path, name="quantwatch.db") as store:
        for i, (began, seconds) in enumerate([(19.9, 30.0), (39.9, 30.0), (30, 60.0)]):
            record = run(i, i + 1.0, target="int8", started=at(began), seconds=seconds)
            store.add_run(record, after(record))

    rows = facts(tmp_path).rows()

    assert {role: [row.kl_mean for row in found] for role, found in rows.items()} == {
        "healthy": [],
        "outlier": [3.0],
        "smoothed": [],
    }


def test_only_task_sets_that_both_have_are_compared(tmp_path: Path) -> None:
    stored(tmp_path, ("outlier", "math", 0.3), ("outlier", "chinese", 9.0), ("smoothed", "math", 0.03))

    assert kl_ratio(facts(tmp_path).rows()) == pytest.approx(10)


def test_a_cure_that_cures_too_little_fails(tmp_path: Path) -> None:
    stored(tmp_path, ("outlier", "math", 0.3), ("smoothed", "math", 0.3 / (LEAST_RATIO - 0.1)))

    assert failed(checks(facts(tmp_path), gateway(), client())) == [RATIO]


def test_a_store_that_is_not_there_proves_nothing(tmp_path: Path) -> None:
    assert RATIO in failed(checks(facts(tmp_path), None, None))


@pytest.mark.parametrize("actions", [("isolate",), ("isolate", "isolate", "release"), ("release", "isolate")])
def test_other_calls_than_one_isolation_and_one_release_fail(actions: tuple[str, ...], tmp_path: Path) -> None:
    stored(tmp_path, *BOTH)

    assert "one isolation, one release" in failed(checks(facts(tmp_path), gateway(*actions), client()))


def test_calls_about_another_node_fail(tmp_path: Path) -> None:
    stored(tmp_path, *BOTH)

    assert failed(checks(facts(tmp_path), gateway(node="other"), client())) == ["one isolation, one release"]


@pytest.mark.parametrize(
    ("replies", "name"),
    [
        ([*GOOD, reply(22, "int8", error="502")], "no client request failed"),
        ([reply(1, "baseline"), *GOOD], "answered by INT8 before"),
        ([*GOOD, reply(12, "int8")], "answered by the baseline while isolated"),
        (GOOD[:2] + GOOD[3:], "answered by the baseline while isolated"),
        ([*GOOD, reply(22, "baseline")], "answered by INT8 again"),
        (GOOD[:3], "answered by INT8 again"),
    ],
)
def test_a_request_that_went_the_wrong_way_fails(replies: list[Reply], name: str, tmp_path: Path) -> None:
    stored(tmp_path, *BOTH)

    assert failed(checks(facts(tmp_path), gateway(), client(replies))) == [name]


def test_what_never_came_is_not_answered_rightly(tmp_path: Path) -> None:
    stored(tmp_path, *BOTH)
    told_nothing = Gateway({}, serving="int8")

    got = failed(checks(facts(tmp_path), told_nothing, client([reply(1, "int8"), reply(2, "int8")])))

    assert {"answered by INT8 before", "answered by the baseline while isolated", "answered by INT8 again"} <= set(got)


def test_a_task_set_that_was_not_measured_on_both_nodes_fails(tmp_path: Path) -> None:
    stored(tmp_path, *BOTH[:3])

    assert failed(checks(facts(tmp_path), gateway(), client())) == [RATIO]


def test_a_request_under_way_while_the_routing_changed_proves_nothing(tmp_path: Path) -> None:
    stored(tmp_path, *BOTH)
    across = [reply(9.8, "baseline"), reply(19.8, "int8")]

    assert failed(checks(facts(tmp_path), gateway(), client(GOOD + across))) == []


def test_the_commands_repeat_the_draws_of_the_node_that_serves_now(tmp_path: Path) -> None:
    stored(tmp_path, *BOTH)
    one = facts(tmp_path)
    rows = one.rows()

    commands = one.compare_commands(rows)

    assert [
        f"--task-set {tmp_path / name}.yaml" in command for name, command in zip(FAST.task_sets, commands, strict=True)
    ] == [True] * 2
    assert f"--seed {rows['smoothed'][0].seed}" in commands[0]
    assert f"--prompts {FAST.draw} " in commands[0]
    assert "--baseline http://b --node int8=http://n" in commands[0]


def staged(replies: Sequence[Reply] = GOOD) -> Stage:
    stage = Stage()
    stage.client, stage.gateway = client(replies), gateway()
    return stage


def printed(*shown: object, width: int = 118) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    for one in shown:
        console.print(one)
    return console.export_text()


def test_the_summary_is_json_and_says_that_it_passed(tmp_path: Path) -> None:
    stored(tmp_path, *BOTH)

    one = summary(facts(tmp_path), staged(), trouble=None)
    content = json.loads(json.dumps(as_json(one), allow_nan=False))

    assert (content["passed"], content["trouble"]) == (True, None)
    assert content["client"] == {"requests": 4, "failed": 0, "answered_by": {"int8": 3, "baseline": 1}}
    assert [one["action"] for one in content["gateway"]["calls"]] == ["isolate", "release"]
    assert content["nodes"]["outlier"][0]["task_set"] == "math"
    assert content["kl_ratio"] == pytest.approx(10)


def test_a_story_that_broke_off_has_not_passed(tmp_path: Path) -> None:
    stored(tmp_path, *BOTH)

    assert not summary(facts(tmp_path), staged(), trouble="it broke").passed


@pytest.mark.parametrize("staying", [True, False])
def test_the_summary_shows_nodes_checks_and_where_to_go_on(tmp_path: Path, *, staying: bool) -> None:
    stored(tmp_path, *BOTH)
    console = Console(width=80, record=True, file=io.StringIO())

    show(summary(facts(tmp_path), staged(GOOD[:3]), trouble="the node broke"), console, staying=staying)

    text = console.export_text()
    assert re.search(r"outliers +math +0\.3000 ", text)
    assert "✘" in text
    assert "…" not in text
    assert "the node broke" in text
    assert "The demo did not succeed" in text
    assert str(tmp_path / "quantwatch.db") in text
    assert "quantwatch.yaml" not in text  # there is none
    assert ("quantwatch compare" in text) is staying


def shown(**state: Any) -> str:
    """The view over one task set."""
    stage = staged([*GOOD, reply(30, "int8", error="cut")])
    stage.begin("watch")
    stage.done("watch", "all clean")
    stage.begin("rollout")
    one = set_board("int8", "math", **{"numbers": {"kl_mean": 0.25}, **state})
    stage.board = board_json(board(target_board("int8", one)))["targets"][0]
    stage.task_sets = ("math", "chinese")
    stage.behind, stage.changed = "w8a8, outliers x100", BOARD_TIME
    return printed(View(stage), width=80)


def test_the_view_shows_scenes_numbers_routing_and_who_answers() -> None:
    text = shown()

    assert all(title in text for title in SCENES.values())
    assert text.count("✔") == 1
    assert "w8a8, outliers x100" in text
    assert "■■■■✘" in text
    assert "failed 1" in text
    assert "int8 is ok, routing in" in text
    assert re.search(r"math +0\.25 \(0\.05\) +- \(1\.02\) +- \(0\.94\) +ok, 2 clean ", text)
    assert re.search(r"chinese +- +- +- +not yet", text)


@pytest.mark.parametrize("width", [80, 118])
def test_the_view_keeps_signs_and_titles_beside_long_sentences(width: int) -> None:
    stage = staged()
    stage.begin("start")
    stage.done("start", "x" * 200)
    stage.begin("limits")
    stage.failed("y" * 200)

    text = printed(View(stage), width=width)

    assert "✔ " in text
    assert "✘ " in text
    assert text.count("· ") == len(SCENES) - 2 + 1  # the title of the frame has one as well
    assert all(title in text for title in SCENES.values())


@pytest.mark.parametrize("height", [24, 25, 40])
def test_the_view_fits_the_height_of_the_terminal(height: int) -> None:
    stage = staged()
    stage.task_sets = ("math", "code", "chinese")
    for number in range(20):
        stage.say(f"sentence {number}")
    console = Console(width=80, height=height, record=True, file=io.StringIO())

    console.print(View(stage))

    text = console.export_text()
    assert len(text.splitlines()) < height
    assert "sentence 19" in text


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"quality": Quality.INCONCLUSIVE, "breaches": 1, "clean": 0}, "breach 1 "),
        ({"quality": Quality.DEGRADED, "breaches": 2, "clean": 0}, "degraded"),
        ({"quality": Quality.INVALID, "clean": 0}, "invalid"),
        ({"at": BOARD_TIME - timedelta(seconds=1), "quality": Quality.DEGRADED}, "node before "),
    ],
)
def test_the_view_says_what_a_number_counts_as(state: dict[str, Any], said: str) -> None:
    assert said in shown(**state)


def test_the_view_fits_a_narrow_terminal_before_anything_is_known() -> None:
    text = printed(View(Stage()), width=60)

    assert max(map(len, text.splitlines())) <= 60
    assert "not watched yet" in text


def test_what_goes_on_when_the_story_breaks_has_failed() -> None:
    heard: list[str] = []
    stage = Stage(hear=lambda _, line: heard.append(line))
    stage.begin("start")
    stage.done("start", "up")
    stage.begin("limits")
    stage.failed("the node broke")

    assert stage.scenes["start"].mark is Mark.DONE
    assert (stage.scenes["limits"].mark, stage.scenes["limits"].said) == (Mark.FAILED, "the node broke")
    assert stage.scenes["watch"].mark is Mark.WAITING
    assert heard == [SCENES["start"], "  up", SCENES["limits"]]
