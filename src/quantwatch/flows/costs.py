"""What a configuration costs each node a day, task set by task set."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from quantwatch.config.load import prompts_file
from quantwatch.config.schedule import runs_a_day
from quantwatch.config.schema import ScheduleSettings, Settings
from quantwatch.flow.prompt import ProbeMode, PromptSet
from quantwatch.probe.cost import CANARY_TOKENS, Cost, run_cost
from quantwatch.prompts.estimate import estimated_tokens
from quantwatch.prompts.load import load_set


@dataclass(frozen=True, slots=True)
class SetCost:
    """One task set: its pool, runs a day, and cost of a run."""

    name: str
    pool: PromptSet
    mode: ProbeMode
    runs: float
    run: Cost

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
    mean = sum(estimated_tokens(prompt.content) for prompt in pool.prompts) / len(pool.prompts)
    run = run_cost(
        mean,
        draws=wanted.draw,
        pool=len(pool.prompts),
        mode=mode,
        continuation=wanted.continuation_tokens,
        positions=wanted.positions,
        canary=CANARY_TOKENS,
    )
    return SetCost(name, pool, mode, _runs(wanted.schedule), run)


def _runs(schedule: ScheduleSettings) -> float:
    return runs_a_day(schedule.cron) if schedule.cron is not None else 86400 / (schedule.every or 86400)
