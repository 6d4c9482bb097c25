"""Limits out of a healthy node, and the configuration that the daemon of the demo runs with."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from quantwatch.config.limits import limits_for
from quantwatch.config.load import load_settings
from quantwatch.demo.limits import CRITICAL, LEAST_DISAGREEMENT, LEAST_KL, LEAST_LOG_RATIO, WARN, limits_from
from quantwatch.demo.plan import (
    FAST,
    FULL,
    PROMPTS,
    Addresses,
    Size,
    configuration,
    write_configuration,
    write_task_sets,
)
from quantwatch.flow.decision import PoolMode
from quantwatch.flow.divergence import Divergence, Estimate
from quantwatch.flow.verdict import Interval, Limit, Metric, Quality
from quantwatch.judge.threshold import LEAST_PROMPTS, findings
from quantwatch.prompts.draw import distinct, draw
from quantwatch.prompts.load import load_set, shipped_sets
from support.stored import divergence

AT = Addresses(
    "http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3", "http://127.0.0.1:4", "http://127.0.0.1:5"
)


def healthy(
    kl: tuple[float, float] = (0.01, 0.02),
    ratio: tuple[float, float] = (0.98, 1.01),
    top1: tuple[float, float] = (0.9, 0.96),
) -> Divergence:
    def estimate(low: float, high: float) -> Estimate:
        return Estimate((low + high) / 2, Interval(low, high))

    return replace(
        divergence(), kl_mean=estimate(*kl), perplexity_ratio=estimate(*ratio), top1_agreement=estimate(*top1)
    )


def test_limits_are_multiples_of_the_far_end_of_the_interval() -> None:
    got = limits_from(healthy())

    assert got["kl_mean"] == {"warn": pytest.approx(WARN * 0.02), "critical": pytest.approx(CRITICAL * 0.02)}
    far = abs(math.log(0.98))  # farther from 1 than 1.01 is
    assert got["perplexity_ratio"]["critical"] == pytest.approx(math.exp(CRITICAL * far), rel=1e-3)
    assert got["top1_agreement"] == {
        "warn": pytest.approx(1 - WARN * 0.1),
        "critical": pytest.approx(1 - CRITICAL * 0.1),
    }


def test_a_node_like_its_baseline_gets_limits_with_room() -> None:
    got = limits_from(healthy((0.0, 0.0), (1.0, 1.0), (1.0, 1.0)))

    assert got["kl_mean"]["critical"] == pytest.approx(CRITICAL * LEAST_KL)
    assert got["perplexity_ratio"]["warn"] == pytest.approx(math.exp(WARN * LEAST_LOG_RATIO), rel=1e-3)
    assert got["top1_agreement"]["warn"] == pytest.approx(1 - WARN * LEAST_DISAGREEMENT)


def test_agreement_keeps_a_limit_that_can_be_fallen_under() -> None:
    got = limits_from(healthy(top1=(0.3, 0.5)))

    assert 0 < got["top1_agreement"]["critical"] <= got["top1_agreement"]["warn"] < 1


def test_without_an_interval_the_value_itself_counts() -> None:
    one = replace(healthy(), kl_mean=Estimate(0.03))

    assert limits_from(one)["kl_mean"]["warn"] == pytest.approx(WARN * 0.03)


def test_the_node_that_the_limits_come_from_is_within_them() -> None:
    one = healthy()
    limits = {Metric(name): Limit(**pair) for name, pair in limits_from(one).items()}

    assert {finding.quality for finding in findings(one, limits)} == {Quality.OK}


@pytest.mark.parametrize("size", [FULL, FAST])
def test_the_daemon_takes_the_written_configuration(size: Size, tmp_path: Path) -> None:
    written = {name: limits_from(healthy()) for name in size.task_sets}
    pools = write_task_sets(size, tmp_path)
    path = tmp_path / "quantwatch.yaml"
    write_configuration(path, configuration(size, AT, written))

    settings = load_settings(path, shipped=shipped_sets())

    assert settings.pools["chat"].mode is PoolMode.ENFORCE
    assert settings.pools["chat"].fallback == "baseline"
    assert settings.gateway.state_url == "http://127.0.0.1:3/state"
    assert settings.server.listen == "127.0.0.1:4"
    assert set(settings.task_sets) == set(size.task_sets) == set(pools)
    for one in settings.task_sets.values():
        assert one.draw == size.draw
        assert limits_for(settings.targets[0].scheme, one.limits)[Metric.KL_MEAN].critical == pytest.approx(0.08)


@pytest.mark.parametrize("size", [FULL, FAST])
def test_the_short_prompts_are_those_of_the_shipped_sets(size: Size, tmp_path: Path) -> None:
    for name, pool in write_task_sets(size, tmp_path).items():
        whole = load_set(shipped_sets()[name])
        assert pool.prompts == tuple(one for one in whole.prompts if one.length == "short")[:PROMPTS]
        assert len(pool.prompts) == PROMPTS
        assert pool.mode is whole.mode


@pytest.mark.parametrize("size", [FULL, FAST])
def test_enough_prompts_are_drawn_to_prove_anything(size: Size, tmp_path: Path) -> None:
    for pool in write_task_sets(size, tmp_path).values():
        drawn = [len(distinct(draw(pool, size=size.draw, seed=seed))) for seed in range(500)]
        assert min(drawn) >= LEAST_PROMPTS
