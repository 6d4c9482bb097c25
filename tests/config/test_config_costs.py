"""What a configuration costs each node a day, recomputed here by hand."""

from pathlib import Path

import pytest

from quantwatch.config.load import load_settings
from quantwatch.config.schema import Settings
from quantwatch.errors import ConfigError
from quantwatch.flow.prompt import ProbeMode
from quantwatch.flows.costs import SetCost, costs, over_budget
from quantwatch.probe.cost import STRUCTURED_MEAN, Cost, run_cost

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


def settings_with(text: str, folder: Path, *, pool: str = POOL) -> Settings:
    (folder / "tiny.yaml").write_text(pool, encoding="utf-8")
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


def test_two_whole_answers_are_generated_where_prompts_have_a_schema() -> None:
    plain, all_four = (
        run_cost(
            20,
            draws=40,
            pool=4,
            mode=ProbeMode.FIRST_TOKEN,
            continuation=10,
            positions=8,
            canary=32,
            with_schema=with_schema,
        )
        for with_schema in (0, 4)
    )

    assert all_four.generated - plain.generated == pytest.approx(2 * STRUCTURED_MEAN)
    assert all_four.processed - plain.processed == pytest.approx(2 * 20)


def test_a_schema_costs_in_proportion_where_few_prompts_have_one(tmp_path: Path) -> None:
    """Two draws from two prompts meet 1.5 of them, and every other one has a schema."""
    without = cost_of("draw: 2, mode: first_token", tmp_path).run
    schema = POOL.replace("id: tiny-ten,", "id: tiny-ten, answer_schema: {type: object},")

    (with_one,) = costs(settings_with("draw: 2, mode: first_token", tmp_path, pool=schema), folder=tmp_path, shipped={})

    assert without.generated == pytest.approx(1.5 + 32)
    assert with_one.run.generated == pytest.approx(1.5 + 32 + 0.75 * STRUCTURED_MEAN)


# ------------------------------------------------------------------ tokens as the budget counts them


def test_scoring_sends_what_it_reads_and_one_token_a_prompt() -> None:
    one = cost(ProbeMode.PROMPT_SCORING)
    assert one.sent == pytest.approx(DISTINCT * 31 + 20 + 32 + 100)


def test_one_token_sends_the_prompt_anew_for_every_position() -> None:
    """Eight prefixes of 20 to 30 tokens, each with a token asked for."""
    assert cost(ProbeMode.ONE_TOKEN).sent == pytest.approx(DISTINCT * 8 * (25 + 1) + 20 + 32 + 100)


def test_first_token_sends_the_prompt_and_a_token() -> None:
    assert cost(ProbeMode.FIRST_TOKEN).sent == pytest.approx(DISTINCT * 21 + 20 + 32 + 100)


def warned(text: str, folder: Path, *, probe: str = "", targets: int = 1) -> list[str]:
    (folder / "tiny.yaml").write_text(POOL, encoding="utf-8")
    file = folder / "quantwatch.yaml"
    more = "".join(
        f", {{name: node-{i}, url: 'http://{i}.test', scheme: int8, pool: llama}}" for i in range(1, targets)
    )
    content = FILE.replace("SETTINGS", text).replace("pool: llama}]", f"pool: llama}}{more}]")
    file.write_text(content + (f"probe: {{{probe}}}\n" if probe else ""), encoding="utf-8")
    settings = load_settings(file, shipped={})
    return over_budget(settings, costs(settings, folder=folder, shipped={}))


def test_a_cost_within_the_budget_is_no_warning(tmp_path: Path) -> None:
    assert warned("schedule: {every: 15m}", tmp_path) == []


def test_a_run_that_takes_longer_than_its_time_limit_is_told(tmp_path: Path) -> None:
    text = "mode: one_token, positions: 96, confirm_mode: first_token, schedule: {every: 24h}"
    (said,) = warned(text, tmp_path, probe="tokens_per_minute: 500")
    assert said.startswith("task_sets.own: a run sends about ")
    assert "probe.run_timeout cuts it off after 15 minutes" in said


def test_a_confirming_run_in_its_own_mode_is_told_as_well(tmp_path: Path) -> None:
    probe = "tokens_per_minute: 500, run_timeout: 2m"
    (said,) = warned("positions: 96", tmp_path, probe=probe)
    assert said.startswith("task_sets.own: a confirming run sends about 2,360 tokens")
    assert warned("positions: 96, confirm_mode: prompt_scoring", tmp_path, probe=probe) == []


def test_a_run_that_takes_longer_than_its_period_is_told(tmp_path: Path) -> None:
    said = warned("schedule: {every: 10s}, confirm_mode: first_token", tmp_path, probe="tokens_per_minute: 1000")
    assert "longer than its period of 0.166667 minutes" in said[0]


def test_sets_that_are_too_much_together_are_told_for_targets_and_baseline(tmp_path: Path) -> None:
    text, probe = "schedule: {every: 60s}, confirm_mode: first_token", "tokens_per_minute: 1000"
    assert warned(text, tmp_path, probe=probe) == []
    (said,) = warned(text, tmp_path, probe=probe, targets=3)
    assert said.startswith("probe.tokens_per_minute: all task sets together send the baseline, asked for 3 targets,")
    both = warned(text, tmp_path, probe="tokens_per_minute: 300", targets=3)
    assert [one for one in both if one.startswith("probe.tokens_per_minute: all task sets together send each target")]


def test_targets_that_ask_the_baseline_at_once_by_a_crontab_are_told(tmp_path: Path) -> None:
    text, probe = "confirm_mode: first_token, schedule: {cron: '0 3 * * *'}", "tokens_per_minute: 500, run_timeout: 2m"
    assert warned(text, tmp_path, probe=probe) == []
    (said,) = warned(text, tmp_path, probe=probe, targets=3)
    assert said.startswith("task_sets.own: by its crontab 3 targets ask a live baseline at once, which takes 2 minutes")
    assert warned(text.replace("cron: '0 3 * * *'", "every: 24h"), tmp_path, probe=probe, targets=3) == []


def test_a_request_over_the_whole_budget_is_told(tmp_path: Path) -> None:
    said = warned("continuation_tokens: 200, confirm_mode: first_token", tmp_path, probe="tokens_per_minute: 64")
    assert "its longest request has about 231 tokens and is never sent" in said[0]


def test_a_set_that_never_runs_within_the_weeks_looked_at_costs_nothing(tmp_path: Path) -> None:
    assert warned("schedule: {cron: '0 0 29 2 *'}", tmp_path, probe="tokens_per_minute: 5000") == []
