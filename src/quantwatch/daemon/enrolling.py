"""The baseline of a configuration, connected to be enrolled; the daemon itself never enrols."""

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random

from quantwatch.clock import SystemClock
from quantwatch.config.load import references_folder
from quantwatch.config.schema import Settings
from quantwatch.flows.enroll import Enroller
from quantwatch.flows.plan import Progress
from quantwatch.flows.pools import BASELINE
from quantwatch.measure.threads import one_thread
from quantwatch.record.reference_folder import ReferenceFolder
from quantwatch.wiring import endpoint, prober
from quantwatch.wiring.tools import Tools


@contextlib.asynccontextmanager
async def enroller(
    settings: Settings,
    *,
    folder: Path,
    anew: bool,
    tell: Callable[[Progress], None],
    tools: Tools | None = None,
) -> AsyncIterator[Enroller]:
    """Connect the baseline of a configuration to be enrolled. folder: where the configuration file is.

    More log-probabilities a position are asked for than of nodes, so the budget of entries follows from those.
    """
    one_thread()
    k = max(settings.references.k, *(one.k for one in settings.task_sets.values()))
    entries = max(settings.probe.max_scored_entries, settings.probe.max_scored_tokens * k)
    probe = settings.probe.model_copy(update={"max_scored_entries": entries})
    given = tools or Tools(SystemClock(), Random())  # noqa: S311, nothing secret is drawn
    async with contextlib.AsyncExitStack() as stack:
        there = endpoint(BASELINE, settings.baseline)
        baseline = await prober(stack, there, settings.baseline.model, probe=probe, tools=given)
        references = ReferenceFolder(references_folder(settings, folder=folder))
        yield Enroller(baseline, references, given.clock, k, anew=anew, tell=tell)
