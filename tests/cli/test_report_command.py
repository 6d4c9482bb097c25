"""`quantwatch report` as a user runs it: one file of each kind, by run, decision and period."""

import html
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer

from quantwatch.cli.main import main
from quantwatch.cli.report import command, moments
from quantwatch.errors import InputError
from quantwatch.flow.notice import Matter, Notice, Topic
from quantwatch.flow.state import Axis, Transition
from quantwatch.flow.tokens import PromptsShown
from quantwatch.flow.verdict import Finding, Limit, Metric, Quality
from quantwatch.pages.gather import incident_of, period_of
from quantwatch.pages.incident import Kind
from quantwatch.pages.manner import Language
from quantwatch.pages.report_file import written as written_as
from quantwatch.pages.report_json import incident_json, period_json
from quantwatch.record.archive import Archive
from quantwatch.record.notices import Change
from support.incidents import EVIL, bad_run, incident_store
from support.stored import add_many, after, at, decision, intent, leaving, opened, run, set_report

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = typer.Typer()
COMMANDS.command("report")(command)
COMMANDS.command("nothing")(lambda: None)
DAY = "2026-01-01..2026-01-01"
NOW = datetime(2026, 1, 3, tzinfo=UTC)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An incident's store, and a configuration that lets words of prompts be shown."""
    place = tmp_path_factory.mktemp("incident")
    incident_store(place)
    more = "\nstore:\n  path: q.db\nexpose:\n  prompts: full\n"
    (place / "config.yaml").write_text((ROOT / "configs" / "minimal.yaml").read_text() + more)
    return place


def report(folder: Path, *arguments: object, code: int = 0) -> None:
    given = ["report", "--config", str(folder / "config.yaml"), *map(str, arguments)]
    assert main(given, commands=COMMANDS) == code


def written(folder: Path, out: Path, *arguments: object) -> str:
    report(folder, *arguments, "--out", out)
    return out.read_text(encoding="utf-8")


def as_json(folder: Path, out: Path, *arguments: object) -> Any:
    return json.loads(written(folder, out, *arguments))


# ------------------------------------------------------------------ HTML


def test_the_html_needs_nothing_else(folder: Path, tmp_path: Path) -> None:
    text = written(folder, tmp_path / "a.html", "d-1")
    assert not re.search(r"<(script|link|img|iframe|object|embed|base)\b", text)
    assert not re.search(r"(?:src|href)\s*=|url\(|@import", text)
    assert "default-src 'none'; style-src 'unsafe-inline'" in html.unescape(text)
    assert EVIL not in text
    assert html.escape(EVIL) in text
    assert "hunter2" not in text


def test_the_html_tells_the_whole_incident(folder: Path, tmp_path: Path) -> None:
    text = " ".join(re.sub(r"<[^>]*>", " ", written(folder, tmp_path / "a.html", "d-1")).split())
    for part in (
        "Isolate int8-a: carried out",
        "Mean KL 0.120 0.108 – 0.132 0.0100 0.0500",
        "21 runs from 2026-01-01 00:01 UTC to 2026-01-01 00:40 UTC: the lowest 0.00300, the highest 0.120",
        "The engine&#39;s version changed version: 0.32.0 -&gt; 0.33.0",
        "docs/runbook.md#alert-target-bad",
        "node: version 0.32.0 0.33.0",
        "The 3 prompts that carry the most divergence, of 23 that were measured, with their mean KL.",
        "order to the gateway: isolate http://int8-a:8000 through webhook",
        "3 of its own answers to these prompts are kept",
    ):
        assert part in text


def test_the_runbook_is_linked_where_the_configuration_says_it_lies(folder: Path, tmp_path: Path) -> None:
    channel = (
        "\nnotifications:\n  - {name: ops, kind: webhook, url: 'http://a.test', runbook_url: 'https://wiki.test/rb'}\n"
    )
    config = tmp_path / "config.yaml"
    config.write_text((folder / "config.yaml").read_text().replace("q.db", str(folder / "q.db")) + channel)
    text = written(tmp_path, tmp_path / "a.html", "d-1")
    assert '<a href="https://wiki.test/rb#alert-target-bad" rel="noreferrer">' in text


def test_a_store_alone_shows_ids(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.html"
    assert main(["report", "d-1", "--store", str(folder / "q.db"), "--out", str(out)], commands=COMMANDS) == 0
    text = out.read_text(encoding="utf-8")
    assert "expose.prompts: full" in text
    assert "#16" in text
    assert html.escape(EVIL) not in text


def test_a_report_is_written_in_chinese(folder: Path, tmp_path: Path) -> None:
    for kind in ("html", "md"):
        text = written(folder, tmp_path / f"a.{kind}", "d-1", "--lang", "zh")
        assert "下一步建议" in text
        assert "将节点回滚到最近一次正常运行时的版本。" in text
        assert "What to try next" not in text


# ------------------------------------------------------------------ Markdown and JSON


def test_the_markdown_tells_the_incident_and_nothing_in_it_acts(folder: Path, tmp_path: Path) -> None:
    text = written(folder, tmp_path / "a.md", bad_run().id)
    assert text.startswith("# math on int8-a: degraded\n")
    assert "| Mean KL | 0.120 | 0.108 – 0.132 | 0.0100 | 0.0500 | **degraded** |" in text
    assert "**42**&#91;1.7&#93;" in text
    assert "- node version: 0.32.0 → 0.33.0" in text
    assert "<" not in text.replace("<!-- -->", "")
    assert "hunter2" not in text
    width = {len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line.startswith("| 42 |")}
    assert width == {7}


def test_the_json_holds_everything(folder: Path, tmp_path: Path) -> None:
    content = as_json(folder, tmp_path / "a.json", "d-1")
    assert (content["kind"], content["subject"], content["last_good_run"]) == ("incident", "d-1", run(19).id)
    assert content["run"]["report"]["kl_mean"] == 0.12
    assert content["numbers"][0]["times"] == pytest.approx(2.4)
    assert [one["id"] for one in content["decisions"]] == ["d-held", "d-1"]
    assert content["gateway"][0]["result"] == "verified"
    assert content["advice"][0]["cause"] == "version"
    assert content["slices"][0]["value"] == "long"
    token = content["tokens"]["prompts"][0]["tokens"][3]
    assert (token["text"], token["kl"]) == (" 42", 1.7)
    assert token["choices"][0]["golden"] is True
    assert "hunter2" not in json.dumps(content)


def test_standard_output_needs_a_format(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report(folder, "d-1", "--out", "-", "--format", "json")
    assert json.loads(capsys.readouterr().out)["kind"] == "incident"
    report(folder, "d-1", "--out", "-", code=3)
    assert "--out - needs --format html, md or json" in capsys.readouterr().err


def test_the_format_wins_over_the_name(folder: Path, tmp_path: Path) -> None:
    assert as_json(folder, tmp_path / "a.txt", "d-1", "--format", "json")["kind"] == "incident"


def test_a_run_without_numbers_is_reported(tmp_path: Path) -> None:
    down = run(1, reason="connection refused", report=None, baseline=None, node=None)
    with opened(tmp_path) as kept:
        kept.add_run(down, after(down))
    for kind in ("html", "md", "json"):
        out = tmp_path / f"a.{kind}"
        assert main(["report", "r-", "--store", str(tmp_path / "q.db"), "--out", str(out)], commands=COMMANDS) == 0
        assert "connection refused" in out.read_text(encoding="utf-8")


def test_what_is_open_and_what_is_in_doubt_is_told(tmp_path: Path) -> None:
    limit = Limit(0.05, 0.1)
    found = Finding(Metric.KL_MEAN, Quality.DEGRADED, 0.31, None, limit, "over", "language zh")
    base = set_report(0.12, quality=Quality.DEGRADED)
    bad = bad_run(report=replace(base, verdict=replace(base.verdict, findings=(*base.verdict.findings, found))))
    matter = Matter(Topic.BASELINE_MOVED, "baseline", "moved", "it drifted")
    with opened(tmp_path) as kept:
        kept.add_run(bad, after(bad))
        made = decision("d-1", 21, run=bad.id)
        kept.decide(made, intent=intent(made), state=leaving(made))
        kept.tell(Change(told=[Notice("n", at(1), at(1), matter)]))
    texts = {}
    for kind in ("html", "md"):
        out = tmp_path / f"a.{kind}"
        assert main(["report", "d-1", "--store", str(tmp_path / "q.db"), "--out", str(out)], commands=COMMANDS) == 0
        texts[kind] = out.read_text(encoding="utf-8")
        for part in ("not settled yet", "it drifted", "language zh", "No tokens are kept", "no good run of this node"):
            assert part in texts[kind]
    assert "| Mean KL · language zh | 0.310 | – | 0.0500 | 0.100 | **degraded** |" in texts["md"]
    assert "- **In doubt:** it drifted" in texts["md"]


def test_the_markdown_says_so_where_nothing_differs_and_nothing_was_sent(tmp_path: Path) -> None:
    same = run(2, 0.12, quality=Quality.DEGRADED, report=set_report(0.12, quality=Quality.DEGRADED))
    with opened(tmp_path) as kept:
        for one in (run(1), same):
            kept.add_run(one, after(one))
    out = tmp_path / "a.md"
    assert main(["report", same.id, "--store", str(tmp_path / "q.db"), "--out", str(out)], commands=COMMANDS) == 0
    text = out.read_text(encoding="utf-8")
    for part in ("Nothing differs.", "Nothing was sent to the gateway.", "Nothing that quantwatch can see has changed"):
        assert part in text


# ------------------------------------------------------------------ a period


def test_a_period_tells_all_breaches_and_decisions(folder: Path, tmp_path: Path) -> None:
    content = as_json(folder, tmp_path / "p.json", "--range", DAY)
    assert content["kind"] == "period"
    (pair,) = content["pairs"]
    assert (pair["target"], pair["runs"], pair["breaches"]) == ("int8-a", {"degraded": 1, "ok": 20}, 1)
    assert (pair["worst"]["id"], pair["worst"]["kl"]) == (bad_run().id, 0.12)
    assert [one["id"] for one in content["breaches"]] == [bad_run().id]
    assert [one["id"] for one in content["decisions"]] == ["d-held", "d-1", "d-back"]
    assert content["cut"] is False


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with more breaches and changes of one hour than a report lists; the first breach is of another node."""
    place = tmp_path_factory.mktemp("crowded")
    began = [run(0, 0.12, quality=Quality.DEGRADED, target="int8-b")]
    began += [run(i, 0.12, quality=Quality.DEGRADED, started=at(1 + i / 20)) for i in range(1, 602)]
    flapping = [Transition(at(1 + i / 20), "int8-a", Axis.QUALITY, "ok", "degraded", f"no {i}") for i in range(701)]
    with opened(place) as kept:
        kept.add_run(began[0], after(began[0]))
        kept.add_run(began[1], after(began[1]), flapping)
    add_many(place / "q.db", began[2:])
    return place


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_period_that_is_cut_counts_everything_and_says_what_it_leaves_out(lang: Language, crowded: Path) -> None:
    with Archive.open(crowded / "q.db") as archive:
        one = period_of(archive, at(0), at(60), now=NOW)
    content = period_json(one)
    assert content["cut"] is True
    assert content["left_out"] == {"runs": 0, "breaches": 102, "decisions": 0, "changes": 201}
    assert content["breached"] == {"runs": 602, "targets": 2}
    assert content["breaches"][-1]["id"] == run(601).id
    texts = [written_as(one, "html", lang), written_as(one, "md", lang)]
    heads = {
        "en": ("Breaches: 602, targets: 2", "602 runs, 602 of them breaches"),
        "zh": ("越限 602 次，涉及 2 个节点",),
    }
    assert all(head in texts[0] for head in heads[lang])
    left = {"en": "102 breaches, 0 decisions, 201 changes", "zh": "越限 102 次、决策 0 项、变更 201 项"}[lang]
    assert all(left in text for text in texts)


def test_an_incident_that_is_cut_says_what_it_leaves_out(crowded: Path) -> None:
    with Archive.open(crowded / "q.db") as archive:
        one = incident_of(archive, archive.run(run(300).id), now=NOW, shown=PromptsShown.IDS)
    assert incident_json(one)["left_out"] == {"runs": 601 - 81, "breaches": 0, "decisions": 0, "changes": 201}
    assert "no 700" in [each.said for each in one.timeline if each.kind is Kind.CHANGE][-1]
    for kind in ("html", "md"):
        told = "Not listed of this time: 520 runs of this node and task set, 0 decisions, 201 changes."
        assert told in written_as(one, kind)
    assert "56 more runs before and after are not listed here." in written_as(one, "md")


@pytest.mark.parametrize("kind", ["html", "md"])
def test_a_period_is_told_to_people(kind: str, folder: Path, tmp_path: Path) -> None:
    text = written(folder, tmp_path / f"p.{kind}", "--range", DAY)
    for part in (bad_run().id, "d-1", "d-held", "By target and task set"):
        assert part in text
    assert EVIL not in text


def test_a_quiet_period_says_so(folder: Path, tmp_path: Path) -> None:
    text = written(folder, tmp_path / "p.html", "--range", "2025-01-01..2025-01-02")
    assert "No target breached" in text
    assert "No run is on record in this period." in text
    quiet = written(folder, tmp_path / "p.md", "--range", "2025-01-01..2025-01-02")
    assert "Nothing was decided." in quiet


def test_a_period_without_a_breach_leaves_out_what_came_before_or_after(folder: Path, tmp_path: Path) -> None:
    content = as_json(folder, tmp_path / "p.json", "--range", "2026-01-01T00:01..2026-01-01T00:20")
    assert content["breaches"] == content["decisions"] == []
    assert content["pairs"][0]["runs"] == {"ok": 19}


RANGES = [
    ("24h", NOW - timedelta(days=1), NOW),
    ("2026-01-01..2026-01-02", datetime(2026, 1, 1, tzinfo=UTC), NOW),
    ("2026-01-01T10:00..", datetime(2026, 1, 1, 10, tzinfo=UTC), NOW),
    (
        "2026-01-01T10:00+02:00..2026-01-02T00:00Z",
        datetime(2026, 1, 1, 8, tzinfo=UTC),
        datetime(2026, 1, 2, tzinfo=UTC),
    ),
]


@pytest.mark.parametrize(("given", "since", "until"), RANGES)
def test_a_range_is_a_span_or_two_moments(given: str, since: datetime, until: datetime) -> None:
    assert moments(given, now=NOW) == (since, until)


ODD = ["", "24", "0h", "yesterday", "..", "2026-01-02..2026-01-01", "x..y", "9999-12-31..9999-12-31", "99999999999d"]


@pytest.mark.parametrize("given", ODD)
def test_what_is_no_range_is_refused(given: str) -> None:
    with pytest.raises(InputError, match="--range"):
        moments(given, now=NOW)


# ------------------------------------------------------------------ usage


REFUSED = [
    (["d-1", "--out", "a.pdf"], "a name that ends with .html, .md or .json is wanted"),
    (["d-1", "--out", "a.html", "--format", "pdf"], "--format pdf: html, md or json is wanted"),
    (["d-1", "--out", "a.html", "--lang", "fr"], "--lang fr: one of en, zh is wanted"),
    (["--out", "a.html"], "give either the ID of a run or decision, or --range"),
    (["d-1", "--range", "1h", "--out", "a.html"], "give either the ID of a run or decision, or --range"),
    (["x-9", "--out", "a.html"], "no run or decision x-9"),
    (["d-", "--out", "a.html"], "give more of the id"),
    (["d-1", "--out", "no/such/folder/a.html"], "cannot be written"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_what_cannot_be_meant_is_refused(
    arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report(folder, *arguments, code=3)
    assert message in " ".join(capsys.readouterr().err.split())
    assert not Path(arguments[-1]).exists()
