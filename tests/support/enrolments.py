"""Enrolments of tiny baselines, without sockets."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import stamina

from quantwatch.config.load import references_folder
from quantwatch.config.schema import Settings
from quantwatch.daemon.enrolling import enroller
from quantwatch.flows.enroll import Enrolled, Enroller
from quantwatch.flows.plan import Progress
from quantwatch.flows.watched import WatchedSet
from quantwatch.record.reference_folder import ReferenceFolder
from quantwatch.wiring import prompt_sets, sets_of
from quantwatch.wiring.tools import Tools
from support.builders import FakeClock
from support.tiny_node import Network, TinyNode
from support.watching import settings, write_prompts

K = 12
"""Log-probabilities a position that are enrolled; the runs of the test watch ask for 5."""

Work = Callable[[Enroller, WatchedSet], Any]


def raw(**sections: Any) -> dict[str, Any]:
    """A configuration with one small task set whose baseline is to be enrolled."""
    return settings(references={"k": K, **sections.pop("references", {})}, **sections)


def folder_of(place: Path) -> ReferenceFolder:
    """Where the references of the test configuration lie."""
    return ReferenceFolder(place / "references")


def wanted_of(place: Path, content: dict[str, Any] | None = None) -> WatchedSet:
    """The task set of the test configuration."""
    write_prompts(place)
    chosen = Settings.model_validate(content or raw())
    prompts = prompt_sets(chosen, folder=place, shipped={})
    (one,) = sets_of(chosen, chosen.targets[0], prompts).values()
    return one


async def enrolled(
    place: Path,
    baseline: TinyNode | None = None,
    *,
    content: dict[str, Any] | None = None,
    anew: bool = False,
    told: list[Progress] | None = None,
    clock: FakeClock | None = None,
) -> Enrolled:
    """Enrol a baseline for the test configuration's task set."""
    wanted = wanted_of(place, content)
    chosen = Settings.model_validate({**(content or raw()), "store": {"path": str(place / "q.db")}})
    network = Network(baseline=baseline or TinyNode())
    tell = (told if told is not None else []).append
    assert references_folder(chosen, folder=place) == folder_of(place).folder
    with stamina.set_testing(True, attempts=2):
        tools = Tools(clock or FakeClock(), Random(1), network)
        async with enroller(chosen, folder=place, anew=anew, tell=tell, tools=tools) as one:
            return await one.enroll(wanted)
