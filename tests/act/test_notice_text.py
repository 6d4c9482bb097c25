"""What people read: one message for every matter, with the numbers, what was done, and where to read on."""

import math
import re
from pathlib import Path

import pytest

from quantwatch.act.notice_text import RUNBOOK, message
from quantwatch.flow.notice import SEVERITY, Topic
from quantwatch.flow.verdict import Finding, Interval, Limit, Metric, Quality
from support.notices import notice

ROOT = Path(__file__).resolve().parents[2]

BREACH = """\
[CRITICAL] int4-a: math is degraded
Why: breach 2 in a row: mean KL 0.21 is over 0.13
Values: mean KL 0.21 (0.18 to 0.24), warns at 0.06, critical at 0.13
Done: its isolation is under way, decision d-1
Target: int4-a
Pool: chat
Task set: math
Run: r-1
Decision: d-1
Severity: critical
Since: 2026-01-01 03:04:05 UTC
Runbook: docs/runbook.md#alert-target-bad"""

OVER = """\
[RESOLVED] int4-a: math no longer breaches
Why: clean
Target: int4-a
Pool: chat
Task set: math
Run: r-9
Severity: critical
Stood: 2026-01-01 03:04:05 UTC to 2026-01-01 04:34:05 UTC
Runbook: docs/runbook.md#alert-target-bad"""


def test_a_breach_in_words() -> None:
    assert message(notice()).plain == BREACH


def test_its_end_in_words() -> None:
    over = notice(
        minutes=90, standing=False, state="ok", reason="clean", done="", run="r-9", decision=None, evidence=()
    )
    assert message(over).plain == OVER


def test_the_runbook_is_linked_where_it_lies() -> None:
    assert message(notice(), runbook_url="https://wiki.test/rb").runbook == "https://wiki.test/rb#alert-target-bad"


TITLES = {
    Topic.ROUTING: ("out", "int4-a: out of traffic"),
    Topic.CONTRADICTED: ("contradicted", "int4-a: record and gateway differ"),
    Topic.HELD_BACK: ("cap, storm", "int4-a: its isolation is held back (cap, storm)"),
    Topic.WOULD_HAVE: ("dry_run", "int4-a: would be isolated"),
    Topic.STORM: ("fleet_degraded", "pool chat: fleet_degraded, many targets breach at once"),
    Topic.PROPOSAL: ("d-7", "int4-a: d-7 waits for approval"),
    Topic.WORD: ("held", "int4-a: a person has set it to held"),
    Topic.ORDER: ("failed", "int4-a: an order to the gateway came to nothing (failed)"),
    Topic.BASELINE_MOVED: ("moved", "baseline: it no longer gives its own answers"),
    Topic.BASELINE_UNPROVEN: ("unproven", "baseline: not proven, so nothing acts"),
    Topic.REFERENCE: ("changed", "math: enrolled answers are changed"),
}


@pytest.mark.parametrize(("topic", "state", "title"), [(topic, *rest) for topic, rest in TITLES.items()])
def test_every_topic_has_its_title(topic: Topic, state: str, title: str) -> None:
    assert message(notice(topic, state=state)).title == f"[{SEVERITY[topic].upper()}] {title}"


def test_a_pause_is_told_by_its_scope() -> None:
    assert message(notice(Topic.PAUSED, subject="p-7 target:int4-a")).title == (
        "[WARNING] target:int4-a: quantwatch has paused itself"
    )


@pytest.mark.parametrize("topic", Topic)
def test_every_topic_has_another_title_once_it_is_over_and_a_severity(topic: Topic) -> None:
    standing, over = message(notice(topic)), message(notice(topic, standing=False))
    assert over.title.startswith("[RESOLVED] ")
    assert SEVERITY[topic]
    if topic is not Topic.TEST:
        assert standing.title.partition("] ")[2] != over.title.partition("] ")[2]


def test_a_proposal_about_a_whole_pool_names_the_pool() -> None:
    told = notice(Topic.PROPOSAL, state="d-7", target=None)
    assert message(told).title == "[WARNING] pool chat: d-7 waits for approval"


def test_a_degraded_fleet_has_a_section_of_its_own() -> None:
    anchors = {message(notice(Topic.STORM, state=state)).runbook.partition("#")[2] for state in ("storm", "healthy")}
    assert anchors == {"alert-storm"}
    assert message(notice(Topic.STORM, state="fleet_degraded")).runbook.endswith("#alert-fleet-degraded")
    assert "### Alert: fleet degraded" in (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("topic", Topic)
def test_every_topic_leads_to_a_section_of_the_runbook(topic: Topic) -> None:
    text = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
    headings = re.findall(r"^#{2,4} (.+)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}
    assert RUNBOOK[topic] in anchors


def test_the_worst_numbers_come_first_and_not_all_of_many() -> None:
    fine = [
        Finding(Metric.TOP1_AGREEMENT, Quality.OK, 0.99, None, Limit(0.97), "", part=f"rank {i}") for i in range(20)
    ]
    bad = Finding(
        Metric.KL_P99, Quality.DEGRADED, math.nan, Interval(0.7, 0.9), Limit(None, 0.6), "", part="depth late"
    )
    (values,) = [text for name, text in message(notice(evidence=(*fine, bad))).facts if name == "Values"]
    parts = values.split("; ")
    assert parts[0] == "KL P99 of depth late nan (0.7 to 0.9), critical at 0.6"
    assert parts[1] == "top-1 agreement of rank 0 0.99, warns at 0.97"
    assert len(parts) == 6


@pytest.mark.parametrize("name", ["{0.__class__}", "{target}", "%s", "$x"])
def test_a_name_is_never_a_template(name: str) -> None:
    assert message(notice(target=name)).title == f"[CRITICAL] {name}: math is degraded"
