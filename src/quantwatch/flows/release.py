"""A person frees a target: from a person's word, from its isolation, or from what was measured up to now."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from quantwatch.errors import InputError, StoreError
from quantwatch.flow.decision import Action, Decision, Order, Origin, PoolMode, Ruling, Wish
from quantwatch.flow.run import fresh_id
from quantwatch.flow.state import Axis, Human, Routing, SetState, TargetState, Transition
from quantwatch.flow.verdict import BREACHES
from quantwatch.flow.word import Heard, Word
from quantwatch.flows.keeper import unbroken
from quantwatch.flows.orders import Due
from quantwatch.flows.watch import Watch
from quantwatch.flows.words import change, configured, known, paused, put, worded
from quantwatch.judge.streak import vouched
from quantwatch.log import logger

log = logger()

ISOLATED = (Routing.OUT, Routing.CONTRADICTED)


async def release(watch: Watch, word: Word) -> Heard:
    """Bring a target back and free it from what people have said. Raises InputError where nothing is to be freed.

    Neither a pause nor a breach holds a person back; both are told. Raises StoreError where nothing was done.
    """
    async with watch.one_at_a_time:  # what is checked must still be so when it is written
        old, now = watch.memory.targets.get(word.target), watch.clock.now()
        if old is None:
            raise InputError(f"{word.target} is not isolated by quantwatch")
        against = nothing_to_free(old)
        if against is not None:
            raise InputError(against)
        new = worded(old, Human.NONE, word, now)
        if ours(old):
            return await unbroken(_bring_back(watch, old, new, word))
        await unbroken(put(watch, old, new, word))
    return Heard(told=(f"it is free again; its routing is {old.routing}",))


def ours(old: TargetState) -> bool:
    """Whether a target is out by us, so that an order brings it back."""
    return old.routing in ISOLATED and old.owner is not None


def nothing_to_free(old: TargetState) -> str | None:
    """Why there is nothing to release about a target now; None where there is."""
    if old.human is not Human.NONE or ours(old):
        return None
    if old.routing is Routing.IN or old.owner is None:
        return f"{old.target} is not isolated by quantwatch"
    hint = "; `quantwatch hold` withdraws it" if old.routing is Routing.LEAVING else ""
    return f"an order for {old.target} is under way already{hint}"


def another_way(watch: Watch, old: TargetState) -> str | None:
    """Why a target cannot go back the way it went; None where it can."""
    driver = watch.generation.driver
    if old.driver in (None, driver.name):
        return None
    return f"{old.target} was isolated through {old.driver}, and the configuration names {driver.name} now"


async def confirm_healthy(watch: Watch, word: Word) -> Heard:
    """Vouch for a target: what was measured up to now counts no more, and it comes back where we isolated it.

    Raises InputError for a target that is not configured, StoreError where nothing was done.
    """
    async with watch.one_at_a_time:
        old, now = known(watch, word.target), watch.clock.now()
        target, _ = configured(watch, word.target)
        if not await watch.keeper.flush():
            raise StoreError(f"the store cannot be written: {watch.keeper.trouble}")
        before = watch.memory.states_of(word.target, target.sets)
        reason = f"{word.author} vouched for it: {word.reason}"
        sets = [vouched(one, reason=reason) for one in before]
        # In memory first, so that no run that ends meanwhile counts on what is over.
        _remember(watch, sets, replace(old, vouched=now))
        try:
            heard = await unbroken(_vouch(watch, old, before, sets=sets, word=word, now=now))
        except (InputError, StoreError):
            _remember(watch, before, old)
            raise
        others = [one for was, one in zip(before, sets, strict=True) if was.quality is not one.quality]
        watch.memory.changed |= {(one.target, one.task_set): now for one in others}
        return heard


def _remember(watch: Watch, sets: Sequence[SetState], state: TargetState) -> None:
    for one in sets:
        watch.memory.sets[one.target, one.task_set] = one
    watch.memory.targets[state.target] = state
    watch.memory.told.pop(state.target, None)


async def _vouch(
    watch: Watch,
    old: TargetState,
    before: Sequence[SetState],
    *,
    sets: Sequence[SetState],
    word: Word,
    now: datetime,
) -> Heard:
    free = replace(worded(old, Human.NONE, word, now), vouched=now, lane=None, gone=None)
    said = replace(word, reason=f"vouched for: {word.reason}")
    forgotten = [
        Transition(
            now,
            one.target,
            Axis.QUALITY,
            str(was.quality),
            str(one.quality),
            one.reason,
            one.task_set,
            author=word.author,
        )
        for was, one in zip(before, sets, strict=True)
        if was.quality is not one.quality
    ]
    if ours(old):
        return await _bring_back(watch, old, free, said, changes=forgotten, sets=sets)
    changes = [change(old, free, said, now), *forgotten]
    await watch.keeper.write(lambda store: store.save_target(free, changes, sets))
    watch.memory.targets[free.target] = free
    watch.memory.nothing_asked(free.target)
    for one in changes:
        watch.meters.transition(one)
    log.warning(f"a person has {said.reason}", target=free.target, author=word.author)
    return Heard()


async def _bring_back(
    watch: Watch,
    old: TargetState,
    new: TargetState,
    word: Word,
    *,
    changes: Sequence[Transition] = (),
    sets: Sequence[SetState] = (),
) -> Heard:
    """Order the release of an isolation of ours, the way it went."""
    driver, now = watch.generation.driver, watch.clock.now()
    against = another_way(watch, old)
    if against is not None:
        raise InputError(against)
    target = watch.watchlist.targets.get(old.target)
    mode = PoolMode.OBSERVE if target is None else watch.watchlist.pools[target.pool].rules.mode
    id_ = fresh_id("d", now, watch.random)
    wanted = Wish(Action.RELEASE, old.target, old.pool, f"{word.author}: {word.reason}")
    decision = Decision(id_, now, wanted, mode, Ruling.ACT, (), word.author, Origin.PERSON)
    node = old.node or (target.gateway_name if target is not None else old.target)
    order = Order(
        id_, Action.RELEASE, old.target, old.pool, node, driver.name, wanted.reason, "unknown", origin=Origin.PERSON
    )
    spoken = [change(old, new, word, now, decision=id_)] if new.human is not old.human or sets else []
    told = (*paused(watch, old), *breaching(watch, old.target, vouching=bool(sets)))
    await watch.orders.give(Due(decision, order, new), said=[*spoken, *changes], sets=sets)
    return Heard(id_, told)


def breaching(watch: Watch, name: str, *, vouching: bool) -> tuple[str, ...]:
    """That a target which comes back may soon leave again."""
    target = watch.watchlist.targets.get(name)
    if vouching or target is None:
        return ()
    bad = [one for one in watch.memory.states_of(name, target.sets) if one.quality in BREACHES]
    cure = "`quantwatch confirm-healthy` or `quantwatch hold` keeps it in"
    return tuple(f"{one.task_set} is {one.quality}, so it may go out again; {cure}" for one in bad[:1])
