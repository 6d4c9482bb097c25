"""Tokens as JSON and back: nothing is lost but digits that no server computes."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.tokens import Candidate, PromptSeen, TokenSeen, TokensSeen
from quantwatch.flow.tokens_json import UNREADABLE, prompt_json, prompt_of, tokens_json

IDS = st.integers(0, 2**31 - 1)
LOGPROBS = st.floats(-100, 0)
SHARES = st.floats(0, 1)
LISTS = st.lists(st.builds(Candidate, IDS, LOGPROBS), max_size=3).map(tuple)
TOKENS = st.builds(
    TokenSeen,
    IDS,
    IDS,
    st.none() | st.floats(0, 50),
    st.none() | LOGPROBS,
    st.none() | LOGPROBS,
    LISTS,
    LISTS,
    SHARES,
    SHARES,
    st.none() | st.text(max_size=5),
)
NUMBERS = st.floats(0, 50) | st.just(math.nan)
PROMPTS = st.builds(
    PromptSeen, st.text(max_size=5), st.sampled_from(ProbeMode), IDS, NUMBERS, NUMBERS, st.lists(TOKENS).map(tuple)
)


@given(PROMPTS)
@settings(max_examples=60)
def test_a_prompt_comes_back_to_the_digits_that_are_written(one: PromptSeen) -> None:
    written = json.loads(json.dumps(prompt_json(one), allow_nan=False))

    back = prompt_of(written)

    assert prompt_json(back) == written
    assert (back.prompt_id, back.mode, back.prompt_length) == (one.prompt_id, one.mode, one.prompt_length)
    assert back.kl_mean == pytest.approx(one.kl_mean, rel=1e-4, nan_ok=True)
    for mine, theirs in zip(one.tokens, back.tokens, strict=True):
        assert (mine.position, mine.id, mine.mark) == (theirs.position, theirs.id, theirs.mark)
        assert theirs.kl == (None if mine.kl is None else pytest.approx(mine.kl, rel=1e-4))
        for ours, read in zip((*mine.baseline, *mine.node), (*theirs.baseline, *theirs.node), strict=True):
            assert read.id == ours.id
            assert read.logprob == pytest.approx(ours.logprob, abs=5.1e-5)


@pytest.mark.parametrize(
    "document",
    [[], {}, {"prompt": "x"}, {**prompt_json(PromptSeen("x", ProbeMode.ONE_TOKEN, 1, 0.0, 0.0, ())), "mode": "other"}],
)
def test_another_form_is_refused(document: object) -> None:
    with pytest.raises(UNREADABLE):
        prompt_of(document)  # type: ignore[arg-type]


def test_texts_stand_beside_the_prompts() -> None:
    assert tokens_json(TokensSeen((), 3, {5: " the", 9: "\ufffd"})) == {
        "measured": 3,
        "prompts": [],
        "texts": {"5": " the", "9": "\ufffd"},
    }
