"""A person's word about a target: how it is put down, how long it holds, and how it forces a target out."""

from dataclasses import replace
from datetime import datetime, timedelta

from quantwatch.errors import InputError, NeedsForce
from quantwatch.flow.decision import Action, Decision, Objection, Origin, Ruling, Wish
from quantwatch.flow.fleet import Fallback
from quantwatch.flow.run import fresh_id
from quantwatch.flow.state import Axis, Human, Routing, TargetState, Transition
from quantwatch.flow.word import Heard, Word
from quantwatch.flows.case import pause_over
from quantwatch.flows.decide import rungs_above
from quantwatch.flows.keeper import unbroken
from quantwatch.flows.order import order_of
from quantwatch.flows.orders import Due
from quantwatch.flows.scene import scene
from quantwatch.flows.watch import Watch
from quantwatch.flows.watched import Watched, WatchedPool
from quantwatch.judge.brake import forcible, ordered
from quantwatch.judge.ladder import aimed
from quantwatch.log import logger

log = logger()


def worded(old: TargetState, human: Human, word: Word, now: datetime) -> TargetState:
    """Where a target stands once a person has spoken; a word of NONE frees it from every other."""
    if human is Human.NONE:
        return replace(old, human=human, human_author=None, human_reason=None, human_since=None, human_until=None)
    until = None if word.seconds is None else now + timedelta(seconds=word.seconds)
    said = replace(old, human=human, human_author=word.author, human_reason=word.reason)
    return replace(said, human_since=now, human_until=until)


def change(old: TargetState, new: TargetState, word: Word, now: datetime, *, decision: str | None = None) -> Transition:
    """The transition on the human axis."""
    until = "" if new.human_until is None else f" (until {new.human_until:%Y-%m-%d %H:%M} UTC)"
    said = f"{word.reason}{until}"
    return Transition(
        now, new.target, Axis.HUMAN, str(old.human), str(new.human), said, decision=decision, author=word.author
    )


async def put(watch: Watch, old: TargetState, new: TargetState, word: Word) -> None:
    """Write a word down to which no order belongs. Raises StoreError, and then it was not said."""
    one = change(old, new, word, watch.clock.now())
    await watch.keeper.write(lambda store: store.save_target(new, [one]))
    watch.memory.targets[new.target] = new
    watch.meters.transition(one)
    log.warning(f"a person has said {new.human}: {one.reason}", target=new.target, author=word.author)


async def hold(watch: Watch, word: Word) -> Heard:
    """Let nothing automatic change a target's routing. Raises InputError for an unknown target, StoreError."""
    async with watch.one_at_a_time:
        old = known(watch, word.target)
        await unbroken(put(watch, old, worded(old, Human.HELD, word, watch.clock.now()), word))
    return Heard(told=withdrawn(old))


def withdrawn(old: TargetState) -> tuple[str, ...]:
    """What a hold does to an order that is under way."""
    open_order = old.routing in (Routing.LEAVING, Routing.RETURNING)
    return ("the order that is under way is withdrawn",) if open_order else ()


async def isolate(watch: Watch, word: Word) -> Heard:
    """Take a target out of traffic and keep it out. Raises InputError where that cannot be, StoreError."""
    asked, pool = configured(watch, word.target)
    fallbacks = await watch.turns.decider.ask_ahead(pool, [asked])
    async with watch.one_at_a_time:
        target, still = configured(watch, word.target)
        if still != pool:
            raise InputError("the configuration has just changed; try again")
        old = watch.memory.target_state(target.name, pool.name)
        if old.routing in (Routing.IN, Routing.CONTRADICTED):
            fallback = fallbacks.get(rungs_above(target, pool))
            return await unbroken(_isolate(watch, word, target, fallback=fallback))
        await unbroken(put(watch, old, worded(old, Human.FORCED_OUT, word, watch.clock.now()), word))
    return Heard(told=(stays_out(old),))


def stays_out(old: TargetState) -> str:
    """What isolating comes to where the target is out already."""
    return f"it is out of traffic or on its way by decision {old.owner}, and stays out"


async def looked_at(
    watch: Watch, word: Word, target: Watched, *, fallback: Fallback | None
) -> tuple[Wish, Ruling, tuple[Objection, ...]]:
    """What becomes of a person's order to isolate, as everything stands now. Raises InputError, StoreError."""
    driver = watch.generation.driver
    if not driver.abilities.acts:
        raise InputError(f"gateway.driver {driver.name} changes nothing, so nothing can be isolated through it")
    wanted = Wish(Action.ISOLATE, target.name, target.pool, f"{word.author}: {word.reason}")
    now = watch.clock.now()
    fleet = await scene(wanted, watch.watchlist, watch.memory, watch.keeper, now=now, fallback=fallback)
    wanted = aimed(wanted, fleet)
    return (wanted, *ordered(wanted, fleet, force=word.force))


async def _isolate(watch: Watch, word: Word, target: Watched, *, fallback: Fallback | None) -> Heard:
    pool, driver, now = watch.watchlist.pools[target.pool], watch.generation.driver, watch.clock.now()
    wanted, ruled, found = await looked_at(watch, word, target, fallback=fallback)
    if ruled is not Ruling.ACT:
        raise refusal(found)
    id_ = fresh_id("d", now, watch.random)
    decision = Decision(id_, now, wanted, pool.rules.mode, ruled, found, word.author, Origin.PERSON)
    states = watch.memory.states_of(target.name, target.sets)
    order = replace(order_of(decision, target, pool, driver=driver.name, states=states), verdict="unknown")
    old = watch.memory.target_state(target.name, pool.name)
    new = worded(old, Human.FORCED_OUT, word, now)
    await watch.orders.give(Due(decision, order, new), said=[change(old, new, word, now, decision=id_)])
    return Heard(id_, tuple(one.reason for one in found))


def refusal(found: tuple[Objection, ...]) -> InputError:
    """Why a person's order to isolate is refused; a NeedsForce where insisting helps."""
    kind = NeedsForce if forcible(found) else InputError
    return kind(f"not isolated: {'; '.join(one.reason for one in found)}")


def known(watch: Watch, name: str) -> TargetState:
    """Where a target stands that is configured, or was. Raises InputError for any other."""
    target = watch.watchlist.targets.get(name)
    if target is not None:
        return watch.memory.target_state(name, target.pool)
    if name not in watch.memory.targets:
        raise InputError(f"there is no target {name}")
    return watch.memory.targets[name]


def configured(watch: Watch, name: str) -> tuple[Watched, WatchedPool]:
    """A target as it is configured, and its pool. Raises InputError for one that is not."""
    target = watch.watchlist.targets.get(name)
    if target is None:
        raise InputError(f"{name} is not in the configuration, so nothing but a release can be said about it")
    return target, watch.watchlist.pools[target.pool]


def paused(watch: Watch, state: TargetState) -> tuple[str, ...]:
    """What a person who acts all the same should know: that somebody paused."""
    pause = pause_over(state.target, state.pool, watch.memory, watch.watchlist, now=watch.clock.now())
    if pause is None:
        return ()
    ends = "; it closes by itself" if pause.window else ""
    return (f"{pause.said}{ends}",)
