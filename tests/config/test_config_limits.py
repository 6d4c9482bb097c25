"""Limits: what is impossible is refused, and the narrowest place that gives a metric decides."""

from pathlib import Path

import pytest

from quantwatch.config.limits import DEFAULT_LIMITS, LimitSettings, Scheme, limits_for
from quantwatch.config.load import load_settings
from quantwatch.config.schema import Settings
from quantwatch.errors import ConfigError, Problem
from quantwatch.flow.verdict import Limit, Metric

FILE = """\
schema: 1
baseline: {url: 'http://fp16.test:8000'}
targets: [{name: node-a, url: 'http://a.test:8000', scheme: int8, pool: llama}]
pools: {llama: {}}
task_sets:
  math:
    limits:
      METRIC:
        LIMIT
"""


def loaded(metric: str, limit: str, folder: Path) -> Settings:
    file = folder / "quantwatch.yaml"
    file.write_text(FILE.replace("METRIC", metric).replace("LIMIT", limit), encoding="utf-8")
    return load_settings(file, shipped={"math": Path("math.yaml")})


def refusal(metric: str, limit: str, folder: Path) -> Problem:
    with pytest.raises(ConfigError) as caught:
        loaded(metric, limit, folder)
    (problem,) = caught.value.problems
    return problem


WHOLE = [
    ("kl_mean", "{warn: 0.2, critical: 0.1}", "impossible limit: warn 0.2 is over critical 0.1"),
    ("kl_p99", "{warn: 2, critical: 1}", "impossible limit: warn 2 is over critical 1"),
    ("perplexity_ratio", "{warn: 1.5, critical: 1.2}", "impossible limit: warn 1.5 is over critical 1.2"),
    ("perplexity_ratio", "{warn: 1}", "impossible limit: warn 1; a ratio limit must be over 1"),
    ("perplexity_ratio", "{critical: 0.9}", "impossible limit: critical 0.9; a ratio limit must be over 1"),
    ("perplexity_ratio", "{warn: 0.5, critical: 1.2}", "impossible limit: warn 0.5; a ratio limit must be over 1"),
    ("top1_agreement", "{warn: 0.5, critical: 60%}", "impossible limit: warn 0.5 is under critical 0.6"),
]


@pytest.mark.parametrize(("metric", "limit", "words"), WHOLE)
def test_an_impossible_pair_is_refused_at_its_metric(metric: str, limit: str, words: str, tmp_path: Path) -> None:
    problem = refusal(metric, limit, tmp_path)
    assert (problem.line, problem.key) == (8, f"task_sets.math.limits.{metric}")
    assert problem.message.startswith(words)


ENDS = [
    ("kl_mean", "warn: -1", "greater than or equal to 0; found -1"),
    ("kl_p99", "critical: -0.001", "greater than or equal to 0; found -0.001"),
    ("kl_mean", "warn: .nan", "finite number; found nan"),
    ("kl_mean", "critical: high", "valid number"),
    ("top1_agreement", "warn: 120%", "a share such as 50% or 0.5 is wanted; found '120%'"),
    ("top1_agreement", "critical: 1.01", "a share such as 50% or 0.5 is wanted; found 1.01"),
    ("top1_agreement", "warn: -0.1", "a share such as 50% or 0.5 is wanted; found -0.1"),
    ("top1_agreement", "warn: .nan", "a share such as 50% or 0.5 is wanted"),
]


@pytest.mark.parametrize(("metric", "limit", "words"), ENDS)
def test_an_impossible_end_is_refused_where_it_stands(metric: str, limit: str, words: str, tmp_path: Path) -> None:
    problem = refusal(metric, limit, tmp_path)
    assert (problem.line, problem.key) == (9, f"task_sets.math.limits.{metric}.{limit.partition(':')[0]}")
    assert words in problem.message


def test_an_infinite_limit_is_refused(tmp_path: Path) -> None:
    assert "finite number" in refusal("kl_mean", "critical: .inf", tmp_path).message


POSSIBLE = [
    ("kl_mean", "{warn: 0, critical: 0}", Limit(0.0, 0.0)),
    ("kl_mean", "{critical: 0.5}", Limit(None, 0.5)),
    ("kl_p99", "{warn: 0.5}", Limit(0.5, None)),
    ("perplexity_ratio", "{warn: 1.2, critical: 1.2}", Limit(1.2, 1.2)),
    ("perplexity_ratio", "{warn: 1.0001}", Limit(1.0001, None)),
    ("top1_agreement", "{warn: 97%, critical: 0.95}", Limit(0.97, 0.95)),
    ("top1_agreement", "{warn: 0.9, critical: 90%}", Limit(0.9, 0.9)),
    ("top1_agreement", "{warn: 1, critical: 0}", Limit(1.0, 0.0)),
]


@pytest.mark.parametrize(("metric", "limit", "value"), POSSIBLE)
def test_a_possible_limit_is_kept_as_it_is(metric: str, limit: str, value: Limit, tmp_path: Path) -> None:
    settings = loaded(metric, limit, tmp_path)
    assert settings.task_sets["math"].limits.values() == {Metric(metric): value}


def test_a_metric_without_limits_is_left_out(tmp_path: Path) -> None:
    assert list(loaded("kl_mean", "{}", tmp_path).task_sets["math"].limits.values()) == [Metric.KL_MEAN]


DEFAULTS = {
    Scheme.INT8: (Limit(0.01, 0.05), Limit(0.96, 0.94), Limit(1.01, 1.02)),
    Scheme.FP8: (Limit(0.01, 0.05), Limit(0.96, 0.94), Limit(1.01, 1.02)),
    Scheme.INT4: (Limit(0.06, 0.13), Limit(0.89, 0.85), Limit(1.05, 1.08)),
}


@pytest.mark.parametrize("scheme", Scheme)
def test_the_starting_limits_are_those_of_the_design(scheme: Scheme) -> None:
    kl, top1, ratio = DEFAULTS[scheme]
    wanted = {Metric.KL_MEAN: kl, Metric.TOP1_AGREEMENT: top1, Metric.PERPLEXITY_RATIO: ratio}
    assert limits_for(scheme) == wanted


def layer(**limits: dict[str, float]) -> LimitSettings:
    return LimitSettings.model_validate(limits)


def test_a_later_layer_is_narrower() -> None:
    merged = limits_for(Scheme.INT8, layer(kl_mean={"critical": 0.2}), layer(kl_mean={"critical": 0.3}))
    assert merged[Metric.KL_MEAN] == Limit(None, 0.3)


def test_a_layer_takes_a_metric_whole() -> None:
    assert limits_for(Scheme.INT8, layer(kl_mean={"critical": 0.2}))[Metric.KL_MEAN] == Limit(None, 0.2)


def test_a_layer_leaves_other_metrics_alone() -> None:
    merged = limits_for(Scheme.INT4, layer(kl_mean={"critical": 0.2}))
    assert merged[Metric.TOP1_AGREEMENT] == Limit(0.89, 0.85)


def test_a_wider_layer_shows_through_a_narrower_one_that_is_silent() -> None:
    merged = limits_for(Scheme.INT8, layer(kl_p99={"warn": 0.4}), layer(kl_mean={"warn": 0.3}))
    assert merged[Metric.KL_P99] == Limit(0.4, None)


def test_an_empty_metric_switches_a_default_off() -> None:
    assert limits_for(Scheme.INT8, layer(kl_mean={}))[Metric.KL_MEAN] == Limit(None, None)


def test_layering_leaves_the_defaults_alone() -> None:
    before = DEFAULT_LIMITS[Scheme.INT8].values()
    limits_for(Scheme.INT8, layer(kl_mean={"critical": 9.0}))
    assert DEFAULT_LIMITS[Scheme.INT8].values() == before
