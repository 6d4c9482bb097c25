"""Cycles over tiny nodes: levels against the baseline, noise of servers against themselves, what forbids a limit."""

from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from quantwatch.clock import Clock
from quantwatch.config.limits import Scheme, limits_for
from quantwatch.config.schema import ProbeSettings
from quantwatch.flow.calibration import Calibrated, Noise, SetCalibration
from quantwatch.flow.prompt import LengthBucket, ProbeMode, Prompt, PromptSet
from quantwatch.flow.verdict import Metric
from quantwatch.flows.calibrate import Calibration, Means, Wanted
from quantwatch.flows.calibrated import Manner, calibrated
from quantwatch.flows.plan import Progress
from quantwatch.flows.watched import Watched, WatchedSet
from quantwatch.net import Endpoint
from quantwatch.wiring import prober
from quantwatch.wiring.tools import Tools
from support.builders import FakeClock, answering
from support.builders import prober as builders_prober
from support.calibrating import TEXTS, CachingNode, healthy, unstable
from support.tiny_node import Network, TinyNode

POOL = PromptSet(
    "letters",
    "for tests",
    tuple(Prompt(f"letters-{i}", "en", LengthBucket.SHORT, ("x",), text=text) for i, text in enumerate(TEXTS)),
    digest="d" * 64,
)
SHIPPED = {scheme.value: limits_for(scheme) for scheme in Scheme}


def watched(name: str, asked: Any, *, mode: ProbeMode = ProbeMode.PROMPT_SCORING) -> Watched:
    one = WatchedSet(
        name="letters",
        prompts=POOL,
        mode=mode,
        k=5,
        draw=12,
        continuation_tokens=16,
        positions=6,
        confirm_cycles=2,
        period_seconds=60,
        act_on=frozenset(),
        limits=limits_for(Scheme.INT8),
    )
    return Watched(name, "int8", "p", name, asked, {"letters": one})


async def calibrate(
    cache: Path,
    *,
    baseline: TinyNode | None = None,
    cycles: int = 4,
    mode: ProbeMode = ProbeMode.PROMPT_SCORING,
    told: list[Progress] | None = None,
    parts: bool = False,
    ranks: int = 1,
    timeout_seconds: float = 60.0,
    **nodes: TinyNode,
) -> Calibrated:
    network = Network(baseline=baseline or TinyNode(), **nodes)
    clock: Clock = FakeClock()
    tools = Tools(clock, Random(1), network)
    probe = ProbeSettings.model_validate({"patience": "1ms"})
    async with AsyncExitStack() as stack:
        asked = {
            name: await prober(
                stack,
                Endpoint(name, f"http://{name}"),
                None,
                probe=probe,
                tools=tools,
                ranks=1 if name == "baseline" else ranks,
            )
            for name in ("baseline", *nodes)
        }
        targets = [watched(name, asked[name], mode=mode) for name in nodes]
        tell = (told if told is not None else []).append
        means = Means(asked["baseline"], cache, tools.random, timeout_seconds, tell)
        calibration = Calibration(Wanted(targets, ["letters"], cycles), means)
        await calibration.run()
    return calibrated(calibration, Manner(clock.now(), 1, SHIPPED, parts=parts))


def only(whole: Calibrated) -> SetCalibration:
    (one,) = whole.sets
    return one


def reasons(one: SetCalibration) -> set[str]:
    return {proposal.reason for proposal in one.proposals if proposal.limit is None}


async def test_a_healthy_node_gets_limits_for_every_metric(tmp_path: Path) -> None:
    one = only(await calibrate(tmp_path, n1=healthy()))

    assert (one.cycles, one.unusable, one.fault, one.prompts) == (4, (), None, 10)
    assert {proposal.level.metric for proposal in one.proposals if proposal.limit is not None} == set(Metric)
    for proposal in one.proposals:
        assert len(proposal.level.cycles) == 4
        assert len({cycle.value for cycle in proposal.level.cycles}) > 1  # each cycle has a draw of its own
        assert set(proposal.level.noise) == set(Noise)


def test_a_target_is_measured_only_on_the_sets_that_judge_its_pool(tmp_path: Path) -> None:
    other = builders_prober(answering())
    first = replace(watched("a", other), sets={})
    means = Means(other, tmp_path, Random(1), 1.0)

    calibration = Calibration(Wanted([first, watched("b", other)], ["letters", "nobody's"], 2), means)

    assert {name: [one.target.name for one in found] for name, found in calibration.gathered.items()} == {
        "letters": ["b"]
    }


async def test_servers_that_repeat_themselves_to_the_bit_have_no_noise(tmp_path: Path) -> None:
    one = only(await calibrate(tmp_path, n1=healthy()))

    assert {proposal.level.noise[kind].value for proposal in one.proposals[:2] for kind in Noise} == {0.0}


async def test_the_level_of_a_worse_node_is_higher(tmp_path: Path) -> None:
    whole = await calibrate(tmp_path, n1=healthy(0.15), n2=healthy(0.3, started=1_700_000_900.0))
    good, bad = (one.proposals[0].level.pooled.value for one in whole.sets)

    assert [one.target for one in whole.sets] == ["n1", "n2"]
    assert bad > 3 * good > 0


async def test_the_baseline_is_asked_once_again_and_a_node_three_times(tmp_path: Path) -> None:
    baseline, node = TinyNode(), healthy()
    await calibrate(tmp_path, baseline=baseline, n1=node, cycles=2)
    salted = Counter(str(body["prompt"]) for body in node.completions() if "cache_salt" in body)
    plain = Counter(str(body["prompt"]) for body in node.completions() if "cache_salt" not in body)
    at_baseline = Counter(str(body["prompt"]) for body in baseline.completions())

    assert len(salted) >= 6
    assert all(times == 3 * plain[sequence] for sequence, times in salted.items())
    assert all(2 * times == 3 * at_baseline[sequence] for sequence, times in salted.items())


async def test_a_warm_answer_has_the_salt_of_its_cold_one_and_the_second_cold_one_another(tmp_path: Path) -> None:
    node = healthy()
    await calibrate(tmp_path, n1=node, cycles=2)
    salts = [body["cache_salt"] for body in node.completions() if "cache_salt" in body]

    assert all(a == b != c for a, b, c in zip(salts[::3], salts[1::3], salts[2::3], strict=True))
    assert len(set(salts)) == 2 * len(salts) // 3


async def test_the_baseline_is_asked_without_a_salt(tmp_path: Path) -> None:
    baseline = TinyNode()
    await calibrate(tmp_path, baseline=baseline, n1=healthy(), cycles=2)
    assert not [body for body in baseline.completions() if "cache_salt" in body]


@pytest.mark.parametrize("mode", [ProbeMode.PROMPT_SCORING, ProbeMode.ONE_TOKEN])
async def test_a_node_with_a_prefix_cache_is_told_apart_by_its_own_counters(tmp_path: Path, mode: ProbeMode) -> None:
    caching = CachingNode(model=healthy().model, started=1_700_000_500.0)

    assert only(await calibrate(tmp_path, n1=caching, cycles=2, mode=mode)).told_apart
    assert not only(await calibrate(tmp_path, n1=healthy(), cycles=2, mode=mode)).told_apart


async def test_a_data_parallel_rank_is_held_against_itself_and_not_against_another(tmp_path: Path) -> None:
    node = healthy(engines=2)
    one = only(await calibrate(tmp_path, n1=node, cycles=2, ranks=2))
    salted = [rank for body, rank in zip(node.asked, node.ranks, strict=True) if "cache_salt" in body]

    assert one.cycles == 2
    assert set(salted) == {"0", "1"}
    assert all(len(set(salted[i : i + 3])) == 1 for i in range(0, len(salted), 3))


async def test_an_unstable_node_gets_no_limit_on_what_is_unstable(tmp_path: Path) -> None:
    one = only(await calibrate(tmp_path, n1=unstable()))
    mean = one.proposals[0]

    assert mean.limit is None
    assert "unstable" in mean.reason


async def test_a_node_with_broken_numbers_gets_no_limit(tmp_path: Path) -> None:
    one = only(await calibrate(tmp_path, n1=healthy(nan_on=lambda ids: len(ids) % 3 == 0)))

    assert one.fault is not None
    assert one.fault.startswith("broken numbers: ")
    assert all("must not become the new normal" in reason for reason in reasons(one))
    assert not [proposal for proposal in one.proposals if proposal.limit is not None]


async def test_a_node_far_beyond_the_shipped_limits_gets_none(tmp_path: Path) -> None:
    one = only(await calibrate(tmp_path, n1=healthy(1.5)))

    assert one.fault is None
    assert one.proposals[0].limit is None
    assert "look at this node first" in one.proposals[0].reason


async def test_a_node_that_restarts_meanwhile_gets_no_limit(tmp_path: Path) -> None:
    node = healthy()

    def restart(reply: dict[str, Any]) -> dict[str, Any]:
        node.started += 1.0 if len(node.asked) == 80 else 0.0
        return reply

    node.edit = restart
    one = only(await calibrate(tmp_path, n1=node))

    assert len(node.asked) == 80  # a node that restarts under probes is asked nothing more
    assert reasons(one) == {"3 usable cycles; 4 are the least"}


async def test_a_wrong_key_stops_the_calibration_at_once(tmp_path: Path) -> None:
    node = healthy(api_key="secret")
    whole = await calibrate(tmp_path, n1=node)

    assert not whole.complete
    assert whole.trouble is not None
    assert "401" in whole.trouble
    assert only(whole).proposals == ()
    assert len(only(whole).unusable) == 1


async def test_a_node_that_is_down_leaves_every_cycle_out_with_the_reason(tmp_path: Path) -> None:
    one = only(await calibrate(tmp_path, n1=healthy(waiting=5), cycles=2))

    assert one.cycles == 0
    assert len(one.unusable) == 2
    assert "load gate" in one.unusable[0]


async def test_a_node_compared_with_itself_is_refused_as_ever(tmp_path: Path) -> None:
    """Self-comparisons are made of one server's answers; they open no way round the handshake."""
    one = only(await calibrate(tmp_path, n1=healthy(0.0, started=TinyNode().started), cycles=2))

    assert one.cycles == 0
    assert "same server" in one.unusable[0]


async def test_a_cycle_that_takes_too_long_is_left_out(tmp_path: Path) -> None:
    one = only(await calibrate(tmp_path, n1=healthy(), cycles=2, timeout_seconds=0.0))

    assert one.cycles == 0
    assert one.unusable == ("nothing was asked before the run ended",) * 2


async def test_progress_goes_on_to_the_end(tmp_path: Path) -> None:
    told: list[Progress] = []
    await calibrate(tmp_path, n1=healthy(), cycles=2, told=told)
    done = [at.done for at in told]

    assert done == sorted(done)
    assert told[-1].done == told[-1].total == max(done)
    assert {at.total for at in told} == {told[-1].total}
    assert "cycle 2/2: letters, again" in {at.doing for at in told}


async def test_distributions_are_kept_from_the_quietest_to_the_limits(tmp_path: Path) -> None:
    one = only(await calibrate(tmp_path, n1=healthy(), cycles=2))

    assert [spread.name for spread in one.spreads] == [
        *("baseline again", "node again, cold", "node again, warm", "node, positions", "node, prompts")
    ]
    assert one.spreads[0].zeros == one.spreads[0].total > 0
    assert one.spreads[3].total == one.positions
    assert one.spreads[4].total == one.prompts


async def test_parts_get_limits_of_their_own_where_they_are_wanted(tmp_path: Path) -> None:
    one = only(await calibrate(tmp_path, n1=healthy(), parts=True))
    parts = {found.name: found for found in one.parts}

    assert set(parts) == {"depth early", "language en", "length short"}
    assert parts["depth early"].part.prompts == one.prompts
    assert [proposal.limit is not None for proposal in parts["language en"].proposals] == [True] * 3


async def test_without_being_wanted_no_part_gets_a_limit(tmp_path: Path) -> None:
    assert only(await calibrate(tmp_path, n1=healthy(), cycles=2)).parts == ()
