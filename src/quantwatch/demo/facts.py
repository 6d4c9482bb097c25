"""What happened, as numbers: read out of the daemon's own store, the gateway and the client."""

import math
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from quantwatch.demo.client import Client, Reply
from quantwatch.demo.gateway import Gateway
from quantwatch.demo.limits import Written
from quantwatch.demo.plan import BASELINE, NODE, RECORD, Addresses, Size
from quantwatch.flow.report import SetReport
from quantwatch.record.archive import Archive
from quantwatch.record.documents import StoredRun

LEAST_RATIO = 5.0
"""How many times the smoothed node's mean KL the outlier node's must be."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that had to happen, and what was seen."""

    name: str
    passed: bool
    said: str


@dataclass(frozen=True, slots=True)
class Row:
    """One node on one task set, as the daemon measured it last. verdict: of that run alone."""

    task_set: str
    kl_mean: float
    kl_interval: tuple[float, float] | None
    perplexity_ratio: float
    top1_agreement: float
    verdict: str
    seed: int
    run: str


@dataclass(frozen=True, slots=True)
class Stay:
    """A time for which one node was alone at its address; until is None while it still is."""

    since: datetime
    until: datetime | None = None

    def covers(self, run: StoredRun) -> bool:
        """Whether a run has measured this node alone: one across a change has measured two."""
        return run.started >= self.since and (self.until is None or run.ended <= self.until)


@dataclass(slots=True)
class Facts:
    """What the story leaves behind.

    cache: where the baseline's answers are. stays: when each node (healthy, outlier, smoothed) was alone at its
    address. peaks: most memory of each process in MiB.
    """

    size: Size
    at: Addresses
    folder: Path
    cache: Path
    healthy: dict[str, SetReport] = field(default_factory=dict)
    limits: dict[str, Written] = field(default_factory=dict)
    stays: dict[str, Stay] = field(default_factory=dict)
    peaks: dict[str, float | None] = field(default_factory=dict)

    @property
    def config(self) -> Path:
        """The configuration that the daemon ran with."""
        return self.folder / "quantwatch.yaml"

    @property
    def store(self) -> Path:
        """The daemon's store."""
        return self.folder / RECORD

    def rows(self) -> dict[str, list[Row]]:
        """The latest measured run of each node on each task set, by the nodes' roles."""
        if not self.store.exists():
            return {}
        with Archive.open(self.store) as archive:
            runs = archive.history(target=NODE, limit=None)  # the newest first
        return {role: list(_latest(runs, stay, self.size.task_sets)) for role, stay in self.stays.items()}

    def compare_commands(self, rows: Mapping[str, list[Row]]) -> list[str]:
        """How to measure by hand what the daemon measured last on the node that serves now: same draws, same tokens."""
        servers = ["--baseline", self.at.baseline, "--node", f"{NODE}={self.at.node}"]
        tokens = ["--continuation-tokens", str(self.size.continuation_tokens), "--cache", str(self.cache)]
        drawn = ["--prompts", str(self.size.draw)]
        commands = []
        for row in rows.get("smoothed", []):
            own = ["--task-set", f"{self.folder / row.task_set}.yaml", "--seed", str(row.seed)]
            commands.append(shlex.join(["quantwatch", "compare", *servers, *own, *drawn, *tokens]))
        return commands


def _latest(runs: list[StoredRun], stay: Stay, task_sets: tuple[str, ...]) -> Iterator[Row]:
    for name in task_sets:
        fits = (one for one in runs if one.task_set == name and stay.covers(one))
        found = next((one for one in fits if one.numbers.get("kl_mean") is not None), None)
        if found is not None:
            yield _row(found)


def _row(run: StoredRun) -> Row:
    seen: Mapping[str, Any] = run.numbers
    ends = seen["kl_interval"]
    return Row(
        task_set=run.task_set,
        kl_mean=seen["kl_mean"],
        kl_interval=None if ends is None or None in ends else (ends[0], ends[1]),
        perplexity_ratio=seen["perplexity_ratio"],
        top1_agreement=seen["top1_agreement"],
        verdict=seen["verdict"],
        seed=seen["seed"],
        run=run.id,
    )


def kl_ratio(rows: Mapping[str, list[Row]]) -> float | None:
    """Mean KL of the outlier node over that of the smoothed one, each averaged over the task sets that both have."""
    bad = {row.task_set: row.kl_mean for row in rows.get("outlier", [])}
    good = {row.task_set: row.kl_mean for row in rows.get("smoothed", [])}
    both = bad.keys() & good.keys()
    total = sum(good[name] for name in both)
    return sum(bad[name] for name in both) / total if total > 0 else None


def checks(facts: Facts, gateway: Gateway | None, client: Client | None) -> list[Check]:
    """Everything that must have happened for the demo to have succeeded."""
    rows = facts.rows()
    calls = [] if gateway is None else gateway.calls
    replies = [] if client is None else client.replies
    isolated = None if gateway is None else gateway.told("isolate")
    released = None if gateway is None else gateway.told("release")
    return [
        _ratio(rows, facts.size.task_sets),
        Check(
            "one isolation, one release",
            [(one.action, one.node) for one in calls] == [("isolate", NODE), ("release", NODE)],
            f"the gateway was called {len(calls)} times: {', '.join(one.action for one in calls) or 'never'}",
        ),
        _no_failure(replies, 0 if gateway is None else gateway.retried),
        _answered("answered by INT8 before", _between(replies, 0.0, isolated), NODE),
        _answered("answered by the baseline while isolated", _between(replies, isolated, released), BASELINE),
        _answered("answered by INT8 again", _between(replies, released, math.inf), NODE),
    ]


def _ratio(rows: Mapping[str, list[Row]], task_sets: tuple[str, ...]) -> Check:
    ratio = kl_ratio(rows)
    said = "not measured" if ratio is None else f"{ratio:.1f} times (at least {LEAST_RATIO:g} are asked for)"
    whole = all([row.task_set for row in rows.get(role, [])] == list(task_sets) for role in ("outlier", "smoothed"))
    if not whole:
        said = "not measured on every task set"
    return Check("KL of the outlier node over the smoothed one", whole and (ratio or 0.0) >= LEAST_RATIO, said)


def _no_failure(replies: list[Reply], retried: int) -> Check:
    failed = [one for one in replies if one.error is not None]
    said = f"{len(failed)} of {len(replies)} failed, {retried} sent twice by the gateway"
    first = f"; the first one: {failed[0].error}" if failed else ""
    return Check("no client request failed", bool(replies) and not failed, said + first)


def _between(replies: list[Reply], begin: float | None, end: float | None) -> list[Reply]:
    """Requests sent and answered within a time, so that none was under way when the routing changed.

    Monotonic seconds; None for what never came, so that nothing is within.
    """
    if begin is None or end is None:
        return []
    return [one for one in replies if one.at >= begin and one.at + one.seconds <= end]


def _answered(name: str, replies: list[Reply], by: str) -> Check:
    right = [one for one in replies if one.by == by]
    return Check(name, bool(replies) and len(right) == len(replies), f"{len(right)} of {len(replies)} by {by}")
