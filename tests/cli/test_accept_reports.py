"""A release gate's evidence as JUnit XML and as Markdown: complete, valid, and harmless whatever servers said."""

import html
import io
import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from quantwatch.cli.accept_reports import junit_xml, markdown_page
from quantwatch.cli.accept_table import show
from quantwatch.flow.acceptance import (
    Acceptance,
    Answer,
    Bounded,
    Figure,
    GateKind,
    GateResult,
    GateVerdict,
    Memory,
    SetEvidence,
)
from quantwatch.flow.acceptance_json import acceptance_json, fault_of
from quantwatch.flow.identity import Identity
from quantwatch.pages.quoted import quoted

PLAN = {"file": "plan.yaml", "digest": "0123456789ab", "scheme": "int8", "seed": 7}
MEMORY = Memory(peak=3 * 2**30, after=2 * 2**30, kv_tokens=23_296)


def gate(verdict: GateVerdict, kind: GateKind = GateKind.QUALITY, reason: str = "because") -> GateResult:
    figure = Figure("P99 latency", Bounded(0.8214, 0.7), 1.0, "s")
    return GateResult("math", kind, verdict, (reason, "and so on"), (figure,))


def document(*gates: GateResult, answer: Answer = Answer.REJECT, reason: str = "because") -> dict[str, Any]:
    one = SetEvidence("math", None, None, None, None, None, MEMORY, Memory(), gates, (reason,))
    found = Acceptance(
        id="a-20260101-000000-abc123",
        started=datetime(2026, 1, 1, tzinfo=UTC),
        seconds=12.5,
        plan=PLAN,
        baseline=Identity("baseline", "http://b", "m", version=reason),
        candidate=None,
        running=None,
        sets=(one,),
        answer=answer,
        reasons=(reason,),
        complete=True,
    )
    whole = acceptance_json(found)
    assert fault_of(whole) is None
    return whole


MIXED = (
    gate(GateVerdict.PASS),
    gate(GateVerdict.FAIL, GateKind.LATENCY),
    gate(GateVerdict.CANNOT_TELL, GateKind.ERRORS),
    gate(GateVerdict.CANNOT_TELL, GateKind.MEMORY),
)


def test_every_gate_is_a_test_case_and_the_counts_agree() -> None:
    root = ET.fromstring(junit_xml(document(*MIXED)))  # noqa: S314, our own text
    (suite,) = root
    for one in (root, suite):
        assert (one.get("tests"), one.get("failures"), one.get("errors")) == ("4", "1", "2")
    cases = {case.get("name"): [child.tag for child in case] for case in suite.iter("testcase")}
    assert cases == {"quality": ["system-out"], "P99 latency": ["failure"], "errors": ["error"], "memory": ["error"]}
    assert {case.get("classname") for case in suite.iter("testcase")} == {"quantwatch.accept.math"}


def test_a_failure_tells_its_reasons() -> None:
    root = ET.fromstring(junit_xml(document(*MIXED)))  # noqa: S314, our own text
    (failure,) = root.iter("failure")
    assert failure.get("message") == "because"
    assert failure.text == "because\nand so on"


def test_the_properties_name_plan_servers_and_evidence() -> None:
    root = ET.fromstring(junit_xml(document(*MIXED)))  # noqa: S314, our own text
    found = {one.get("name"): one.get("value") for one in root.iter("property")}
    assert found["answer"] == "reject"
    assert found["plan.seed"] == "7"
    assert found["baseline.url"] == "http://b"
    assert found["evidence"] == "a-20260101-000000-abc123"
    assert str(found["evidence.digest"]).startswith("sha256:")


HOSTILE = st.text(st.characters(codec=None), max_size=80)


@given(HOSTILE)
def test_whatever_a_server_said_the_xml_is_valid(said: str) -> None:
    text = junit_xml(document(gate(GateVerdict.FAIL, reason=said), reason=said))
    root = ET.fromstring(text.encode("utf-8"))  # noqa: S314, our own text
    assert len(list(root.iter("failure"))) == 1


@pytest.mark.parametrize("code", [0x0, 0x8, 0xB, 0x1B, 0xD800, 0xFFFE, 0xFFFF])
def test_a_character_that_xml_forbids_is_replaced(code: int) -> None:
    assert "a\ufffdb" in junit_xml(document(gate(GateVerdict.FAIL, reason=f"a{chr(code)}b")))


def test_the_page_opens_with_the_answer_and_what_to_do() -> None:
    for answer, words in (
        (Answer.KEEP, ("## Release gate: keep", "the candidate may serve")),
        (Answer.REJECT, ("## Release gate: reject (roll back)", "roll the candidate back")),
        (Answer.CANNOT_TELL, ("## Release gate: cannot tell (not accepted)", "do not roll it out")),
    ):
        first, _, second = markdown_page(document(*MIXED, answer=answer)).splitlines()[:3]
        assert first == words[0]
        assert words[1] in second


def test_the_page_has_a_row_a_gate() -> None:
    rows = [line for line in markdown_page(document(*MIXED)).splitlines() if line.startswith("| math")]
    assert len(rows) == 4
    assert rows[1] == (
        "| math | P99 latency | **fail** | P99 latency 0.8214 s &#40;0.7 .. -&#41;, limit 1 | because<br>and so on |"
    )


@given(HOSTILE)
def test_nothing_a_server_said_breaks_or_acts_on_the_page(said: str) -> None:
    page = markdown_page(document(gate(GateVerdict.FAIL, reason=said), reason=said))
    (row,) = [line for line in page.split("\n") if line.startswith("| math")]
    assert row.count("|") == 6
    shown = quoted(said)
    bare = re.sub(r"&#\d+;", "", shown)
    assert not re.search(r"[\[\]()*_`\\|~]", bare.replace("<!-- -->", ""))
    assert not re.search(r"[@#](?!<!-- -->)|<(?!!-- -->)", bare)
    assert "\n" not in shown


@given(st.text(st.characters(codec="ascii", min_codepoint=32), max_size=80))
def test_nothing_a_server_said_is_lost(said: str) -> None:
    assert html.unescape(quoted(said).replace("<!-- -->", "")) == " ".join(said.replace("\x7f", " ").split())


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("@team look", "@<!-- -->team look"),
        ("see #12", "see #<!-- -->12"),
        ("<img src=x>", "&#60;img src=x&#62;"),
        ("[a](http://b)", "&#91;a&#93;&#40;http&#58;//b&#41;"),
        ("www.a.test", "www&#46;a.test"),
        ("a|b", "a&#124;b"),
        ("a\nb\u202ec", "a b c"),
    ],
)
def test_text_is_shown_and_does_nothing(said: str, shown: str) -> None:
    assert quoted(said) == shown


def test_the_terminal_ends_with_the_answer_and_shows_memory() -> None:
    console = Console(record=True, width=100, file=io.StringIO())
    show(document(*MIXED), console)
    text = console.export_text()
    assert "candidate: memory 3072 MiB at its peak, 2048 MiB after; KV cache for 23,296 tokens" in text
    assert "reject (roll back): Below the gate: roll the candidate back." in text
    assert text.rstrip().splitlines()[-1].strip() == "because"


def test_markup_in_what_a_server_said_is_shown_as_it_is() -> None:
    console = Console(record=True, width=100, file=io.StringIO())
    show(document(gate(GateVerdict.FAIL), reason="[bold]x[/nonsense]"), console)
    assert "[bold]x[/nonsense]" in console.export_text()
