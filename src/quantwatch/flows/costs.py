"""What a configuration costs each node a day, task set by task set."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from quantwatch.config.load import prompts_file
from quantwatch.config.schedule import runs_a_day
from quantwatch.config.schema import ScheduleSettings, Settings
from quantwatch.flow.prompt import ProbeMode, PromptSet
from quantwatch.probe.cost import CANARY_TOKENS, CONFIRM_POSITIONS, Cost, run_cost
from quantwatch.prompts.estimate import estimated_tokens
from quantwatch.prompts.load import load_set

DAY_SECONDS = 86_400.0
MINUTES_A_DAY = 1440.0


@dataclass(frozen=True, slots=True)
class SetCost:
    """One task set: its pool, runs a day, and cost of a run.

    confirming: cost of a run that confirms, in its own mode. longest: tokens of the longest request.
    """

    name: str
    pool: PromptSet
    mode: ProbeMode
    runs: float
    run: Cost
    confirming: Cost
    longest: int

    @property
    def tokens_a_day(self) -> float:
        """Probe tokens a day and node."""
        return self.runs * self.run.total


def costs(settings: Settings, *, folder: Path, shipped: Mapping[str, Path]) -> list[SetCost]:
    """Estimate every task set. Raises ConfigError for a prompts file that cannot be used."""
    return [_set_cost(name, settings, folder, shipped) for name in settings.task_sets]


def _set_cost(name: str, settings: Settings, folder: Path, shipped: Mapping[str, Path]) -> SetCost:
    wanted = settings.task_sets[name]
    pool = load_set(prompts_file(settings, name, folder=folder, shipped=shipped))
    mode = wanted.mode or pool.mode
    lengths = [estimated_tokens(prompt.content) for prompt in pool.prompts]

    def cost(mode: ProbeMode, positions: int) -> Cost:
        return run_cost(
            sum(lengths) / len(lengths),
            draws=wanted.draw,
            pool=len(lengths),
            mode=mode,
            continuation=wanted.continuation_tokens,
            positions=positions,
            canary=CANARY_TOKENS,
            with_schema=sum(prompt.answer_schema is not None for prompt in pool.prompts),
        )

    second = ProbeMode.ONE_TOKEN if mode is ProbeMode.PROMPT_SCORING else mode
    confirming = cost(wanted.confirm_mode or second, min(wanted.positions, CONFIRM_POSITIONS))
    return SetCost(
        name,
        pool,
        mode,
        _runs(wanted.schedule),
        run=cost(mode, wanted.positions),
        confirming=confirming,
        longest=max(lengths) + wanted.continuation_tokens + 1,
    )


def over_budget(settings: Settings, estimated: Sequence[SetCost]) -> list[str]:
    """One sentence for everything that the budget of tokens a minute will cut off or hold up; starts with the key."""
    allowed = settings.probe.tokens_per_minute
    warnings = [said for one in estimated for said in _set_over_budget(one, settings)]
    each = sum(one.runs * one.run.sent for one in estimated) / MINUTES_A_DAY
    everyone = f"the baseline, asked for {len(settings.targets)} targets,"
    for whom, minute in (("each target", each), (everyone, each * len(settings.targets))):
        if minute > allowed:
            warnings.append(
                f"probe.tokens_per_minute: all task sets together send {whom} about {minute:,.0f} tokens a minute, and "
                f"{allowed:,} are allowed, so runs will wait and be late"
            )
    return warnings


def _set_over_budget(one: SetCost, settings: Settings) -> Iterator[str]:
    allowed, most = settings.probe.tokens_per_minute, settings.probe.run_timeout
    at = f"at probe.tokens_per_minute {allowed:,}"
    if one.longest > allowed:
        yield f"task_sets.{one.name}: its longest request has about {one.longest:,} tokens and is never sent {at}"
    period = DAY_SECONDS / one.runs if one.runs else math.inf
    for what, cost in (("a run", one.run), ("a confirming run", one.confirming)):
        seconds = cost.sent / allowed * 60
        takes = (
            f"task_sets.{one.name}: {what} sends about {cost.sent:,.0f} tokens, which takes {seconds / 60:.0f} minutes"
        )
        if seconds > most:
            yield f"{takes} {at}; probe.run_timeout cuts it off after {most / 60:g} minutes"
        elif seconds > period:
            yield f"{takes} {at}, longer than its period of {period / 60:g} minutes"
    yield from _at_once(one, settings)


def _at_once(one: SetCost, settings: Settings) -> Iterator[str]:
    """Targets of one crontab come together, and a live baseline has one budget for all of them."""
    probe, targets = settings.probe, len(settings.targets)
    alone, together = (one.run.sent * n / probe.tokens_per_minute * 60 for n in (1, targets))
    if settings.task_sets[one.name].schedule.cron is not None and alone <= probe.run_timeout < together:
        takes = f"which takes {together / 60:.0f} minutes at probe.tokens_per_minute {probe.tokens_per_minute:,}"
        yield (
            f"task_sets.{one.name}: by its crontab {targets} targets ask a live baseline at once, {takes}; "
            f"probe.run_timeout cuts them off after {probe.run_timeout / 60:g} minutes; enroll the baseline's answers"
        )


def _runs(schedule: ScheduleSettings) -> float:
    return runs_a_day(schedule.cron) if schedule.cron is not None else DAY_SECONDS / (schedule.every or DAY_SECONDS)
