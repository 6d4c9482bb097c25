"""The page of a node: where it stands, its charts, and what is on record."""

import contextlib
import json
import shutil
import sqlite3
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from quantwatch.flow.board import Board
from quantwatch.flow.decision import Outcome, Result
from quantwatch.flow.handshake import Handshake, Point, Seen
from quantwatch.flow.run import Trigger
from quantwatch.flow.state import Axis, Transition
from quantwatch.flow.verdict import Quality
from quantwatch.pages.node import RUNS
from quantwatch.record.columns import moment_text
from support.boards import board, isolated, measured, rich_board, set_board, target_board
from support.pages import Read, see, site
from support.stored import add_many, after, at, decision, intent, leaving, opened, run, suppressed

NOW = at(120)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fifty runs, one a minute and the last ten bad; an isolation that was verified; one that a brake stopped."""
    folder = tmp_path_factory.mktemp("node")
    turn = run(100, 0.2, quality=Quality.DEGRADED)
    with opened(folder) as made:
        add_many(made.path, [run(number) for number in range(60, 100)])
        change = Transition(turn.started, "int8-a", Axis.QUALITY, "ok", "degraded", "KL rose", "math", turn.id)
        made.add_run(turn, after(turn), [change])
        add_many(made.path, [run(number, 0.2, quality=Quality.DEGRADED) for number in range(101, 110)])
        other = run(80, id="r-code", task_set="code", trigger=Trigger.MANUAL)
        made.add_run(other, after(other))
        isolation = decision(minutes=105)
        change = Transition(at(105), "int8-a", Axis.ROUTING, "in", "leaving", "over its limit", decision="d-1")
        made.decide(isolation, intent=intent(isolation), state=leaving(isolation), transitions=[change])
        made.begin_attempt("d-1")
        made.settle("d-1", Outcome(Result.VERIFIED, "read back", at(106), 1))
        made.decide(suppressed(minutes=103))
        asked = Transition(at(107), "int8-a", Axis.HUMAN, "none", "none", "run math: to be sure", author="ada")
        made.add_changes([asked])  # told among the changes, and no mark in the charts
    return folder / "q.db"


def shown() -> Board:
    return board(isolated("int8-a", measured("int8-a", run="r-x"), measured("int8-a", "code")))


async def node(store: Path, path: str = "/nodes/int8-a", whole: Board | None = None, **options: Any) -> httpx.Response:
    return await see(site(whole or shown(), store, now=NOW), path, **options)


async def page(store: Path, path: str = "/nodes/int8-a", whole: Board | None = None) -> Read:
    reply = await node(store, path, whole)
    assert reply.status_code == 200
    return Read.of(reply.text)


async def test_the_page_tells_where_the_node_stands_and_what_it_is(store: Path) -> None:
    unfit = Handshake("int8-a", (Seen(Point.TOP_K, ok=False, detail="gives 5", advice="raise it"),), complete=True)
    whole = board(replace(shown().targets[0], handshake=unfit, queued=2, running="math", weight=50))
    found = await page(store, whole=whole)
    for said in ("Quality degraded", "Routing isolated", "Human none", "mean KL 0.2 is over 0.05", "acme/model-int8"):
        assert said in found.text.replace("  ", " ")
    for said in ("http://int8-a.gateway", "not comparable", "gives 5", "raise it", "2 runs wait", "warn 0.0100, limit"):
        assert said in found.text
    assert found.text.count("stays out at least until") == 1
    assert {"/decisions/d-1", "/sets/math", "/runs/r-x"} <= set(found.links())


async def test_runs_decisions_and_changes_are_listed(store: Path) -> None:
    found = await page(store)
    for said in ("Newest first; 50 on record", "carried out, verified", "suppressed", "1 of 2 is isolated already"):
        assert said in found.text
    for said in ("ok → degraded", "in traffic → leaving", "2026-01-01 01:45:00 UTC"):
        assert said in found.text
    assert {f"/runs/{run(109).id}", "/decisions/d-2"} <= set(found.links())


def older(found: Read) -> list[str]:
    """Where the list of runs goes on, without the anchor."""
    links = [link.partition("#") for link in found.links()]
    return [address for address, _, anchor in links if anchor == "runs" and "before=r-" in address]


async def test_runs_are_paged(store: Path) -> None:
    found, seen = await page(store), []
    while True:
        seen.append([link for link in found.links() if link.startswith("/runs/r-2")])
        if not (again := older(found)):
            break
        found = await page(store, again[0])
    assert [len(one) for one in seen] == [RUNS, RUNS, 10]
    assert [link for one in seen for link in one] == [f"/runs/{run(number).id}" for number in range(109, 59, -1)]
    assert "Newest" in found.text


async def test_the_way_back_to_the_newest_runs_leads_there(store: Path) -> None:
    first = await page(store)
    second = await page(store, older(first)[0])
    (newest,) = [one.attributes["href"] or "" for one in second.named("a") if one.attributes.get("id") == "runs-newest"]
    for path in (newest, "/nodes/int8-a?before=r-that-was-pruned"):
        found = await page(store, path.partition("#")[0])
        assert f"/runs/{run(109).id}" in found.links()
        assert "No run of it is on record" not in found.text


async def test_a_task_set_can_be_chosen(store: Path) -> None:
    found = await page(store, "/nodes/int8-a?set=code&range=7d")
    assert "Newest first; 1 on record" in found.text
    assert "by hand" in found.text
    current = [one.attributes["href"] for one in found.named("a") if one.attributes.get("aria-current") == "true"]
    assert "/nodes/int8-a?set=code&range=7d#charts" in current
    (source,) = [one.attributes["data-source"] for one in found.tags if "data-source" in one.attributes]
    assert source == "/nodes/int8-a/series.json?set=code&range=7d"


async def test_charts_get_their_numbers(store: Path) -> None:
    reply = await node(store, "/nodes/int8-a/series.json?set=math&range=6h")
    assert reply.headers["content-type"] == "application/json"
    told = reply.json()
    assert told["to"] - told["from"] == 6 * 3600
    assert list(told["charts"]) == ["kl_mean", "perplexity_ratio", "top1_agreement", "latency"]
    drawn = told["charts"]["kl_mean"]
    assert drawn["at"] == [int(at(number).timestamp()) for number in range(60, 110)]
    assert drawn["value"] == [0.004] * 40 + [0.2] * 10
    assert (drawn["low"][0], drawn["high"][0]) == (0.0036, 0.0044)
    assert (drawn["warn"][0], drawn["critical"][0]) == (0.01, 0.05)
    assert told["charts"]["latency"]["value"] == [0.4] * 50
    assert [(one["axis"], one["new"]) for one in told["marks"]] == [("quality", "degraded"), ("routing", "leaving")]


@pytest.mark.parametrize(("query", "count"), [("range=6h", 50), ("range=nonsense", 50), ("set=none", 0)])
async def test_charts_of_other_stretches(query: str, count: int, store: Path) -> None:
    told = (await node(store, f"/nodes/int8-a/series.json?set=math&{query}")).json()
    assert len(told["charts"]["kl_mean"]["at"]) == count


async def test_only_what_lies_in_the_range_is_drawn(store: Path) -> None:
    late = site(shown(), store, now=NOW + timedelta(hours=5, minutes=30))
    told = (await see(late, "/nodes/int8-a/series.json?set=math&range=6h")).json()
    assert told["charts"]["kl_mean"]["at"] == [int(at(number).timestamp()) for number in range(91, 110)]


async def test_a_store_that_cannot_be_read_takes_the_record_alone(tmp_path: Path) -> None:
    found = await page(tmp_path / "none.db")
    assert "mean KL 0.2 is over 0.05" in found.text
    assert "The record cannot be read right now" in found.text
    assert [one for one in found.tags if "data-source" in one.attributes] == []
    reply = await node(tmp_path / "none.db", "/nodes/int8-a/series.json?set=math")
    assert reply.status_code == 503


async def test_a_node_that_left_the_configuration_keeps_its_record(store: Path) -> None:
    found = await page(store, whole=board(target_board("other")))
    assert "not in the configuration any longer" in found.text
    assert "51 on record" in found.text
    assert (await node(store, "/nodes/nobody")).status_code == 404


async def test_a_node_before_its_first_run(store: Path) -> None:
    fresh = set_board("new", quality=Quality.UNKNOWN, run=None, at=None)
    whole = board(target_board("new", fresh, quality=Quality.UNKNOWN, identity=None, handshake=None))
    found = await page(store, "/nodes/new", whole)
    for said in (
        "not measured yet",
        "No run of it is on record yet",
        "Nothing has been decided",
        "Nothing has changed",
    ):
        assert said in found.text


@pytest.mark.parametrize("part", ["now", "record"])
async def test_parts_are_sent_only_when_something_moved(part: str, store: Path) -> None:
    first = await node(store, f"/nodes/int8-a?part={part}")
    assert first.status_code == 200
    assert "<html" not in first.text
    again = await node(store, f"/nodes/int8-a?part={part}", headers={"X-Seen": first.headers["x-version"]})
    assert again.status_code == 204


async def test_a_part_of_a_node_that_has_left_is_empty(store: Path) -> None:
    reply = await node(store, "/nodes/gone?part=now", rich_board())
    assert (reply.status_code, reply.text.strip()) == (200, "")


async def test_in_chinese_codes_are_told_in_chinese_and_the_daemons_sentences_are_marked_as_english(
    store: Path,
) -> None:
    found = await page(store, "/nodes/int8-a?lang=zh")
    assert "已执行，已验证" in found.text
    assert "被隔离的节点会过多" in found.text
    assert "因超出限值" in found.text
    english = (await node(store, "/nodes/int8-a?lang=zh")).text
    assert '<span lang="en">1 of 2 is isolated already, and 1 is allowed</span>' in english
    assert '<span lang="en">KL rose</span>' in english
    assert 'lang="en">KL rose' not in (await node(store, "/nodes/int8-a?lang=en")).text


def written_by_another_version(store: Path, folder: Path) -> Path:
    """The same record with a brake, a metric and a state that are not known here, and findings without parts."""
    other = folder / "q.db"
    shutil.copyfile(store, other)
    findings = [
        {"metric": one, "value": 0.2, "critical": 0.05, "verdict": "degraded"} for one in ("kl_mean", "kl_max9")
    ]
    with contextlib.closing(sqlite3.connect(other)) as raw, raw:
        for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            raw.execute(f"DROP TRIGGER {name}")  # they keep decisions as they are
        raw.execute("UPDATE decisions SET findings = ?", [json.dumps(findings)])
        raw.execute("UPDATE decisions SET objections = ?", [json.dumps([{"brake": "tide", "reason": "high <b>"}])])
        raw.execute("UPDATE decisions SET at = ? WHERE id = 'd-2'", [moment_text(at(110))])
        raw.execute("UPDATE transitions SET old = 'drained' WHERE axis = 'routing'")
    return other


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_what_another_version_has_written_is_shown_by_its_codes(
    language: str, store: Path, tmp_path: Path
) -> None:
    other = written_by_another_version(store, tmp_path)
    found = await page(other, f"/nodes/int8-a?lang={language}")
    for said in ("tide", "high <b>", "drained →"):
        assert said in found.text
    assert ("因超出限值；平均 KL 0.200（严重限值 0.0500）；kl_max9 0.200" in found.text) is (language == "zh")
    served = await node(other, f"/decisions/d-2?lang={language}")
    assert served.status_code == 200
    assert "tide" in served.text
    assert "<b>" not in served.text.partition("tide")[2].partition("</li>")[0]
    serving = board(target_board("int8-a", quality=Quality.DEGRADED))
    fleet = await see(site(serving, other, now=NOW), f"/?lang={language}")
    assert (fleet.status_code, "tide" in fleet.text) == (200, True)
