"""docs/runbook.md has a section for everything that can be met, and names nothing that does not exist."""

import inspect
import re
from functools import cache
from pathlib import Path

import pytest

from quantwatch import errors
from quantwatch.cli import exit_codes
from quantwatch.errors import QuantwatchError
from quantwatch.expose import metrics
from quantwatch.expose.metrics import PREFIX, Series
from quantwatch.flow.decision import Brake, Result
from quantwatch.flow.verdict import Quality
from support.monitoring import alerts
from support.monitoring import flat as joined
from support.told import Message, messages, said

DOCS = Path(__file__).resolve().parents[2] / "docs"
TEXT = (DOCS / "runbook.md").read_text(encoding="utf-8")
PROMQL = re.compile(r"```promql\n(.*?)```", re.DOTALL)
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
HEADING = re.compile(r"^#{2,4} (.+)$", re.MULTILINE)


def expressions(text: str) -> list[str]:
    lines = [line for block in PROMQL.findall(text) for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def sections() -> list[str]:
    return HEADING.findall(TEXT)


def slug(heading: str) -> str:
    """The anchor that a page of Markdown gives a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@cache
def flat() -> str:
    """The text in one line."""
    return " ".join(TEXT.split())


@cache
def quoted() -> tuple[str, ...]:
    """Pieces of messages that the runbook quotes; an ellipsis stands for what changes."""
    prose = re.sub(r"```.*?```|`[^`]*--reason[^`]*`|`\w+: \"[^`]*`", " ", TEXT, flags=re.DOTALL)
    prose = " ".join(prose.split())
    pieces = [piece.strip(" ;,:.") for quote in re.findall(r'"([^"]+)"', prose) for piece in quote.split("…")]
    return tuple(piece for piece in pieces if piece)


def test_every_alert_has_its_section_and_no_other_alert_has_one() -> None:
    known = {joined(rule["expr"]) for rule in alerts().values()}
    assert len(known) > 20
    assert set(expressions(TEXT)) == known
    assert len(expressions(TEXT)) == len(known)


def test_an_alert_section_opens_with_its_expression_and_says_what_not_to_do() -> None:
    alerts = re.split(r"^#{2,3} ", TEXT, flags=re.MULTILINE)
    told = [one for one in alerts if one.startswith("Alert: ")]
    assert len(told) > 20
    assert [one.splitlines()[0] for one in told if one.split("\n\n")[1][:9] != "```promql"] == []
    for part in ("**Means:**", "**Look", "o not:**"):
        assert [one.splitlines()[0] for one in told if part not in one] == []


@pytest.mark.parametrize("brake", Brake)
def test_every_brake_has_its_section(brake: Brake) -> None:
    assert f"Brake: {brake.value}" in sections()


@pytest.mark.parametrize("quality", Quality)
def test_every_quality_has_its_section(quality: Quality) -> None:
    assert f"Quality: {quality.value}" in sections()


@pytest.mark.parametrize("result", Result)
def test_every_end_of_an_order_has_its_section(result: Result) -> None:
    assert f"Result: {result.value}" in sections()


def test_every_exit_code_has_its_section() -> None:
    codes = {value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)}
    assert len(codes) == 5
    assert {f"Exit code {code}" for code in codes} <= set(sections())


def test_every_error_has_its_section_or_its_place_in_one() -> None:
    kinds = [name for name, one in vars(errors).items() if inspect.isclass(one) and issubclass(one, QuantwatchError)]
    headings, code = " ".join(sections()).split(), set(re.findall(r"`(\w+)`", TEXT))
    assert len(kinds) > 15
    assert [name for name in kinds if name not in headings and name not in code] == []


def test_every_section_with_a_name_is_about_something_that_exists() -> None:
    enumerated = {kind.__name__: {one.value for one in kind} for kind in (Brake, Quality, Result)}
    named = [one.split(": ") for one in sections() if one.split(": ")[0] in enumerated]
    assert [name for kind, name in named if name not in enumerated[kind]] == []


def test_no_two_sections_share_an_anchor() -> None:
    anchors = [slug(one) for one in sections()]
    assert sorted(set(anchors)) == sorted(anchors)


def test_every_series_exists() -> None:
    named = set(re.findall(rf"\b{PREFIX}\w+", TEXT))
    assert len(named) > 20
    assert named <= {PREFIX + one.name for one in vars(metrics).values() if isinstance(one, Series)}


def test_every_quoted_message_is_one_of_the_product() -> None:
    assert len(quoted()) > 100
    assert [piece for piece in quoted() if not any(piece in " ".join(text.split()) for text in said())] == []


@pytest.mark.parametrize("message", messages(), ids=lambda message: message.place)
def test_every_message_is_explained(message: Message) -> None:
    """A new message needs a line in the runbook: quote some of its fixed words."""
    told = any(piece in part for piece in quoted() if len(piece) > 3 for part in message.parts)
    assert told or any(part in flat() for part in message.parts), message.parts


def test_there_are_messages() -> None:
    assert len(messages()) > 100
