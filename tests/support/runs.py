"""Whole comparisons over tiny nodes, without sockets."""

from pathlib import Path
from typing import Any

from quantwatch.config.limits import Scheme, limits_for
from quantwatch.config.schema import ProbeSettings
from quantwatch.flow.divergence import Evidence
from quantwatch.flow.prompt import GoldenSequence, LengthBucket, ProbeMode, Prompt, PromptSet
from quantwatch.flow.report import Report, SetReport
from quantwatch.flows.plan import Plan, PlannedSet, Progress, planned_draw
from quantwatch.flows.report import report
from quantwatch.net import Endpoint
from quantwatch.wiring import comparison
from support.tiny_node import Network, TinyModel, TinyNode

TEXTS = (
    "Explain how a lock-free queue keeps its order.",
    "The lighthouse keeper counted the ships again and",
    "Add 17 and 25, then multiply by 3, step by step.",
    "SELECT name FROM keepers WHERE lamp = 'out';",
    "Write a short letter to a landlord about a leak.",
    "def median(values):\n    values = sorted(values)\n",
)
POOL = PromptSet(
    "letters",
    "for tests",
    tuple(Prompt(f"letters-{i}", "en", LengthBucket.SHORT, ("x",), text=text) for i, text in enumerate(TEXTS)),
    digest="d" * 64,
)


def plan(*sets: PlannedSet, mode: ProbeMode | None = None, draws: int = 8, **options: Any) -> Plan:
    """A plan over the test pool with the starting limits of INT8."""
    chosen = sets or (planned_draw(POOL, size=draws, seed=1, mode=mode),)
    settings = {"k": 10, "seed": 1, "continuation_tokens": 24, "positions": 8} | options
    return Plan(sets=chosen, limits=limits_for(Scheme.INT8), **settings)


def census(*sequences: GoldenSequence) -> PlannedSet:
    """Ready sequences as one task set."""
    weights = {sequence.prompt_id: 1 for sequence in sequences}
    return PlannedSet("ready", "e" * 64, ProbeMode.PROMPT_SCORING, sequences, weights, Evidence.CENSUS)


async def compared(
    cache: Path,
    *,
    baseline: TinyNode | None = None,
    wanted: Plan | None = None,
    told: list[Progress] | None = None,
    probe: dict[str, Any] | None = None,
    **nodes: TinyNode,
) -> Report:
    """Run a comparison of the named nodes with the baseline and report it."""
    reference = baseline or TinyNode()
    network = Network(baseline=reference, **nodes)
    settings = ProbeSettings.model_validate({"patience": "1ms", **(probe or {})})
    async with comparison(
        (Endpoint("baseline", "http://baseline"), None),
        [(Endpoint(name, f"http://{name}"), None) for name in nodes],
        wanted or plan(),
        probe=settings,
        cache=cache,
        tell=(told if told is not None else []).append,
        transport=network,
    ) as run:
        await run.run()
    return report(run)


def only(result: Report) -> SetReport:
    """The single task set of the single target."""
    (target,) = result.targets
    (one,) = target.task_sets
    return one


def node(damage: float = 0.0, **options: Any) -> TinyNode:
    """A second server: another process than the baseline."""
    return TinyNode(model=TinyModel(damage=damage), started=1_700_000_500.0, **options)
