"""Parts of a task set: which position belongs to which, and that their numbers are those of their positions alone."""

import math
from array import array

import pytest

from quantwatch.flow.distribution import NO_ID, Distribution
from quantwatch.flow.divergence import Dimension, Divergence, Evidence, Slice
from quantwatch.flow.prompt import ProbeMode
from quantwatch.measure.compare import Pair, Scope, measure
from quantwatch.measure.slices import Traits

PROMPT = 3
CALM, FAR = (0.5, 0.5), (0.9, 0.1)


def answer(rows: list[tuple[float, float]], prompt_id: str) -> Distribution:
    """A distribution over tokens 1 and 2 at every position after the first, k = 2; the own token is 1."""
    n = len(rows)
    logs = [[math.log(value) for value in row] for row in rows]
    return Distribution(
        prompt_id=prompt_id,
        mode=ProbeMode.PROMPT_SCORING,
        k=2,
        prompt_length=PROMPT,
        positions=array("q", range(1, n + 1)),
        ids=array("q", [1, 2, NO_ID] * n),
        logprobs=array("d", [value for row in logs for value in (*row, 0.0)]),
        actual=array("d", [row[0] for row in logs]),
        floor=array("d", [min(row) for row in logs]),
    )


def pair(far: set[int], *, length: int = 90, prompt_id: str = "p", traits: Traits | None = None) -> Pair:
    """Both sides calm, but for the node at the positions given."""
    rows = [FAR if position in far else CALM for position in range(1, length + 1)]
    return Pair(answer([CALM] * length, prompt_id), answer(rows, prompt_id), traits=traits or Traits())


def measured(*pairs: Pair, scope: Scope = Scope.CONTINUATION, level: float = 0.95) -> Divergence:
    return measure(pairs, scope=scope, evidence=Evidence.DRAW, level=level)


def part(divergence: Divergence, dimension: Dimension, value: str) -> Slice:
    (found,) = (one for one in divergence.slices if (one.dimension, one.value) == (dimension, value))
    return found


KL = 0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1)


@pytest.mark.parametrize(
    ("position", "depth"),
    [
        (PROMPT, "early"),
        (PROMPT + 15, "early"),
        (PROMPT + 16, "middle"),
        (PROMPT + 63, "middle"),
        (PROMPT + 64, "late"),
    ],
)
def test_depth_is_counted_from_the_first_token_of_the_answer(position: int, depth: str) -> None:
    got = measured(pair({position}))
    hit = {one.value for one in got.slices if one.dimension is Dimension.DEPTH and one.kl_mean.value > 0.001}
    assert hit == {depth}


def test_prompt_positions_belong_to_no_depth() -> None:
    got = measured(pair({1, 2}), scope=Scope.ALL)
    assert sum(one.positions for one in got.slices) == 88
    assert got.positions == 90


def test_language_and_length_are_those_of_the_prompt() -> None:
    chinese = pair(set(range(1, 91)), prompt_id="z", traits=Traits(language="zh", length="short"))
    english = [pair(set(), prompt_id=f"e{i}", traits=Traits(language="en", length="long")) for i in range(2)]
    got = measured(chinese, *english)

    bad, good = part(got, Dimension.LANGUAGE, "zh"), part(got, Dimension.LANGUAGE, "en")
    assert bad.kl_mean.value == pytest.approx(KL, abs=1e-5)
    assert good.kl_mean.value == pytest.approx(0, abs=1e-5)
    assert (bad.prompts, bad.distinct_prompts, bad.positions) == (1, 1, 88)
    assert (good.prompts, good.distinct_prompts, good.positions) == (2, 2, 176)
    assert bad.perplexity_ratio.value == pytest.approx(0.5 / 0.9)
    assert good.perplexity_ratio.value == pytest.approx(1)
    assert part(got, Dimension.LENGTH, "short").positions == 88


def test_a_prompt_drawn_twice_counts_twice_in_its_part() -> None:
    twice = pair(set(), traits=Traits(language="en"))
    got = part(measured(twice, twice), Dimension.LANGUAGE, "en")
    assert (got.prompts, got.distinct_prompts) == (2, 1)


def test_protocol_tokens_are_told_from_all_others() -> None:
    got = measured(pair({PROMPT + 5}, traits=Traits(protocol=frozenset({1, PROMPT + 5}))))
    yes, no = part(got, Dimension.PROTOCOL, "yes"), part(got, Dimension.PROTOCOL, "no")
    assert (yes.positions, no.positions) == (1, 87)
    assert yes.kl_mean.value == pytest.approx(KL, abs=1e-5)
    assert no.kl_mean.value == pytest.approx(0, abs=1e-5)


def test_what_is_not_known_of_a_prompt_makes_no_part() -> None:
    assert {one.dimension for one in measured(pair(set())).slices} == {Dimension.DEPTH}


def test_agreement_of_a_part_is_of_its_positions_alone() -> None:
    swapped = Pair(answer([(0.6, 0.4)] * 40, "p"), answer([(0.4, 0.6)] * 20 + [(0.6, 0.4)] * 20, "p"))
    got = measured(swapped)
    assert part(got, Dimension.DEPTH, "early").top1_agreement.value == 0
    assert part(got, Dimension.DEPTH, "middle").top1_agreement.value == pytest.approx(20 / 22)


def test_every_interval_has_the_level_asked_for() -> None:
    pairs = [pair(set(range(10 * i)), prompt_id=f"p{i}", traits=Traits(language="en")) for i in range(5)]
    wide, narrow = measured(*pairs, level=0.999), measured(*pairs, level=0.9)
    for one, other in zip((wide, *wide.slices), (narrow, *narrow.slices), strict=True):
        for name in ("kl_mean", "perplexity_ratio", "top1_agreement"):
            broad, slim = getattr(one, name).interval, getattr(other, name).interval
            assert (broad.level, slim.level) == (0.999, 0.9)
            assert (broad.low, broad.high) == (slim.low, slim.high) or broad.low < slim.low
