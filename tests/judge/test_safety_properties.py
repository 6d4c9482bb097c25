"""What must hold whatever happens: over random fleets, and over random histories of runs."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from hypothesis import event, given, settings
from hypothesis import strategies as st

from quantwatch.flow.decision import Action, Brake, Lane, PoolMode, Ruling, Wish
from quantwatch.flow.fleet import Fallback, Fleet, PoolRules
from quantwatch.flow.identity import Identity
from quantwatch.flow.run import RunRecord, Trigger
from quantwatch.flow.state import AWAY, Human, Pause, Routing, SetState, TargetState
from quantwatch.flow.verdict import BREACHES, CANNOT_TELL, Quality
from quantwatch.judge.brake import allowed, objections, ruling
from quantwatch.judge.standing import FRESH_PERIODS
from quantwatch.judge.streak import advance
from quantwatch.judge.wish import WishRules, wish, withdrawn

T = TypeVar("T")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
PERIOD = 600.0
SETS = ("chat", "math")
SHARES = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.29, 0.3, 0.34, 0.5, 0.7, 1.0]))


def usually(value: T, *others: T) -> st.SearchStrategy[T]:
    """Mostly one value, so that random fleets are often whole enough to act."""
    return st.sampled_from([value] * 9 * len(others) + list(others))


MEMBERS = st.builds(
    TargetState,
    st.just("name"),
    st.just("blue"),
    usually(Routing.IN, *Routing),
    usually(Human.NONE, *Human),
    owner=st.sampled_from([None, "d-1"]),
)
SOUND: tuple[bool | None, ...] = (True, False, None)
CALM = (False, True)
FALLBACKS = st.builds(
    Fallback,
    st.just("baseline"),
    healthy=usually(*SOUND),
    waiting=usually(0.0, 99.0, None),
    kv_usage=usually(0.1, 0.99, None),
)
PAUSES = st.builds(
    Pause,
    st.just("p"),
    st.sampled_from(["all", "pool:blue", "pool:red", "target:node-0", "target:node-1"]),
    st.just("maintenance"),
    st.just("ada"),
    st.just(NOW - timedelta(hours=2)),
    st.sampled_from([None, NOW - timedelta(hours=1), NOW, NOW + timedelta(hours=1)]),
)
RULES = st.builds(
    PoolRules,
    usually(PoolMode.ENFORCE, *PoolMode),
    max_isolated=SHARES,
    actions_per_hour=st.integers(1, 4),
    storm_share=SHARES,
)


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    """A pool of one to a dozen members, whole more often than not."""
    drawn = draw(st.lists(MEMBERS, min_size=1, max_size=12))
    members = tuple(replace(one, target=f"node-{i}") for i, one in enumerate(drawn))
    return Fleet(
        "blue",
        draw(RULES),
        members,
        NOW,
        breaching=draw(st.frozensets(st.sampled_from([one.target for one in members]), max_size=3)),
        sound=frozenset(one.target for one in members if not draw(st.sampled_from((False, False, True)))),
        storming=draw(usually(*CALM)),
        fallback=draw(st.none() | FALLBACKS),
        fallback_for=draw(usually((), ("green",))),
        recent_actions=draw(usually(0, 1, 2, 3, 4)),
        pauses=draw(st.just(()) | st.just(()) | st.tuples(PAUSES)),
        yardstick=draw(usually(None, "other weights")),
        store=draw(usually(None, "disk full")),
        driver=draw(usually(None, "another driver took it out")),
    )


def asking(action: Action, target: str) -> Wish:
    return Wish(action, target, "blue", "because", lane=Lane.LIMITS if action is Action.ISOLATE else None)


@given(fleets(), st.sampled_from(Action))
def test_what_acts_may_act(fleet: Fleet, action: Action) -> None:
    """Nothing acts outside enforce, under a pause, without a store or gateway, on a doubtful yardstick, or against a
    person."""
    (target, *_) = fleet.members
    found, objecting = ruling(asking(action, target.target), fleet)
    event(f"{action}: {found}")
    assert (found is Ruling.ACT) is (objecting == ())
    if found is Ruling.ACT:
        assert fleet.rules.mode is PoolMode.ENFORCE
        assert not any(one.covers(target.target, "blue", now=NOW) for one in fleet.pauses)
        assert fleet.store is None
        assert fleet.driver is None
        assert fleet.yardstick is None
        assert target.human is Human.NONE


@settings(max_examples=500)
@given(fleets())
def test_after_an_isolation_the_pool_still_serves(fleet: Fleet) -> None:
    """Enough members stay, one backend at least, and whoever takes the traffic is sound and has room."""
    (target, *others) = fleet.members
    found = ruling(asking(Action.ISOLATE, target.target), fleet)[0]
    event(found)
    if found is not Ruling.ACT:
        return
    away = 1 + sum(one.routing in AWAY for one in others)
    assert away <= allowed(len(fleet.members), fleet.rules.max_isolated) or len(fleet.members) == 1
    assert away <= fleet.rules.max_isolated * len(fleet.members) * (1 + 1e-12) or len(fleet.members) == 1
    verified = fleet.fallback is not None and fleet.fallback.healthy is True
    in_traffic = {one.target for one in others if one.routing is Routing.IN and one.human is not Human.FORCED_OUT}
    backends = (in_traffic & fleet.sound) - fleet.breaching
    event(f"verified fallback: {verified}, sound members: {bool(backends)}")
    assert verified or backends
    if fleet.fallback is not None:
        assert (fleet.fallback.healthy, fleet.fallback.waiting, fleet.fallback.kv_usage) == (True, 0.0, 0.1)
    assert not fleet.storming
    assert fleet.fallback_for == ()
    assert fleet.recent_actions < fleet.rules.actions_per_hour


@given(fleets())
def test_what_only_nodes_of_unknown_health_could_serve_is_not_isolated(fleet: Fleet) -> None:
    dark = replace(fleet, sound=frozenset({"node-0"}), fallback=None)
    assert Brake.LAST_BACKEND in {one.brake for one in objections(asking(Action.ISOLATE, "node-0"), dark)}


@given(fleets())
def test_a_dry_run_tells_what_enforce_would_do(fleet: Fleet) -> None:
    def in_mode(mode: PoolMode) -> Ruling:
        return ruling(asking(Action.ISOLATE, "node-0"), replace(fleet, rules=replace(fleet.rules, mode=mode)))[0]

    assert (in_mode(PoolMode.DRY_RUN) is Ruling.WOULD_HAVE) is (in_mode(PoolMode.ENFORCE) is Ruling.ACT)
    assert in_mode(PoolMode.OBSERVE) is Ruling.SUPPRESSED
    assert in_mode(PoolMode.APPROVE) in (Ruling.PROPOSED, Ruling.SUPPRESSED)
    if in_mode(PoolMode.ENFORCE) is Ruling.ACT:
        assert in_mode(PoolMode.APPROVE) is Ruling.PROPOSED


@given(fleets(), st.sampled_from(Action))
def test_one_more_pause_never_lets_anything_through(fleet: Fleet, action: Action) -> None:
    asked = asking(action, "node-0")
    paused = replace(fleet, pauses=(*fleet.pauses, Pause("p", "all", "stop", "ada", NOW)))
    before = {one.brake for one in objections(asked, fleet)}
    after = {one.brake for one in objections(asked, paused)}
    assert before < after or before == after != set()


@given(st.integers(2, 200), st.integers(0, 100))
def test_the_cap_is_the_exact_share(members: int, percent: int) -> None:
    assert allowed(members, percent / 100) == members * percent // 100


def process(started: float) -> Identity:
    return Identity("node", "http://node", "model", version="1", started=started)


FIRST, SECOND = process(1.0), process(2.0)
ABOUT: dict[str, tuple[Identity | None, str]] = {
    "a": (FIRST, "l-1"),
    "b": (SECOND, "l-1"),
    "c": (FIRST, "l-2"),
    "": (None, ""),
}
"""By basis: which process its runs measured, and by which limits they were judged."""


@dataclass(frozen=True)
class Step:
    """One run of a history, and how long after the run before it ended."""

    task_set: str
    quality: Quality
    basis: str
    gap: float


def steps(*qualities: Quality) -> st.SearchStrategy[Step]:
    return st.builds(
        Step,
        st.sampled_from(SETS),
        st.sampled_from(qualities),
        usually("a", "b", "c", ""),
        usually(PERIOD / 2, 1.0, PERIOD, 3 * PERIOD),
    )


HISTORIES = st.lists(steps(Quality.DEGRADED) | steps(Quality.OK) | steps(*Quality), max_size=14)
LANES = st.fixed_dictionaries(
    {name: usually(frozenset(Lane), frozenset(), *(frozenset({lane}) for lane in Lane)) for name in SETS}
)


def rules_of(act_on: dict[str, frozenset[Lane]], release_after: int = 2) -> WishRules:
    return WishRules(act_on, dict.fromkeys(SETS, PERIOD), release_after, 0.0)


ANYTHING = rules_of(dict.fromkeys(SETS, frozenset(Lane)))


def lived(history: list[Step], *, confirm_cycles: int, confirming: bool = True) -> tuple[dict[str, SetState], datetime]:
    """The states after a history, and when its last run ended. confirming: breaches that complete a row confirm it."""
    states = {name: SetState("node", name) for name in SETS}
    now = NOW
    for number, step in enumerate(history):
        now += timedelta(seconds=step.gap)
        due = confirming and step.quality is Quality.DEGRADED and states[step.task_set].breaches >= confirm_cycles - 1
        done = RunRecord(
            id=f"r-{number}",
            target="node",
            task_set=step.task_set,
            pool="blue",
            trigger=Trigger.CONFIRM if due else Trigger.SCHEDULE,
            started=now,
            seconds=0.0,
            quality=step.quality,
            reason=step.quality.value,
            basis=step.basis,
            node=ABOUT[step.basis][0],
            limits=ABOUT[step.basis][1],
        )
        states[step.task_set] = advance(states[step.task_set], done, confirm_cycles=confirm_cycles)
    return states, now


@given(HISTORIES, st.integers(2, 4))
def test_without_a_confirming_run_nothing_is_degraded(history: list[Step], confirm_cycles: int) -> None:
    states, _ = lived(history, confirm_cycles=confirm_cycles, confirming=False)
    assert all(one.quality is not Quality.DEGRADED for one in states.values())


def proof(history: list[Step], task_set: str, *, confirm_cycles: int) -> set[Lane]:
    """The lanes for which a history holds proof, found by search: the newest basis of a task set, run by run."""
    mine = [one for one in history if one.task_set == task_set]
    proved: set[Lane] = set()
    row, basis = 0, ""
    for step in mine:
        if step.quality in CANNOT_TELL and step.basis in ("", basis):
            row = 0 if step.quality is Quality.INCONCLUSIVE else row
            continue
        if step.basis != basis or not step.basis:
            proved, row, basis = set(), 0, step.basis
        if step.quality in (Quality.OK, Quality.WARN):
            proved, row = set(), 0
        row = row + 1 if step.quality is Quality.DEGRADED else 0
        if row >= confirm_cycles:
            proved.add(Lane.LIMITS)
        if step.quality is Quality.CORRUPTED:
            proved.add(Lane.CORRUPTED)
    return proved


@settings(max_examples=500)
@given(HISTORIES, LANES, st.integers(2, 4), usually(0.0, PERIOD, 2 * PERIOD, 3 * PERIOD))
def test_nothing_is_isolated_without_fresh_proof(
    history: list[Step], act_on: dict[str, frozenset[Lane]], confirm_cycles: int, later: float
) -> None:
    """Proof is one corrupted run, or as many degraded runs of one basis as asked for, skips aside, and young enough."""
    states, ended = lived(history, confirm_cycles=confirm_cycles)
    now = ended + timedelta(seconds=later)
    found = wish(TargetState("node", "blue"), list(states.values()), rules_of(act_on), now=now, process=FIRST.process)
    event(f"wish: {found and found.lane}")
    if found is None:
        return
    assert found.action is Action.ISOLATE
    assert found.task_set is not None
    assert found.lane in act_on[found.task_set]
    assert found.lane in proof(history, found.task_set, confirm_cycles=confirm_cycles)
    assert found.run is not None
    named = history[int(found.run.removeprefix("r-"))]
    assert named.quality in BREACHES
    assert named.task_set == found.task_set
    at = states[found.task_set].at
    assert at is not None
    assert (now - at).total_seconds() <= FRESH_PERIODS * PERIOD


PROCESSES = st.sampled_from([None, FIRST.process, SECOND.process])
LIMITS = st.fixed_dictionaries({}, optional=dict.fromkeys(SETS, st.sampled_from(["l-1", "l-2", ""])))


@given(HISTORIES, st.integers(2, 4), st.sampled_from("abc"), st.booleans(), st.booleans())
def test_fresh_proof_is_enough_to_wish(
    history: list[Step], confirm_cycles: int, basis: str, process_told: bool, limits_told: bool
) -> None:
    """The other way round, so that the properties around it cannot hold because nothing is ever wished."""
    bad = [Step("chat", Quality.DEGRADED, basis, 1.0)] * confirm_cycles
    states, now = lived([*history, *bad], confirm_cycles=confirm_cycles)
    node, limits = ABOUT[basis]
    rules = replace(ANYTHING, limits={"chat": limits} if limits_told else {})
    runs_now = node.process if node is not None and process_told else None
    found = wish(TargetState("node", "blue"), list(states.values()), rules, now=now, process=runs_now)
    assert found is not None
    assert found.action is Action.ISOLATE


def basis_of(history: list[Step], task_set: str) -> str:
    """What the newest evidence on a task set is about; a run that neither measured nor learned anything is none."""
    told = [one for one in history if one.task_set == task_set and (one.basis or one.quality not in CANNOT_TELL)]
    return told[-1].basis


@settings(max_examples=500)
@given(HISTORIES, st.sampled_from("abc"), PROCESSES, LIMITS)
def test_nothing_is_isolated_for_another_process_or_by_other_limits(
    history: list[Step], basis: str, runs_now: str | None, in_force: dict[str, str]
) -> None:
    bad = [Step("chat", Quality.CORRUPTED, basis, 1.0)]
    lives = [*bad, *history]
    states, now = lived(lives, confirm_cycles=2)
    rules = replace(ANYTHING, limits=in_force)
    found = wish(TargetState("node", "blue"), list(states.values()), rules, now=now, process=runs_now)
    event(f"wish: {found is not None}")
    if found is None:
        return
    assert found.task_set is not None
    node, limits = ABOUT[basis_of(lives, found.task_set)]
    assert node is None or runs_now in (None, node.process)
    assert limits == "" or in_force.get(found.task_set, "") in ("", limits)


@settings(max_examples=300)
@given(HISTORIES, LANES, usually(0.0, PERIOD, 2 * PERIOD, 3 * PERIOD), st.booleans())
def test_an_order_to_isolate_stays_wanted_exactly_while_it_would_be_given_again(
    history: list[Step], act_on: dict[str, frozenset[Lane]], later: float, bad: bool
) -> None:
    breach = [Step("chat", Quality.CORRUPTED, "a", 1.0)] if bad else []
    states, ended = lived([*history, *breach], confirm_cycles=2)
    known, rules, now = list(states.values()), rules_of(act_on), ended + timedelta(seconds=later)
    asked = wish(TargetState("node", "blue"), known, rules, now=now, process=None)
    leaving = TargetState("node", "blue", Routing.LEAVING, owner="d-1", since=ended)
    event(f"asked: {asked is not None}")
    assert (withdrawn(Action.ISOLATE, leaving, known, rules, now=now) is None) is (asked is not None)


TARGETS = st.builds(
    TargetState,
    st.just("node"),
    st.just("blue"),
    st.sampled_from([Routing.OUT, *Routing]),
    usually(Human.NONE, *Human),
    owner=usually("d-1", None),
    since=st.sampled_from([None, NOW - timedelta(days=1), NOW + timedelta(seconds=PERIOD)]),
    ejections=st.integers(0, 20),
    gone=PROCESSES,
    lane=st.sampled_from([None, "limits", "corrupted"]),
)


@given(st.lists(steps(*sorted(CANNOT_TELL)), max_size=14), TARGETS, PROCESSES)
def test_runs_that_cannot_tell_never_lead_to_anything(
    history: list[Step], target: TargetState, process: str | None
) -> None:
    states, now = lived(history, confirm_cycles=2)
    known = list(states.values())
    assert wish(target, known, ANYTHING, now=now, process=process) is None
    calm = replace(target, human=Human.NONE)
    assert withdrawn(Action.RELEASE, calm, known, ANYTHING, now=now) is None
    assert withdrawn(Action.ISOLATE, calm, known, ANYTHING, now=now) == "no breach stands any more"


@settings(max_examples=500)
@given(HISTORIES, TARGETS, PROCESSES, st.booleans())
def test_only_what_is_ours_and_clean_is_released(
    history: list[Step], target: TargetState, process: str | None, mended: bool
) -> None:
    """The latest runs of every task set were clean, and a corrupted node is another process by now."""
    good = [Step(name, Quality.OK, "a", 1.0) for name in SETS] * 2
    lives = [*history, *good] if mended else history
    states, now = lived(lives, confirm_cycles=2)
    found = wish(target, list(states.values()), ANYTHING, now=now, process=process)
    event(f"wish: {found and found.action}")
    if target.human is not Human.NONE:
        assert found is None
    if found is None or found.action is Action.ISOLATE:
        assert found is None or target.routing is Routing.IN
        return
    assert (target.routing, target.owner, target.human) == (Routing.OUT, "d-1", Human.NONE)
    for name in SETS:
        mine = [one for one in lives if one.task_set == name and one.quality not in CANNOT_TELL]
        assert [one.quality for one in mine[-2:]] == [Quality.OK, Quality.OK]
    if target.lane == "corrupted":
        assert None not in (process, target.gone)
        assert process != target.gone
