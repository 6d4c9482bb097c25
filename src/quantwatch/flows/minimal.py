"""One small probe of a node that is busy run after run: some faults show only under load.

It asks for one token after a short prompt, in spite of the load gate and within the budget. It can find broken numbers,
seen twice and not at the baseline, and nothing else: it never clears a node, nor does it say anything of its limits.
"""

import asyncio
import contextlib
from dataclasses import dataclass

from quantwatch.flow.check import Check
from quantwatch.flow.observation import Missing
from quantwatch.flow.prompt import GoldenSequence, ProbeMode
from quantwatch.flow.reference import ReferenceStanding
from quantwatch.flow.report import Report, TargetReport
from quantwatch.flow.run import RunRecord, Trigger, fresh_id
from quantwatch.flow.verdict import Quality
from quantwatch.flows.ask import Server
from quantwatch.flows.compare import Comparison
from quantwatch.flows.cycle import Ran, Turn, checked, plan_of
from quantwatch.flows.gather import broken
from quantwatch.flows.library import chosen
from quantwatch.flows.watched import Watched, WatchedSet
from quantwatch.judge.conclude import seen_once, seen_twice
from quantwatch.probe.contract import Ask

BUSY_RUNS = 3
"""Runs in a row that a busy node was spared before it is asked all the same."""

MOST_TOKENS = 64
K = 5
"""As many log-probabilities as the signs of broken numbers need."""

CLEAN = "busy; a minimal probe was clean"


@dataclass(frozen=True, slots=True)
class Found:
    """What a minimal probe found. check: of the baseline, made only where there is something to blame a node for."""

    quality: Quality
    reason: str
    check: Check
    trouble: str | None = None


async def run_minimal(target: Watched, wanted: WatchedSet, turn: Turn, *, basis: str) -> Ran:
    """Make the probe. Its trouble is in the record, never raised. basis: of the state that it belongs to."""
    started, begun = turn.clock.now(), turn.clock.monotonic()
    node = Server(target.prober.insisting())
    found = Found(Quality.SKIPPED, "busy; a minimal probe got no answer in time", Check(started, sound=None))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(turn.timeout_seconds):
            found = await _found(node, wanted, turn)
    await node.look_back()
    if node.restarted() and node.stopped is not None:
        found = Found(Quality.UNKNOWN, node.stopped.reason, found.check)
    record = RunRecord(
        id=fresh_id("r", started, turn.random),
        target=target.name,
        task_set=wanted.name,
        pool=target.pool,
        trigger=Trigger.MINIMAL,
        started=started,
        seconds=turn.clock.monotonic() - begun,
        quality=found.quality,
        reason=found.reason,
        basis=basis,
        limits=wanted.limits_digest,
        node=node.identity,
        load_before=node.before,
        load_after=node.after,
    )
    one = TargetReport(target.name, node.identity, found.quality, (found.reason,), ())
    return Ran(record, found.check, Report(None, (one,), complete=True, trouble=found.trouble))


async def _found(node: Server, wanted: WatchedSet, turn: Turn) -> Found:
    nothing = Check(turn.clock.now(), sound=None)
    sequence = await _sequence(node, wanted)
    if isinstance(sequence, Missing):
        return Found(Quality.SKIPPED, f"busy, and no minimal probe could be made: {sequence.reason}", nothing)
    ask = Ask(ProbeMode.FIRST_TOKEN, min(K, wanted.k), (len(sequence.ids),))
    answer = await node.ask(sequence, ask)
    if node.confirmed:
        return await _held_against_baseline(node, sequence, ask, wanted=wanted, turn=turn)
    if node.corruption is not None:
        return Found(Quality.SKIPPED, f"busy; {seen_once(node.corruption)}", nothing)
    if isinstance(answer, Missing):
        return Found(Quality.SKIPPED, f"busy, and a minimal probe gave nothing: {answer.reason}", nothing)
    return Found(Quality.SKIPPED, CLEAN, nothing)


async def _sequence(node: Server, wanted: WatchedSet) -> GoldenSequence | Missing:
    """The beginning of the set's shortest prompt, in the node's own tokens; the node has then said who it is."""
    await node.begin()
    if node.stopped is not None:
        return node.stopped
    who = await node.guarded("minimal", node.prober.identify)
    if isinstance(who, Missing):
        return who
    node.identity = who
    prompt = min(wanted.prompts.prompts, key=lambda one: len(one.content))
    ids = await node.guarded("minimal", lambda: node.prober.tokenize(prompt))
    if isinstance(ids, Missing):
        return ids
    short = ids[:MOST_TOKENS]
    return GoldenSequence("minimal", short, len(short))


async def _held_against_baseline(
    node: Server, sequence: GoldenSequence, ask: Ask, *, wanted: WatchedSet, turn: Turn
) -> Found:
    """Broken numbers count only where the baseline answers the same question with sound ones.

    Enrolled answers were found sound when they were enrolled.
    """
    standing = (await chosen(turn.library, wanted, turn.baseline)).standing
    if standing.stored:
        return _held_against_enrolled(node, standing, turn)
    plan = plan_of(wanted, seed=turn.random.getrandbits(31))
    comparison = Comparison(turn.baseline, [], plan, cache=turn.cache, tell=turn.tell)
    await comparison.run()  # without a node it only lets the baseline introduce itself
    control = await comparison.baseline.ask(sequence, ask)
    check = await checked(comparison, wanted, turn, thorough=True, clean=False)
    await comparison.baseline.look_back()
    stopped = comparison.baseline.stopped
    trouble = stopped.reason if stopped is not None else None
    said = seen_twice(node.corruption)
    if isinstance(control, Missing) and not broken(control):
        said = f"busy; {said}, and the baseline could not be asked the same: {control.reason}"
        return Found(Quality.SKIPPED, said, check, trouble)
    if broken(control):
        return Found(Quality.SKIPPED, f"busy; {said}, and the baseline shows the same", check, trouble)
    return Found(Quality.CORRUPTED, said, check, trouble)


def _held_against_enrolled(node: Server, standing: ReferenceStanding, turn: Turn) -> Found:
    check, said = standing.check(turn.clock.now()), seen_twice(node.corruption)
    if standing.trouble is None:
        return Found(Quality.CORRUPTED, said, check)
    return Found(Quality.SKIPPED, f"busy; {said}, and there is no baseline to tell: {standing.trouble}", check)
