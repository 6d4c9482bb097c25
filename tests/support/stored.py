"""Nouns that tests put into a store, and stores to put them into."""

import math
from array import array
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from quantwatch.flow.decision import (
    Action,
    Brake,
    Decision,
    Intent,
    Lane,
    Objection,
    Order,
    PoolMode,
    Ruling,
    Wish,
)
from quantwatch.flow.distribution import NO_ID, Distribution, Mark, MarkKind
from quantwatch.flow.divergence import Divergence, Estimate, Estimator, Evidence
from quantwatch.flow.identity import Identity
from quantwatch.flow.observation import Missing, Observation
from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.report import SetReport
from quantwatch.flow.run import RunRecord, Trigger
from quantwatch.flow.state import Axis, Routing, SetState, TargetState, Transition
from quantwatch.flow.verdict import BREACHES, Finding, Interval, Limit, Metric, Quality, Verdict
from quantwatch.record.documents import number_rows, run_row
from quantwatch.record.engine import Pragmas, writer
from quantwatch.record.references import StoredAnswer
from quantwatch.record.store import Options, Store
from quantwatch.record.tables import NUMBERS, RUNS
from support.builders import FakeClock

START = datetime(2026, 1, 1, tzinfo=UTC)
BASELINE = Identity("baseline", "http://fp16:8000", "llama", "meta/llama", 4096, "0.32.0", 1_760_000_000.0, "t" * 8)
NODE = Identity(
    "int8-a", "http://int8-a:8000", "llama-w8a8", "acme/llama-w8a8", 4096, "0.32.0", 1_760_000_500.0, "t" * 8
)
LIMIT = Limit(0.01, 0.05)


def at(minutes: float) -> datetime:
    """Minutes after the start of 2026."""
    return START + timedelta(minutes=minutes)


def opened(folder: Path, *, name: str = "q.db", clock: FakeClock | None = None, **options: Any) -> Store:
    """The store of a test."""
    return Store.open(folder / name, clock=clock or FakeClock(), options=Options(**options))


def divergence(kl: float = 0.004) -> Divergence:
    """Numbers of a run, one of them not finite."""
    return Divergence(
        estimator=Estimator.BUCKET,
        mode=ProbeMode.PROMPT_SCORING,
        k=20,
        evidence=Evidence.DRAW,
        prompts=24,
        distinct_prompts=20,
        positions=2304,
        kl_mean=Estimate(kl, Interval(kl * 0.9, kl * 1.1)),
        kl_p99=Estimate(kl * 10),
        kl_median=kl / 2,
        kl_max=math.inf,
        perplexity_baseline=3.5,
        perplexity_node=3.55,
        perplexity_ratio=Estimate(1.0143, Interval(1.01, 1.02)),
        top1_agreement=Estimate(0.975, Interval(0.97, 0.98)),
        tail_mass_baseline=0.02,
        tail_mass_node=0.021,
        coverage=0.98,
        uninformative_positions=3,
        corrupted_positions=0,
    )


def finding(kl: float = 0.004, quality: Quality = Quality.OK) -> Finding:
    """The mean KL against its limit."""
    interval = Interval(kl * 0.9, kl * 1.1)
    return Finding(Metric.KL_MEAN, quality, kl, interval, LIMIT, f"mean KL {kl:g} is {quality}")


def set_report(
    kl: float = 0.004, *, quality: Quality = Quality.OK, task_set: str = "math", **changes: Any
) -> SetReport:
    """What a run found, with one prompt missing."""
    seen = Observation(24, 23, (Missing("math-07", Quality.UNKNOWN, "no answer in 120 s"),))
    one = finding(kl, quality)
    verdict = Verdict(quality, (one.reason,), (one,))
    report = SetReport(
        task_set, "d" * 64, 7, 20, ProbeMode.PROMPT_SCORING, seen, divergence(kl), verdict, seconds_node=0.4
    )
    return replace(report, **changes)


def run(number: int, kl: float = 0.004, *, quality: Quality = Quality.OK, **changes: Any) -> RunRecord:
    """A run that started so many minutes after the start."""
    record = RunRecord(
        id=f"r-{START:%Y%m%d}-{number:06d}-{number:06x}",
        target="int8-a",
        task_set="math",
        pool="llama",
        trigger=Trigger.SCHEDULE,
        started=at(number),
        seconds=30.0,
        quality=quality,
        reason=f"mean KL {kl:g} is {quality}",
        basis="b1",
        limits="l1",
        baseline=BASELINE,
        node=NODE,
        report=set_report(kl, quality=quality),
    )
    return replace(record, **changes)


def add_many(path: Path, records: Iterable[RunRecord]) -> None:
    """Put runs into a store that exists, all in one transaction, without the states that they leave."""
    rows = [run_row(one) for one in records]
    numbers = [each for row in rows if row["measured"] for each in number_rows(row["id"], row["document"]["report"])]
    engine = writer(path, Pragmas())
    with engine.connect().execution_options(writing=True) as connection, connection.begin():
        connection.execute(RUNS.insert(), rows)
        if numbers:
            connection.execute(NUMBERS.insert(), numbers)
    engine.dispose()


def after(record: RunRecord, **changes: Any) -> SetState:
    """The state that a run leaves."""
    state = SetState(
        target=record.target,
        task_set=record.task_set,
        quality=record.quality,
        last=record.quality,
        basis=record.basis,
        run=record.id,
        at=record.started + timedelta(seconds=record.seconds),
        reason=record.reason,
        proof=record.id if record.quality in BREACHES else None,
        process=None if record.node is None else record.node.process,
        limits=record.limits,
    )
    return replace(state, **changes)


def decision(name: str = "d-1", minutes: float = 10, *, action: Action = Action.ISOLATE, **wish: Any) -> Decision:
    """A decision to isolate, with the numbers that decided."""
    given: dict[str, Any] = {
        "pool": "llama",
        "lane": Lane.LIMITS,
        "task_set": "math",
        "run": run(9).id,
        "findings": (finding(0.09, Quality.DEGRADED),),
    }
    asked = Wish(action, "int8-a", reason="math: mean KL 0.09 is degraded, twice in a row", **{**given, **wish})
    return Decision(name, at(minutes), asked, PoolMode.ENFORCE, Ruling.ACT)


def suppressed(name: str = "d-2", minutes: float = 20) -> Decision:
    """A decision that a brake has stopped."""
    objection = Objection(Brake.CAP, "1 of 2 is isolated already, and 1 is allowed")
    return replace(decision(name, minutes), ruling=Ruling.SUPPRESSED, objections=(objection,))


def intent(made: Decision) -> Intent:
    """The order that follows from a decision."""
    wish = made.wish
    order = Order(
        decision=made.id,
        action=wish.action,
        target=wish.target,
        pool=wish.pool,
        node="http://int8-a:8000",
        driver="webhook",
        reason=wish.reason,
        verdict="degraded",
        fallback="http://fp16:8000",
        task_set=wish.task_set,
        run=wish.run,
        evidence=wish.findings,
    )
    return Intent(order, made.at)


def leaving(made: Decision) -> TargetState:
    """Where a target stands once its isolation is decided."""
    return TargetState(
        "int8-a",
        "llama",
        Routing.LEAVING,
        owner=made.id,
        since=made.at,
        ejections=1,
        lane="limits",
        node="http://int8-a:8000",
        driver="webhook",
    )


def moved(old: str, new: str, *, minutes: float = 10, **more: Any) -> Transition:
    """A change of routing."""
    return Transition(at(minutes), "int8-a", Axis.ROUTING, old, new, "mean KL over its limit", **more)


def answer(prompt: str = "math-01", minutes: float = 0, *, rows: int = 3, k: int = 2) -> StoredAnswer:
    """An answer with a token that is not listed, one beyond rank k, and a corrupted row."""
    distribution = Distribution(
        prompt_id=prompt,
        mode=ProbeMode.PROMPT_SCORING,
        k=k,
        prompt_length=2,
        positions=array("q", range(2, 2 + rows)),
        ids=array("q", [2**31 - 1, 7, NO_ID] * rows),
        logprobs=array("d", [-0.1, -2.7182818, 0.0] * rows),
        actual=array("d", [-0.1] + [math.nan] * (rows - 1)),
        floor=array("d", [-2.7182818] * rows),
        marks=(Mark(rows - 1, MarkKind.NON_FINITE, "1 of 2 values not finite"),),
        seconds=0.25,
    )
    sequence = (5, 6, *range(10, 10 + rows))
    return StoredAnswer(prompt, k, ProbeMode.PROMPT_SCORING, sequence, 2, at(minutes), distribution)
