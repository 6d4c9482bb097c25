"""Golden tokens as people see them: steps, lists side by side, and text that cannot deceive."""

import math

import pytest

from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.tokens import Candidate, PromptSeen, TokenSeen, TokensSeen
from quantwatch.pages.tokens import BROKEN, STEPS, WORST, Choice, Place, shown, step_of, token_view
from quantwatch.pages.view import chance, moved
from support.incidents import prompt_seen, texts, tokens_seen


def seen(token: TokenSeen, **more: object) -> Place:
    """One position as it is shown."""
    prompt = PromptSeen("p", ProbeMode.ONE_TOKEN, 3, 0.1, 0.1, (token,))
    return token_view(TokensSeen((prompt,), 1, **more)).prompts[0].places[0]  # type: ignore[arg-type]


def listed(*shares: tuple[int, float]) -> tuple[Candidate, ...]:
    return tuple(Candidate(key, math.log(share)) for key, share in shares)


def by_id(place: Place) -> dict[int, Choice]:
    return {one.id: one for one in place.choices}


EDGES = [(0.0, 0), (0.0099, 0), (0.01, 1), (0.05, 2), (0.2, 3), (1.0, 4), (50.0, 4)]


@pytest.mark.parametrize(("kl", "step"), EDGES)
def test_a_step_begins_at_its_edge(kl: float, step: int) -> None:
    assert step_of(kl) == step


@pytest.mark.parametrize("kl", [None, math.nan, math.inf])
def test_what_is_no_number_is_broken(kl: float | None) -> None:
    assert step_of(kl) == BROKEN


def test_there_are_five_steps() -> None:
    assert len(STEPS) + 1 == 5
    assert list(STEPS) == sorted(STEPS)


def test_both_lists_are_joined_by_token_the_most_probable_first() -> None:
    token = TokenSeen(
        7, 5, 0.3, math.log(0.6), math.log(0.2), listed((5, 0.6), (9, 0.3)), listed((8, 0.7), (5, 0.2)), 0, 0
    )
    place = seen(token)

    assert [one.id for one in place.choices] == [8, 5, 9]
    five = by_id(place)[5]
    assert (five.golden, five.baseline_rank, five.node_rank) == (True, 1, 2)
    assert (five.baseline, five.node, five.moved) == pytest.approx((0.6, 0.2, -0.4))
    eight = by_id(place)[8]
    assert (eight.baseline, eight.baseline_rank) == (None, None)
    assert eight.at_most == pytest.approx(0.3)  # the least that the baseline lists
    assert place.shifted == pytest.approx((0.7 + 0.4 + 0.3) / 2)
    assert (place.elsewhere_baseline, place.elsewhere_node) == pytest.approx((0.1, 0.1))


def test_a_golden_token_that_nobody_lists_is_shown_all_the_same() -> None:
    token = TokenSeen(7, 5, 0.3, math.log(0.01), None, listed((9, 0.9)), listed((9, 0.8)), 0, 0)
    five = by_id(seen(token))[5]
    assert (five.golden, five.node, five.baseline_rank) == (True, None, None)
    assert five.baseline == pytest.approx(0.01)
    assert five.at_most == pytest.approx(0.8)


def test_the_golden_token_is_among_the_first_whatever_its_rank() -> None:
    token = TokenSeen(7, 5, 0.3, math.log(0.01), None, listed((9, 0.6), (8, 0.3)), listed((9, 0.8)), 0, 0)
    assert [one.id for one in seen(token).first(2)] == [9, 5]
    assert [one.id for one in seen(token).first(3)] == [9, 8, 5]


def test_broken_numbers_leave_the_node_without_a_list() -> None:
    token = TokenSeen(7, 5, None, -0.1, None, listed((5, 0.9)), (), 0, 1, mark="non_finite: 1 of 2")
    place = seen(token)
    assert (place.step, place.kl, place.mark) == (BROKEN, None, "non_finite: 1 of 2")
    assert chance(by_id(place)[5].node, by_id(place)[5].at_most) == "–"


def test_a_probability_never_exceeds_one() -> None:
    token = TokenSeen(7, 5, 0.0, 1e-7, 1e-7, (Candidate(5, 1e-7),), (Candidate(5, 1e-7),), 0, 0)
    assert by_id(seen(token))[5].baseline == 1.0


def test_text_stands_where_it_is_known_and_the_id_elsewhere() -> None:
    token = TokenSeen(7, 5, 0.0, -0.1, -0.1, listed((5, 0.9), (6, 0.1)), listed((5, 0.9)), 0, 0)
    place = seen(token, texts={5: " the"})
    assert (place.label, by_id(place)[6].text) == (" the", "#6")
    assert seen(token).label == "#5"


TEXTS = [
    ("a\nb", "a\u21b5b"),
    ("a\r\nb", "a\u21b5b"),
    ("\tx", "\u21e5x"),
    ("\u202eevil", "\\u202eevil"),
    ("\x00\x1b[31m", "\\u0000\\u001b[31m"),
    ("\u200b", "\\u200b"),
    ("\ud800", "\\ud800"),
    ("高 é", "高 é"),
]


@pytest.mark.parametrize(("text", "looks"), TEXTS)
def test_what_cannot_be_seen_is_made_visible(text: str, looks: str) -> None:
    assert shown(text) == looks


def test_a_line_of_the_text_ends_where_it_says_so() -> None:
    assert shown("a\n\n", breaks=True) == "a\u21b5\n\u21b5\n"


def test_the_worst_positions_stand_first_and_broken_ones_before_them() -> None:
    prompt = token_view(tokens_seen(texts=texts())).prompts[0]
    assert len(prompt.worst) == WORST
    assert prompt.worst[0].step == BROKEN
    kls = [one.kl or 0.0 for one in prompt.worst[1:]]
    assert kls == sorted(kls, reverse=True)


def test_a_gap_tells_how_many_positions_were_not_asked() -> None:
    places = token_view(TokensSeen((prompt_seen("p"),), 1)).prompts[0].places
    assert [one.gap for one in places if one.gap] == [3]


def test_no_more_prompts_are_shown_than_wanted() -> None:
    view = token_view(tokens_seen(), most=2)
    assert ([one.id for one in view.prompts], view.measured, view.texts) == (["math-03", "math-11"], 23, False)


def test_a_prompt_without_a_usable_position_has_no_mean() -> None:
    prompt = PromptSeen("p", ProbeMode.FIRST_TOKEN, 3, math.nan, math.nan, ())
    assert token_view(TokensSeen((prompt,), 1)).prompts[0].kl_mean is None


SHARES = [(0.972, 0.0, "97.2 %"), (1.0, 0.0, "100.0 %"), (0.0, 0.0, "0.0 %"), (0.0002, 0.0, "< 0.1 %")]
BOUNDS = [(None, 0.02, "≤ 2.0 %"), (None, 0.0004, "≤ 0.04 %"), (None, 1.0, "–")]


@pytest.mark.parametrize(("value", "at_most", "said"), [*SHARES, *BOUNDS])
def test_a_probability_is_told_in_percent(value: float | None, at_most: float, said: str) -> None:
    assert chance(value, at_most) == said


@pytest.mark.parametrize(("value", "said"), [(0.93, "+93.0"), (-0.025, "−2.5"), (0.0001, "±0")])
def test_what_moved_is_told_in_points(value: float, said: str) -> None:
    assert moved(value) == said
