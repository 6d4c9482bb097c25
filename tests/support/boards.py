"""Boards for tests: what the daemon shows, built without a daemon."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from quantwatch.flow.as_json import NUMBERS
from quantwatch.flow.board import BaselineBoard, Board, PoolBoard, SelfBoard, SetBoard, TargetBoard, TaskSetBoard
from quantwatch.flow.decision import Action, PoolMode
from quantwatch.flow.handshake import Handshake, Point, Seen
from quantwatch.flow.identity import Identity
from quantwatch.flow.load import Load
from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.proposal import Proposal
from quantwatch.flow.reference import ReferenceStanding, ReferenceState
from quantwatch.flow.run import RunRecord, Trigger
from quantwatch.flow.state import Human, Pause, Routing, SetState, TargetState
from quantwatch.flow.verdict import Limit, Metric, Quality

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LIMITS = {
    Metric.KL_MEAN: Limit(0.01, 0.05),
    Metric.KL_P99: Limit(None, 0.5),
    Metric.PERPLEXITY_RATIO: Limit(1.01, 1.02),
    Metric.TOP1_AGREEMENT: Limit(0.96, 0.94),
}


def numbers(**given: Any) -> dict[str, Any]:
    """The numbers of a run in the form of set_json, each a different one."""
    values: dict[str, Any] = {name: (i + 1) / 100 for i, name in enumerate(NUMBERS)}
    values |= {name: [values[name], values[name] + 0.005] for name in NUMBERS if name.endswith("interval")}
    values |= {"corrupted_positions": 0, "probe_seconds_baseline": 0.5, "probe_seconds_node": 0.25}
    return {**values, "positions": 960, "distinct_prompts": 20, "estimator": "sharp", "evidence": "draw", **given}


def set_board(target: str = "node-a", task_set: str = "math", **given: Any) -> SetBoard:
    """One target on one task set after a clean run; `given` goes to the state or to the board."""
    in_board = {name: given.pop(name) for name in SetBoard.__dataclass_fields__ if name in given}
    state = SetState(
        target,
        task_set,
        **{"quality": Quality.OK, "last": Quality.OK, "clean": 2, "run": "r-1", "at": AT, "reason": "fine", **given},
    )
    return SetBoard(**{"state": state, "limits": LIMITS, "period": 600.0, "fresh": True, **in_board})


def measured(target: str = "node-a", task_set: str = "math", **given: Any) -> SetBoard:
    """One target on one task set with its numbers."""
    return set_board(target, task_set, **{"numbers": numbers(), "success": AT, "since": AT, **given})


def target_board(name: str = "node-a", *sets: SetBoard, pool: str = "chat", **given: Any) -> TargetBoard:
    """One target; `given` goes to the state or to the board."""
    in_board = {key: given.pop(key) for key in TargetBoard.__dataclass_fields__ if key in given}
    identity = Identity(name, f"http://{name}:8000", "acme/model-int8", version="0.32.0", started=1.7e9)
    return TargetBoard(
        **{
            "state": TargetState(name, pool, **given),
            "quality": Quality.OK,
            "reason": "fine",
            "sets": sets or (measured(name),),
            "scheme": "int8",
            "gateway_name": f"http://{name}.gateway",
            "identity": identity,
            "handshake": Handshake(name, (Seen(Point.TOP_K, ok=True, detail="gives 20"),), complete=True),
            **in_board,
        }
    )


def isolated(name: str = "node-b", *sets: SetBoard, **given: Any) -> TargetBoard:
    """A target that we took out of traffic."""
    state = {"routing": Routing.OUT, "owner": "d-1", "since": AT, "ejections": 1, "lane": "limits"}
    state |= {"verified": True, "hold_until": AT}
    return target_board(
        name, *sets, **{**state, "quality": Quality.DEGRADED, "reason": "mean KL 0.2 is over 0.05", **given}
    )


def own(**given: Any) -> SelfBoard:
    """A daemon in good order."""
    return SelfBoard(
        **{"started": AT, "config_digest": "c" * 64, "reload_ok": True, "reloaded": AT, "restored": True, **given}
    )


def board(
    *targets: TargetBoard, mode: PoolMode = PoolMode.ENFORCE, pauses: tuple[Pause, ...] = (), **given: Any
) -> Board:
    """The whole picture in good order, with one pool; `given` goes to the daemon's own part."""
    baseline = BaselineBoard(
        Identity("baseline", "http://baseline", "acme/model"), up=True, sound=True, checked=AT, drift=1e-6
    )
    chosen = targets or (target_board(),)
    away = sum(one.state.routing is Routing.OUT for one in chosen)
    pools = (PoolBoard("chat", mode, len(chosen), away, 1),)
    math = TaskSetBoard("math", "f" * 64, prompts=200, draw=24, k=20, mode=ProbeMode.PROMPT_SCORING)
    return Board(own(**given), baseline, chosen, pools, pauses, task_sets=(math,))


def rich_board() -> Board:
    """A board on which every series has a value."""
    said = {"human": Human.FORCED_OUT, "human_author": "ada", "human_reason": "smoke", "human_until": AT}
    sick = isolated("node-b", measured("node-b"), queued=2, running="math", left=True, **said)
    paused = Pause("p-1", "pool:chat", "rollout", "ada", AT, None)
    sick = replace(sick, hold_until=AT)
    nodes = (target_board("node-a", measured(), measured(task_set="code"), ejections=1, probation_until=AT), sick)
    whole = board(*nodes, pauses=(paused,), notices_waiting={"ops": 3})
    reference = ReferenceStanding("math", ReferenceState.STORED, made=AT, digest="e" * 64, checked=AT, drift=2e-6)
    wish = Proposal("d-9", "node-a", "chat", Action.ISOLATE, "math is degraded", "r-1", AT, AT, objections="the cap")
    baseline = replace(whole.baseline, references=(reference,), answers=True)
    pool = replace(whole.pools[0], missing=("node-a",), rungs=("int8", "baseline"), rung="int8")
    counts = Load(broken_rows=3.0, runaway_rows=1.0, corrupted_requests=2.0)
    first = replace(whole.targets[0], weight=50, counts=counts)
    targets = (first, *whole.targets[1:])
    return replace(whole, baseline=baseline, proposals=(wish,), pools=(pool,), targets=targets)


def starting(whole: Board) -> Board:
    """The same board before the store has been read."""
    return replace(whole, own=replace(whole.own, restored=False))


def run_record(target: str = "node-a", task_set: str = "math", **given: Any) -> RunRecord:
    """A run that ended well."""
    facts = {"id": "r-1", "pool": "chat", "trigger": Trigger.SCHEDULE, "started": AT, "seconds": 3.0}
    return RunRecord(
        **{**facts, "target": target, "task_set": task_set, "quality": Quality.OK, "reason": "fine", **given}
    )
