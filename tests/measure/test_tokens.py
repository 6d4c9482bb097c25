"""Which tokens are kept of a run: numbers by hand, the right rows at the right positions, and how much at the most."""

import math
from array import array
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quantwatch.flow.distribution import NO_ID, Distribution, Mark, MarkKind
from quantwatch.flow.divergence import Evidence
from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.tokens import Candidate
from quantwatch.measure.compare import Pair, Scope, measure, position_kl, position_values
from quantwatch.measure.tokens import LONGEST, tokens_seen
from support.recordings import distributions, pairs, scored

Row = tuple[list[int], list[float], float]

HALVES: Row = ([100, 101], [0.5, 0.5], 0.5)
SKEWED: Row = ([101, 100], [0.1, 0.9], 0.9)
KL_SKEWED = 0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1)
PROMPT = 2
"""Ids before the first position that counts."""


def side(rows: list[Row], *, prompt_id: str = "a", first: int = PROMPT) -> Distribution:
    """What a server says from position `first` on, two tokens each; the golden one is 100."""
    ids, logprobs = array("q"), array("d")
    for listed, shares, _ in rows:
        ids.extend([*listed, NO_ID])
        logprobs.extend([*map(math.log, shares), 0.0])
    actual = array("d", [math.log(own) for _, _, own in rows])
    floor = array("d", [math.log(min(shares)) for _, shares, _ in rows])
    positions = array("q", range(first, first + len(rows)))
    return Distribution(prompt_id, ProbeMode.PROMPT_SCORING, 2, PROMPT, positions, ids, logprobs, actual, floor)


def pair(ours: list[Row], theirs: list[Row], *, prompt_id: str = "a", first: int = PROMPT) -> Pair:
    both = side(ours, prompt_id=prompt_id, first=first), side(theirs, prompt_id=prompt_id, first=first)
    return Pair(*both, sequence=(7,) * PROMPT + (100,) * 1000)


def marked(one: Distribution, *rows: int) -> Distribution:
    """The same with broken rows, as the reply's reader leaves them: nothing is listed there."""
    ids, logprobs, actual = array("q", one.ids), array("d", one.logprobs), array("d", one.actual)
    for row in rows:
        for column in range(row * one.width, (row + 1) * one.width):
            ids[column], logprobs[column] = NO_ID, 0.0
        actual[row] = math.nan
    marks = tuple(Mark(row, MarkKind.NON_FINITE, "2 of 2 values not finite") for row in rows)
    return replace(one, ids=ids, logprobs=logprobs, actual=actual, marks=marks)


def test_one_position_by_hand() -> None:
    seen = tokens_seen([pair([HALVES], [SKEWED])], scope=Scope.CONTINUATION)

    (prompt,) = seen.prompts
    (token,) = prompt.tokens
    assert (seen.measured, seen.texts) == (1, {})
    assert (prompt.prompt_id, prompt.mode, prompt.prompt_length) == ("a", ProbeMode.PROMPT_SCORING, PROMPT)
    assert prompt.kl_mean == prompt.kl_max == token.kl == pytest.approx(KL_SKEWED, abs=1e-6)
    assert (token.position, token.id, token.mark) == (2, 100, None)
    assert token.logprob_baseline == math.log(0.5)
    assert token.logprob_node == math.log(0.9)
    assert token.baseline == (Candidate(100, math.log(0.5)), Candidate(101, math.log(0.5)))
    assert token.node == (Candidate(100, math.log(0.9)), Candidate(101, math.log(0.1)))
    assert token.tail_baseline == pytest.approx(0.0, abs=1e-12)


def test_lists_are_cut_and_the_tail_is_of_the_whole_list() -> None:
    thin: Row = ([101, 100], [0.25, 0.5], 0.5)

    (prompt,) = tokens_seen([pair([thin], [thin])], scope=Scope.CONTINUATION, width=1).prompts

    assert prompt.tokens[0].node == (Candidate(100, math.log(0.5)),)
    assert prompt.tokens[0].tail_node == pytest.approx(0.25)


def test_a_golden_token_that_a_server_did_not_list_has_no_logprob() -> None:
    unlisted = replace(side([HALVES]), actual=array("d", [math.nan]))

    (prompt,) = tokens_seen([Pair(side([HALVES]), unlisted, sequence=(7, 7, 100))], scope=Scope.CONTINUATION).prompts

    assert prompt.tokens[0].logprob_node is None
    assert prompt.tokens[0].kl == 0.0


def test_a_broken_row_keeps_its_place_and_shifts_no_other() -> None:
    whole = pair([HALVES] * 3, [HALVES, SKEWED, SKEWED])
    broken = replace(whole, node=marked(whole.node, 1))

    (prompt,) = tokens_seen([broken], scope=Scope.CONTINUATION).prompts

    assert [one.position for one in prompt.tokens] == [2, 3, 4]
    assert [one.kl for one in prompt.tokens] == [0.0, None, pytest.approx(KL_SKEWED, abs=1e-6)]
    assert [one.mark for one in prompt.tokens] == [None, "non_finite: 2 of 2 values not finite", None]
    assert (prompt.tokens[1].node, prompt.tokens[1].tail_node, prompt.tokens[1].logprob_node) == ((), 1.0, None)
    assert len(prompt.tokens[1].baseline) == 2
    assert prompt.kl_mean == pytest.approx(KL_SKEWED / 2, abs=1e-6)
    assert prompt.kl_max == pytest.approx(KL_SKEWED, abs=1e-6)


def test_a_prompt_of_broken_rows_alone_has_no_mean_and_comes_first() -> None:
    far = pair([HALVES], [SKEWED])
    whole = pair([HALVES] * 2, [HALVES] * 2, prompt_id="b")
    broken = replace(whole, node=marked(whole.node, 0, 1))

    first, second = tokens_seen([far, broken], scope=Scope.CONTINUATION).prompts

    assert (first.prompt_id, second.prompt_id) == ("b", "a")
    assert math.isnan(first.kl_mean)
    assert math.isnan(first.kl_max)


def test_where_the_baseline_is_broken_nothing_is_shown() -> None:
    whole = pair([HALVES] * 2, [SKEWED] * 2)
    broken = replace(whole, baseline=marked(whole.baseline, 0))

    (prompt,) = tokens_seen([broken], scope=Scope.CONTINUATION).prompts

    assert [one.position for one in prompt.tokens] == [3]


def test_positions_of_the_prompt_count_only_where_all_do() -> None:
    asked = pair([HALVES, HALVES], [SKEWED, HALVES], first=PROMPT - 1)

    (prompt,) = tokens_seen([asked], scope=Scope.CONTINUATION).prompts
    (whole,) = tokens_seen([asked], scope=Scope.ALL).prompts

    assert [(one.position, one.id, one.kl) for one in prompt.tokens] == [(2, 100, 0.0)]
    assert [(one.position, one.id) for one in whole.tokens] == [(1, 7), (2, 100)]
    assert whole.kl_max == pytest.approx(KL_SKEWED, abs=1e-6)


def test_a_prompt_without_positions_in_scope_is_measured_and_not_shown() -> None:
    outside = pair([HALVES], [SKEWED], first=0)

    seen = tokens_seen([outside], scope=Scope.CONTINUATION)

    assert (seen.prompts, seen.measured) == ((), 1)


def test_the_worst_prompts_come_first_and_each_once() -> None:
    calm, far = pair([HALVES], [HALVES]), pair([HALVES], [SKEWED], prompt_id="b")
    near = pair([HALVES] * 2, [HALVES, SKEWED], prompt_id="c")

    seen = tokens_seen([calm, far, calm, near, far], scope=Scope.CONTINUATION, prompts=2)

    assert [one.prompt_id for one in seen.prompts] == ["b", "c"]
    assert seen.measured == 3


def test_a_prompt_bad_throughout_comes_before_one_bad_token() -> None:
    """What counts is a prompt's part in the run's mean, which is over positions."""
    one_token = pair([HALVES], [SKEWED])
    throughout = pair([HALVES] * 3, [HALVES, SKEWED, SKEWED], prompt_id="b")

    first, second = tokens_seen([one_token, throughout], scope=Scope.CONTINUATION).prompts

    assert (first.prompt_id, second.prompt_id) == ("b", "a")
    assert first.kl_mean < second.kl_mean


def test_of_no_pairs_nothing_is_seen() -> None:
    assert tokens_seen([], scope=Scope.CONTINUATION).measured == 0


@pytest.mark.parametrize("known", [(), (7, 7)])
def test_golden_tokens_must_be_known(known: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="a: which token stands at 2 is not known"):
        tokens_seen([replace(pair([HALVES], [SKEWED]), sequence=known)], scope=Scope.CONTINUATION)


@settings(max_examples=25)
@given(length=st.integers(1, 700), data=st.data())
def test_the_window_is_full_in_bounds_and_holds_the_worst(length: int, data: st.DataObject) -> None:
    worst = data.draw(st.integers(0, length - 1))
    theirs = [HALVES] * length
    theirs[worst] = SKEWED

    (prompt,) = tokens_seen([pair([HALVES] * length, theirs)], scope=Scope.CONTINUATION).prompts

    positions = [one.position for one in prompt.tokens]
    assert len(positions) == min(length, LONGEST)
    assert positions == list(range(positions[0], positions[0] + len(positions)))
    assert positions[0] >= PROMPT
    assert positions[-1] < PROMPT + length
    (far,) = [one for one in prompt.tokens if one.kl]
    assert (far.position, far.kl) == (PROMPT + worst, prompt.kl_max)
    assert prompt.kl_mean == pytest.approx(KL_SKEWED / length, abs=1e-6)


def test_the_window_holds_a_broken_position_before_a_bad_one() -> None:
    theirs = [HALVES] * 600
    theirs[10] = SKEWED
    whole = pair([HALVES] * 600, theirs)

    (prompt,) = tokens_seen([replace(whole, node=marked(whole.node, 500))], scope=Scope.CONTINUATION).prompts

    assert [one.position for one in prompt.tokens if one.mark] == [PROMPT + 500]
    assert prompt.tokens[-1].position == PROMPT + 599


@pytest.mark.parametrize("scope", Scope)
def test_recorded_servers_have_the_numbers_of_the_report_at_their_positions(scope: Scope) -> None:
    recorded = pairs("int4-w4g64")

    seen = tokens_seen(recorded, scope=scope, prompts=5, width=20)

    whole = measure(recorded, scope=scope, evidence=Evidence.CENSUS)
    kls = [one.kl for prompt in seen.prompts for one in prompt.tokens if one.kl is not None]
    assert len(kls) == whole.positions
    assert math.fsum(kls) / len(kls) == pytest.approx(whole.kl_mean.value, rel=1e-9)
    assert max(one.kl_max for one in seen.prompts) == whole.kl_max
    sequences = {one.prompt_id: one for one, _ in scored("int4-w4g64")}
    nodes = {one.prompt_id: one for one in distributions("int4-w4g64")}
    for prompt in seen.prompts:
        node = nodes[prompt.prompt_id]
        for one in prompt.tokens:
            row = list(node.positions).index(one.position)
            listed = dict(zip(node.top_ids()[row], node.logprobs[row * node.width :], strict=False))
            assert one.id == sequences[prompt.prompt_id].ids[one.position]
            assert one.logprob_node == node.actual[row]
            assert {each.id: each.logprob for each in one.node} == listed
            assert [each.logprob for each in one.node] == sorted((each.logprob for each in one.node), reverse=True)


def test_kl_alone_is_that_of_all_numbers() -> None:
    recorded = pairs("int8-w8a8-outlier")
    broken = [replace(one, node=replace(one.node, marks=(Mark(20, MarkKind.UNIFORM, ""),))) for one in recorded]

    values = position_values(broken, Scope.CONTINUATION)

    alone = position_kl(broken, Scope.CONTINUATION)
    assert [one.tolist() for one in alone] == [values.kl[values.clusters == i].tolist() for i in range(len(broken))]
