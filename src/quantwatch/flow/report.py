"""The result of a comparison, as people and programs read it."""

from dataclasses import dataclass

from quantwatch.flow.divergence import Divergence
from quantwatch.flow.handshake import Handshake
from quantwatch.flow.identity import Identity
from quantwatch.flow.observation import Observation
from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.verdict import Quality, Verdict


@dataclass(frozen=True, slots=True)
class SetReport:
    """One target on one task set.

    pool: digest of the pool that the prompts were drawn from. k, mode: as asked. seconds_*: mean time of one probe.
    """

    name: str
    pool: str
    seed: int
    k: int
    mode: ProbeMode
    observation: Observation
    divergence: Divergence | None
    verdict: Verdict
    seconds_baseline: float | None = None
    seconds_node: float | None = None


@dataclass(frozen=True, slots=True)
class TargetReport:
    """One target over all task sets.

    misconfigured: a person has to correct an address, key or model name. notes: what else a reader should know.
    handshake: what was seen before anything was asked.
    """

    target: str
    identity: Identity | None
    quality: Quality
    reasons: tuple[str, ...]
    task_sets: tuple[SetReport, ...]
    misconfigured: bool = False
    notes: tuple[str, ...] = ()
    handshake: Handshake | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """A whole comparison. complete: False when interrupted. trouble: what was wrong with the baseline, if anything."""

    baseline: Identity | None
    targets: tuple[TargetReport, ...]
    complete: bool
    trouble: str | None = None
    misconfigured: bool = False
