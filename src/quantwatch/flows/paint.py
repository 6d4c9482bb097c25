"""Memory and configuration -> the picture that is shown."""

from collections.abc import Mapping
from datetime import datetime

from quantwatch.flow.board import BaselineBoard, Board, PoolBoard, SelfBoard, SetBoard, TargetBoard, TaskSetBoard
from quantwatch.flow.check import Check
from quantwatch.flow.decision import Action, Result
from quantwatch.flow.pool import PoolStanding, PoolState
from quantwatch.flow.state import AWAY, Routing, TargetState
from quantwatch.flow.verdict import Quality
from quantwatch.flows.memory import Memory
from quantwatch.flows.pools import BASELINE
from quantwatch.flows.roll import missing
from quantwatch.flows.watched import Watched, WatchedPool, WatchedSet, Watchlist
from quantwatch.flows.weather import members
from quantwatch.flows.worker import Worker
from quantwatch.judge.brake import allowed
from quantwatch.judge.ladder import in_charge, may_leave
from quantwatch.judge.recovery import hold_ends, probation_ends
from quantwatch.judge.standing import FRESH_PERIODS, fresh, target_quality
from quantwatch.judge.yardstick import soundness


def paint(
    memory: Memory, watchlist: Watchlist, workers: Mapping[str, Worker], *, own: SelfBoard, now: datetime
) -> Board:
    """The whole picture at one moment."""
    present = [
        _target(one, watchlist.pools[one.pool], memory, worker=workers.get(one.name), now=now)
        for one in watchlist.targets.values()
    ]
    left = [_left(state) for state in memory.left_behind(watchlist.targets)]
    return Board(
        own=own,
        baseline=_baseline(memory, watchlist, now),
        targets=(*present, *left),
        pools=tuple(_pool(pool, watchlist, memory) for pool in watchlist.pools.values()),
        pauses=tuple(memory.pausing(now)),
        proposals=tuple(one for one in memory.proposals.values() if now < one.expires),
        task_sets=_task_sets(watchlist),
    )


def _baseline(memory: Memory, watchlist: Watchlist, now: datetime) -> BaselineBoard:
    fresh_ones = [one for pair, one in memory.checks.items() if _counts(pair, one, watchlist, now)]
    drifts = [one.drift for one in fresh_ones if one.drift is not None]
    drifted = next((one.trouble for one in memory.checks.values() if one.trouble is not None), None)
    return BaselineBoard(
        identity=memory.baseline,
        up=None if not memory.checks else memory.baseline_trouble is None,
        sound=False if drifted is not None else soundness(fresh_ones),
        trouble=memory.baseline_trouble or drifted,
        checked=max((one.at for one in memory.checks.values() if one.sound is not None or one.new), default=None),
        drift=max(drifts, default=None),
        references=tuple(memory.references[name] for name in sorted(watchlist.task_sets & memory.references.keys())),
        answers=memory.baseline_answers,
    )


def _counts(pair: tuple[str, str], check: Check, watchlist: Watchlist, now: datetime) -> bool:
    """Whether a self-check is of a configured pair and young enough."""
    target = watchlist.targets.get(pair[0])
    one = target.sets.get(pair[1]) if target is not None else None
    return one is not None and (now - check.at).total_seconds() <= FRESH_PERIODS * one.period_seconds


def _target(target: Watched, pool: WatchedPool, memory: Memory, *, worker: Worker | None, now: datetime) -> TargetBoard:
    state = memory.target_state(target.name, target.pool)
    states = memory.states_of(target.name, target.sets)
    quality, reason = target_quality(states, now=now, periods=target.periods)
    return TargetBoard(
        state=state,
        quality=quality,
        reason=reason,
        sets=tuple(_set(target.name, one, memory, now) for one in target.sets.values()),
        scheme=target.scheme,
        gateway_name=target.gateway_name,
        identity=memory.identities.get(target.name),
        handshake=memory.handshakes.get(target.name),
        running=worker.running if worker is not None else None,
        queued=worker.queued if worker is not None else 0,
        verified=_verified(state, memory),
        hold_until=hold_ends(state, minimum=pool.minimum_hold_seconds, jitter=pool.hold_jitter),
        probation_until=probation_ends(state, now=now, seconds=pool.probation_seconds),
        weight=memory.weights.get(target.name),
        counts=memory.counts.get(target.name),
    )


def _verified(state: TargetState, memory: Memory) -> bool | None:
    """Whether the order that took a target out was read back; None where it is not out by a decision of ours."""
    ended = memory.ended.get(state.target)
    if state.routing is not Routing.OUT or state.owner is None or ended is None or ended.outcome is None:
        return None
    ours = ended.order.decision == state.owner and ended.order.action is Action.ISOLATE
    return ended.outcome.result is Result.VERIFIED if ours else None


def _task_sets(watchlist: Watchlist) -> tuple[TaskSetBoard, ...]:
    """Each task set once; every target is asked about it in the same way."""
    known = {name: one for target in watchlist.targets.values() for name, one in target.sets.items()}
    return tuple(
        TaskSetBoard(name, one.prompts.digest, len(one.prompts.prompts), one.draw, k=one.k, mode=one.mode)
        for name, one in sorted(known.items())
    )


def _set(target: str, one: WatchedSet, memory: Memory, now: datetime) -> SetBoard:
    state = memory.set_state(target, one.name)
    return SetBoard(
        state=state,
        limits=one.limits,
        period=one.period_seconds,
        fresh=fresh(state, now=now, period_seconds=one.period_seconds),
        numbers=memory.numbers.get((target, one.name), {}),
        success=memory.success.get((target, one.name)),
        loads=memory.loads.get((target, one.name), (None, None)),
        since=memory.changed.get((target, one.name)),
    )


def _left(state: TargetState) -> TargetBoard:
    reason = "no longer in the configuration; its isolation stays until a person releases it"
    return TargetBoard(state, Quality.UNKNOWN, reason, (), left=True)


def _pool(pool: WatchedPool, watchlist: Watchlist, memory: Memory) -> PoolBoard:
    states = list(members(pool.name, watchlist, memory))
    stands = memory.storms.get(pool.name, PoolStanding(pool.name))
    names, share = {one.target for one in states}, pool.rules.max_isolated
    return PoolBoard(
        name=pool.name,
        mode=pool.rules.mode,
        targets=len(states),
        isolated=sum(one.routing in AWAY for one in states),
        allowed=may_leave(pool.ladder, names, share) if pool.ladder else allowed(len(states), share),
        storm=stands.state is not PoolState.HEALTHY,
        missing=missing(pool.name, watchlist, memory),
        rungs=tuple(one.name for one in pool.ladder),
        rung=in_charge(pool.ladder, names - {one.target for one in states if one.away} | {BASELINE}),
        stands=stands,
    )
