"""What a person's word would lead to now, by the very looks that are taken when it is said. Changes nothing."""

from dataclasses import replace

from quantwatch.errors import InputError, StoreError
from quantwatch.flow.decision import Action, Ruling
from quantwatch.flow.foresight import Foreseen
from quantwatch.flow.state import Routing
from quantwatch.flow.word import Word
from quantwatch.flows.approve import against, now_standing, ruled_together, waiting
from quantwatch.flows.case import Case, PoolCase
from quantwatch.flows.decide import rungs_above
from quantwatch.flows.release import another_way, breaching, nothing_to_free, ours
from quantwatch.flows.watch import Watch
from quantwatch.flows.words import configured, known, looked_at, paused, refusal, stays_out, withdrawn

NOBODY = "a person"


async def foresee(watch: Watch, call: str, about: str, *, force: bool = False) -> Foreseen:
    """What a call would lead to. about: a target, or the proposal of an approval.

    A call that is not known here leads to nothing but itself.
    """
    try:
        if call == "isolate":
            return await _isolation(watch, Word(about, NOBODY, "", force=force))
        if call == "approve":
            return await _approval(watch, about)
        return _said(watch, call, about)
    except (InputError, StoreError) as exc:
        return Foreseen(refused=str(exc))


def _said(watch: Watch, call: str, about: str) -> Foreseen:
    """What needs nobody to be asked."""
    if call == "reject":
        return Foreseen(told=(waiting(watch, about).reason,))
    if call == "hold":
        return Foreseen(told=withdrawn(known(watch, about)))
    if call in ("release", "confirm_healthy"):
        return _return(watch, about, vouching=call == "confirm_healthy")
    return Foreseen()


async def _isolation(watch: Watch, word: Word) -> Foreseen:
    target, pool = configured(watch, word.target)
    old = watch.memory.target_state(target.name, pool.name)
    if old.routing not in (Routing.IN, Routing.CONTRADICTED):
        return Foreseen(told=(stays_out(old),))
    fallbacks = await watch.turns.decider.ask_ahead(pool, [target])
    fallback = fallbacks.get(rungs_above(target, pool))
    _, ruled, found = await looked_at(watch, word, target, fallback=fallback)
    objections, brakes = tuple(one.reason for one in found), frozenset(one.brake for one in found)
    if ruled is Ruling.ACT:
        return Foreseen(Action.ISOLATE, objections=objections, fallback=fallback, brakes=brakes)
    _, forced, _ = await looked_at(watch, replace(word, force=True), target, fallback=fallback)
    return Foreseen(
        Action.ISOLATE,
        str(refusal(found)),
        forcible=forced is Ruling.ACT,
        objections=objections,
        fallback=fallback,
        brakes=brakes,
    )


def _return(watch: Watch, name: str, *, vouching: bool) -> Foreseen:
    old = known(watch, name)
    if vouching:
        configured(watch, name)
    refused = None if vouching else nothing_to_free(old)
    if refused is None and ours(old):
        refused = another_way(watch, old)
    if not ours(old):
        return Foreseen(refused=refused)
    told = (*paused(watch, old), *breaching(watch, name, vouching=vouching))
    return Foreseen(Action.RELEASE, refused, told=told)


async def _approval(watch: Watch, given: str) -> Foreseen:
    proposal = waiting(watch, given)
    found = now_standing(watch, proposal)
    if isinstance(found, str):
        return Foreseen(proposal.action, found)
    if not watch.generation.driver.abilities.acts:
        name = watch.generation.driver.name
        return Foreseen(proposal.action, f"gateway.driver {name} changes nothing, so there is nothing to approve")
    if isinstance(found, PoolCase):
        return await _approval_of_pool(watch, found)
    return await _approval_of_one(watch, found)


async def _approval_of_one(watch: Watch, case: Case) -> Foreseen:
    fallbacks = await watch.turns.decider.ask_ahead(case.pool, [case.target])
    fallback = fallbacks.get(rungs_above(case.target, case.pool))
    wanted, objecting = await watch.turns.decider.objecting(case, fallback)
    objections = tuple(one.reason for one in objecting)
    stand_in = fallback if wanted.action is Action.ISOLATE else None
    return Foreseen(wanted.action, "; ".join(objections) or None, objections=objections, fallback=stand_in)


async def _approval_of_pool(watch: Watch, case: PoolCase) -> Foreseen:
    fallbacks = await watch.turns.decider.ask_ahead(case.pool, [one.target for one in case.members])
    ruled = await ruled_together(watch, case, fallbacks)
    going = tuple(one.target.name for one, (ruling, _) in ruled if ruling is Ruling.ACT)
    staying = tuple(
        f"{one.target.name} stays: {against(found)}" for one, (ruling, found) in ruled if ruling is not Ruling.ACT
    )
    refused = None if going else "; ".join(staying)
    told = tuple(f"{name} leaves" for name in going)
    fallback = next((one for one in fallbacks.values() if one is not None), None)
    return Foreseen(Action.ISOLATE, refused, objections=staying, fallback=fallback, told=told)
