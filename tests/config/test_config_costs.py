"""What a configuration costs each node a day, recomputed here by hand."""

from pathlib import Path

import pytest

from quantwatch.config.load import load_settings
from quantwatch.config.schema import Settings
from quantwatch.errors import ConfigError
from quantwatch.flow.prompt import ProbeMode
from quantwatch.flows.costs import SetCost, costs
from quantwatch.probe.cost import Cost, run_cost

POOL = """\
schema: 1
name: tiny
description: two prompts of 10 and 30 estimated tokens
license: Apache-2.0
prompts:
  - {id: tiny-ten, language: en, length: short, tags: [a], prompt: TEN}
  - {id: tiny-thirty, language: en, length: short, tags: [a], prompt: THIRTY}
""".replace("TEN", "x" * 40).replace("THIRTY", "y" * 120)

FILE = """\
schema: 1
baseline: {url: 'http://fp16.test:8000'}
targets: [{name: node-a, url: 'http://a.test:8000', scheme: int8, pool: llama}]
pools: {llama: {}}
task_sets:
  own: {prompts: tiny.yaml, SETTINGS}
"""


def settings_with(text: str, folder: Path) -> Settings:
    (folder / "tiny.yaml").write_text(POOL, encoding="utf-8")
    file = folder / "quantwatch.yaml"
    file.write_text(FILE.replace("SETTINGS", text), encoding="utf-8")
    return load_settings(file, shipped={})


def cost_of(text: str, folder: Path) -> SetCost:
    (one,) = costs(settings_with(text, folder), folder=folder, shipped={})
    return one


def cost(mode: ProbeMode, *, draws: int = 3, positions: int = 8) -> Cost:
    """A pool of 4 prompts of 20 tokens on average, answers of 10 tokens."""
    return run_cost(20, draws=draws, pool=4, mode=mode, continuation=10, positions=positions, canary=32)


DISTINCT = 4 * (1 - 0.75**3)  # 2.3125 of 4 prompts are met in 3 draws with replacement


def test_scoring_reads_prompt_and_answer_once_a_distinct_prompt() -> None:
    assert cost(ProbeMode.PROMPT_SCORING).processed == pytest.approx(DISTINCT * 30 + 20)


def test_scoring_samples_one_token_a_distinct_prompt() -> None:
    assert cost(ProbeMode.PROMPT_SCORING).generated == pytest.approx(DISTINCT + 32)


def test_one_token_samples_one_token_a_position() -> None:
    assert cost(ProbeMode.ONE_TOKEN).generated == pytest.approx(DISTINCT * 8 + 32)


def test_one_token_samples_no_more_positions_than_the_answer_has() -> None:
    assert cost(ProbeMode.ONE_TOKEN, positions=32).generated == pytest.approx(DISTINCT * 10 + 32)


def test_one_token_reads_prompt_and_answer_once_thanks_to_the_prefix_cache() -> None:
    assert cost(ProbeMode.ONE_TOKEN).processed == pytest.approx(DISTINCT * 30 + 20)


def test_first_token_reads_the_prompt_alone() -> None:
    assert cost(ProbeMode.FIRST_TOKEN).processed == pytest.approx(DISTINCT * 20 + 20)


def test_first_token_samples_one_token_a_distinct_prompt() -> None:
    assert cost(ProbeMode.FIRST_TOKEN).generated == pytest.approx(DISTINCT + 32)


def test_one_draw_is_one_prompt() -> None:
    assert cost(ProbeMode.PROMPT_SCORING, draws=1).processed == pytest.approx(30 + 20)


def test_many_draws_meet_the_whole_pool() -> None:
    assert cost(ProbeMode.PROMPT_SCORING, draws=1000).processed == pytest.approx(4 * 30 + 20)


def test_the_total_is_read_and_sampled_tokens() -> None:
    assert Cost(processed=100.5, generated=7.0).total == 107.5


def test_a_configured_task_set_costs_what_its_pool_and_settings_say(tmp_path: Path) -> None:
    one = cost_of("draw: 2, continuation_tokens: 50", tmp_path)
    distinct = 2 * (1 - 0.5**2)  # of two prompts
    mean = (10 + 30) / 2  # four characters are a token
    assert one.run.processed == pytest.approx(distinct * (mean + 50) + mean)
    assert one.run.generated == pytest.approx(distinct + 32)


def test_a_day_is_runs_times_the_cost_of_a_run(tmp_path: Path) -> None:
    one = cost_of("draw: 2, continuation_tokens: 50, schedule: {every: 6h}", tmp_path)
    assert one.tokens_a_day == pytest.approx(4 * ((1.5 * 70 + 20) + (1.5 + 32)))


SCHEDULES = [("{every: 10m}", 144.0), ("{every: 36h}", 2 / 3), ("{cron: '0 */8 * * *'}", 3.0)]


@pytest.mark.parametrize(("schedule", "runs"), SCHEDULES)
def test_runs_a_day_come_from_the_schedule(schedule: str, runs: float, tmp_path: Path) -> None:
    assert cost_of(f"schedule: {schedule}", tmp_path).runs == pytest.approx(runs)


def test_a_task_set_without_a_schedule_runs_every_quarter_of_an_hour(tmp_path: Path) -> None:
    assert cost_of("draw: 2", tmp_path).runs == pytest.approx(96)


def test_the_mode_of_the_settings_goes_before_that_of_the_pool(tmp_path: Path) -> None:
    assert cost_of("mode: first_token", tmp_path).mode is ProbeMode.FIRST_TOKEN


def test_the_mode_of_the_pool_stands_in_for_none(tmp_path: Path) -> None:
    assert cost_of("draw: 2", tmp_path).mode is ProbeMode.PROMPT_SCORING


def test_positions_of_the_settings_are_counted(tmp_path: Path) -> None:
    one = cost_of("draw: 2, mode: one_token, positions: 5", tmp_path)
    assert one.run.generated == pytest.approx(1.5 * 5 + 32)


def test_task_sets_are_told_in_the_order_of_the_file(tmp_path: Path) -> None:
    settings = settings_with("draw: 2}\n  another: {prompts: tiny.yaml", tmp_path)
    assert [one.name for one in costs(settings, folder=tmp_path, shipped={})] == ["own", "another"]


def test_a_shipped_set_is_found_by_its_name(tmp_path: Path) -> None:
    settings_with("draw: 2", tmp_path)
    shipped = {"tiny": tmp_path / "tiny.yaml"}
    file = tmp_path / "shipped.yaml"
    file.write_text(FILE.replace("own: {prompts: tiny.yaml, SETTINGS}", "tiny: {draw: 2}"), encoding="utf-8")
    (one,) = costs(load_settings(file, shipped=shipped), folder=tmp_path, shipped=shipped)
    assert (one.name, len(one.pool.prompts)) == ("tiny", 2)


def test_a_prompts_file_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    settings = settings_with("draw: 2", tmp_path)
    (tmp_path / "tiny.yaml").write_text("schema: 1\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"tiny\.yaml:1: "):
        costs(settings, folder=tmp_path, shipped={})
