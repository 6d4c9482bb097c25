"""The nouns: frozen values that say what they hold."""

import dataclasses
import importlib
import pkgutil
from array import array
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import pytest

import quantwatch.flow
from quantwatch.flow.distribution import NO_ID, Distribution
from quantwatch.flow.divergence import Estimate
from quantwatch.flow.prompt import GoldenSequence, LengthBucket, Message, ProbeMode, Prompt
from quantwatch.flow.state import Pause
from quantwatch.flow.verdict import BREACHES, CANNOT_TELL, Interval, Limit, Quality


def nouns() -> Iterator[type]:
    """Every class that flow/ declares."""
    for found in pkgutil.iter_modules(quantwatch.flow.__path__):
        module = importlib.import_module(f"quantwatch.flow.{found.name}")
        for kind in vars(module).values():
            if isinstance(kind, type) and kind.__module__ == module.__name__:
                yield kind


NOUNS = list(nouns())


def test_flow_holds_nouns() -> None:
    assert {"Prompt", "Distribution", "Divergence", "Verdict", "Report"} <= {noun.__name__ for noun in NOUNS}


@pytest.mark.parametrize("noun", NOUNS)
def test_a_noun_is_frozen_or_an_enumeration(noun: type) -> None:
    frozen = dataclasses.is_dataclass(noun) and noun.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert frozen or issubclass(noun, StrEnum)


def test_a_value_cannot_be_changed() -> None:
    limit = Limit(0.1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        limit.warn = 0.2  # type: ignore[misc]


TEXT = Prompt("p", "en", LengthBucket.SHORT, ("a",), text="one\ntwo")
TALK = Prompt("q", "en", LengthBucket.SHORT, ("a",), messages=(Message("system", "Be kind."), Message("user", "Hi!")))


def test_the_content_of_a_text_is_the_text() -> None:
    assert TEXT.content == "one\ntwo"


def test_the_content_of_a_conversation_is_all_its_turns() -> None:
    assert TALK.content == "Be kind.\nHi!"


def test_the_question_of_a_text_is_the_text() -> None:
    assert TEXT.question == "one\ntwo"


def test_the_question_of_a_conversation_is_what_was_said_last() -> None:
    assert TALK.question == "Hi!"


def test_prompts_can_be_counted_also_with_an_answer_schema() -> None:
    assert len({TEXT, dataclasses.replace(TALK, answer_schema={"type": "object"}), TEXT}) == 2


def test_the_continuation_is_what_follows_the_prompt() -> None:
    assert GoldenSequence("s", (1, 2, 3, 4), prompt_length=3).continuation == (4,)


def test_a_distribution_has_a_column_for_the_sequences_own_token() -> None:
    one = Distribution(
        prompt_id="p",
        mode=ProbeMode.ONE_TOKEN,
        k=2,
        prompt_length=1,
        positions=array("q", [1]),
        ids=array("q", [5, 6, NO_ID]),
        logprobs=array("d", [-0.1, -2.0, 0.0]),
        actual=array("d", [-0.1]),
        floor=array("d", [-2.0]),
    )
    assert (one.width, len(one)) == (3, 1)


def test_no_token_has_the_id_that_fills_gaps() -> None:
    assert NO_ID < 0


def test_an_interval_is_two_sided_at_95_percent_unless_said_otherwise() -> None:
    assert Interval(0.1, 0.2) == Interval(0.1, 0.2, level=0.95)


def test_an_estimate_may_have_no_interval() -> None:
    assert Estimate(0.5).interval is None


def test_every_quality_is_good_a_warning_a_breach_or_no_answer() -> None:
    rest = BREACHES | CANNOT_TELL
    assert rest == set(Quality) - {Quality.OK, Quality.WARN}


def test_a_breach_is_an_answer() -> None:
    assert not BREACHES & CANNOT_TELL


@pytest.mark.parametrize(("scope", "covered"), [("all", "ab"), ("pool:chat", "ab"), ("target:a", "a"), ("pool:x", "")])
@pytest.mark.parametrize("before", ["", "rollout:"])
def test_a_rollout_covers_what_a_pause_of_its_scope_covers(before: str, scope: str, covered: str) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    pause = Pause("p-1", before + scope, "x", "ada", now, now + timedelta(hours=1))
    assert "".join(name for name in "ab" if pause.covers(name, "chat", now=now)) == covered
    assert not pause.covers("a", "chat", now=now + timedelta(hours=1))
    assert pause.rollout is (before != "")
    assert pause.expects(now=now) is (before + scope == "rollout:all")
    assert not pause.expects(now=now + timedelta(hours=1))
