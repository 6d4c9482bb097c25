"""The lines of a timeline: the same in both languages, with the daemon's sentences as their details."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from quantwatch.flow.decision import Action, Brake, Origin, Result, Ruling
from quantwatch.flow.notice import Matter, Notice, Topic
from quantwatch.flow.pool import PoolState
from quantwatch.flow.proposal import Fate, Proposal
from quantwatch.flow.reference import ReferenceState
from quantwatch.flow.state import Axis, Human, Routing, Transition
from quantwatch.flow.tokens import PromptsShown
from quantwatch.flow.verdict import Quality
from quantwatch.pages.gather import incident_of
from quantwatch.pages.incident import Event, Kind
from quantwatch.pages.report_html import incident_html
from quantwatch.pages.report_markdown import incident_markdown
from quantwatch.pages.timeline import STATES, events
from quantwatch.pages.words import phrased
from quantwatch.record.archive import Archive
from quantwatch.record.cases import Point
from support.incidents import EVIL, incident_store
from support.stored import at

LATIN = re.compile(r"[A-Za-z]{2,}")
NAMES = ("int8-a", "math", "webhook", "pool:chat", "http")


def english_left(one: Event) -> list[str]:
    """English words of a line in Chinese, names of things and details apart."""
    heads = " ".join(phrased(each, "zh") for each in one.phrases)
    for name in NAMES:
        heads = heads.replace(name, "")
    return LATIN.findall(heads)


def change(axis: Axis, old: str, new: str, **more: str) -> Transition:
    return Transition(at(1), "int8-a", axis, old, new, "because", **more)


CHANGES = [
    *(change(Axis.QUALITY, one, "ok", task_set="math") for one in Quality),
    *(change(Axis.ROUTING, one, "in") for one in Routing),
    *(change(Axis.HUMAN, one, "none") for one in Human),
    *(replace(change(Axis.POOL, one, "healthy"), target="pool:chat") for one in PoolState),
    change(Axis.EJECTIONS, "2", "1"),
    change(Axis.WEIGHT, "50", "100"),
]
CODES = {
    "quality.": Quality,
    "routing.": Routing,
    "pool.": PoolState,
    "human.": Human,
    "result.": Result,
    "reference.": ReferenceState,
}


def matters() -> Iterator[Matter]:
    for topic in Topic:
        if topic in STATES:
            codes = [str(one) for one in CODES[STATES[topic]]] + ["vouched"] * (topic is Topic.QUALITY)
        else:
            codes = [", ".join(Brake)] if topic in (Topic.HELD_BACK, Topic.WOULD_HAVE) else ["paused"]
        for code in codes:
            yield from (Matter(topic, "int8-a", code, "because", standing=standing) for standing in (True, False))


@pytest.mark.parametrize("one", CHANGES, ids=lambda one: f"{one.axis} {one.old}")
def test_a_change_is_told_in_chinese_by_its_codes(one: Transition) -> None:
    (event,) = events(changes=[one])
    assert english_left(event) == []
    assert [(each.detail, each.spoken) for each in event.phrases] == [("because", False)]
    assert event.said.endswith(": because")


@pytest.mark.parametrize("matter", list(matters()), ids=lambda one: f"{one.topic} {one.state} {one.standing}")
def test_a_notice_is_told_in_chinese_by_its_codes(matter: Matter) -> None:
    (event,) = events(notices=[Notice("n", at(1), at(1), matter)])
    assert english_left(event) == []
    assert event.phrases[0].detail == "because"
    assert ("结束" in phrased(event.phrases[0], "zh")) is not matter.standing


def test_a_run_is_told_by_its_verdict() -> None:
    point = Point("r-1", "int8-a", "math", at(1), Quality.DEGRADED, "mean KL 0.2")
    (event,) = events(runs=[point])
    assert [phrased(one, "zh") for one in event.phrases] == ["math：退化"]
    assert event.said == "math: degraded: mean KL 0.2"


def test_a_code_of_a_newer_version_is_told_as_it_is() -> None:
    (event,) = events(changes=[change(Axis.ROUTING, "drained", "in")])
    assert [phrased(one, "zh") for one in event.phrases] == ["int8-a：路由：drained → 承接流量"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An incident: runs, a suppressed and a carried out isolation, a release, a notice."""
    return incident_store(tmp_path_factory.mktemp("timeline"))


def test_decisions_orders_and_answers_are_told_in_chinese(store: Path) -> None:
    with Archive.open(store) as archive:
        made = archive.decisions(limit=None)
    wait = Proposal("d-5", "int8-a", "llama", Action.ISOLATE, "bad", "r-1", at(10), at(70))
    closed = [replace(wait, fate=one, closed=at(20), author="ada", said="drill") for one in Fate]
    asked = [replace(made[0], ruling=one, proposal=each) for one in Ruling for each in closed]
    told = events(decisions=[*made, *asked])
    assert {one.kind for one in told} == {Kind.DECISION, Kind.PROPOSAL, Kind.ORDER, Kind.OUTCOME}
    assert [left for one in told for left in english_left(one)] == []
    held = next(one for one in told if one.decision == "d-held")
    assert [phrased(one, "zh") for one in held.phrases] == ["隔离 int8-a：被制止", "反对理由：被隔离的节点会过多"]
    assert "objection: Too many would be away: 1 of 2" in held.said
    assert {one.phrases[0].spoken for one in told if one.kind is Kind.PROPOSAL} == {True}


def test_words_of_people_are_not_called_english() -> None:
    said = change(Axis.HUMAN, "none", "held", author="ada")
    ended = change(Axis.HUMAN, "held", "none", author="quantwatch")
    assert [one.phrases[0].spoken for one in events(changes=[said, ended])] == [True, False]
    word = Matter(Topic.WORD, "int8-a", "held", "ada: 换卡")
    over = replace(word, state="none", reason="no person's word holds for it any more", standing=False)
    told = events(notices=[Notice("n", at(2), at(1), word), Notice("n", at(3), at(1), over)])
    assert [one.phrases[0].spoken for one in told] == [True, False]


def test_the_reason_of_what_a_person_has_only_approved_is_the_daemons(store: Path) -> None:
    with Archive.open(store) as archive:
        made = archive.decision("d-held")
    asked = [replace(made, author="ada", origin=one) for one in Origin]
    told = [one for each in asked for one in events(decisions=[each]) if one.kind is Kind.DECISION]
    assert [one.phrases[0].spoken for one in told] == [False, False, True]


def test_reports_in_chinese_tell_the_timeline_in_chinese_and_keep_the_sentence(store: Path) -> None:
    with Archive.open(store) as archive:
        one = incident_of(archive, archive.decision("d-held"), now=at(120), shown=PromptsShown.FULL)
    page, text = incident_html(one, "zh"), incident_markdown(one, "zh")
    detail = "1 of 2 is isolated already, and 1 is allowed"
    assert f'反对理由：被隔离的节点会过多<small class="detail" lang="en">{detail}</small>' in page
    assert f"反对理由：被隔离的节点会过多：{detail}" in text
    assert f"；被隔离的节点会过多：{detail} |" in text
    assert "因超出限值；平均 KL 0.0900（严重限值 0.0500）" in page
    assert "因超出限值；平均 KL 0.0900（严重限值 0.0500）：" in text
    assert "told:" not in page
    assert "ruled" not in text
    assert f"{detail}</small>" not in incident_html(one, "en")
    assert "<script>alert" not in page


def test_a_sentence_is_escaped_wherever_it_is_marked_as_english(store: Path) -> None:
    with Archive.open(store) as archive:
        one = incident_of(archive, archive.decision("d-1"), now=at(120), shown=PromptsShown.FULL)
    evil = change(Axis.QUALITY, EVIL, EVIL, task_set=EVIL)
    hostile = replace(one, headline=EVIL, timeline=events(changes=[replace(evil, reason=EVIL, target=EVIL)]))
    for language in ("en", "zh"):
        page = incident_html(hostile, language)
        assert EVIL not in page
        assert "&lt;" in page
