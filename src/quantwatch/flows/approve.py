"""A person answers a proposal: yes, after everything was looked at again, or no."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from quantwatch.errors import InputError
from quantwatch.flow.decision import Decision, Objection, Origin, Ruling
from quantwatch.flow.fleet import Fallback
from quantwatch.flow.proposal import Fate, Proposal
from quantwatch.flow.run import fresh_id
from quantwatch.flow.word import Heard
from quantwatch.flows.case import Case, PoolCase, standing
from quantwatch.flows.decide import rungs_above
from quantwatch.flows.keeper import unbroken
from quantwatch.flows.watch import Watch
from quantwatch.judge.fleet import OVERRIDDEN, said, together


async def approve(watch: Watch, given: str, *, author: str, reason: str = "") -> Heard:
    """Give the order that a proposal asks for, under its id. given: the id, its beginning or its end.

    reason: why the person agrees; it is kept with the proposal.

    One about a whole pool leads to an order for each member, under ids of their own. Raises InputError where nothing of
    that id waits, where its evidence no longer stands, and where a brake objects now; StoreError where nothing is done.
    """
    found = now_standing(watch, waiting(watch, given))
    fallbacks: Mapping[int, Fallback | None] = {}
    if not isinstance(found, str):
        members = [found] if isinstance(found, Case) else found.members
        fallbacks = await watch.turns.decider.ask_ahead(found.pool, [one.target for one in members])
    async with watch.one_at_a_time:
        proposal = waiting(watch, given)
        case = now_standing(watch, proposal)
        if isinstance(case, str):
            await watch.proposals.tend()
            raise InputError(f"not approved, and {proposal.decision} is closed: {case}")
        if isinstance(found, str) or case.pool != found.pool:
            raise InputError("the configuration has just changed; try again")
        if not watch.generation.driver.abilities.acts:
            name = watch.generation.driver.name
            raise InputError(f"gateway.driver {name} changes nothing, so there is nothing to approve")
        if isinstance(case, PoolCase):
            return await unbroken(
                _approve_pool(watch, proposal, case, fallbacks=fallbacks, author=author, reason=reason)
            )
        fallback = fallbacks.get(rungs_above(case.target, case.pool))
        return await unbroken(_approve(watch, proposal, case, fallback=fallback, author=author, reason=reason))


async def reject(watch: Watch, given: str, *, author: str, reason: str) -> Heard:
    """Close a proposal; the same wish rests for a while and then needs new evidence. Raises InputError, StoreError."""
    async with watch.one_at_a_time:
        proposal = waiting(watch, given)
        await watch.proposals.close(proposal, Fate.REJECTED, author=author, said=reason)
    return Heard(proposal.decision)


async def _approve(
    watch: Watch, proposal: Proposal, case: Case, *, fallback: Fallback | None, author: str, reason: str
) -> Heard:
    wanted, objecting = await watch.turns.decider.objecting(case, fallback)
    if objecting:
        raise InputError(_stays_open(proposal, (one.reason for one in objecting)))
    now = watch.clock.now()
    decision = Decision(
        proposal.decision, now, wanted, case.pool.rules.mode, Ruling.ACT, author=author, origin=Origin.APPROVED
    )
    closed = watch.proposals.closed(proposal, Fate.APPROVED, author=author, said=reason or wanted.reason)
    await watch.turns.decider.act(decision, case, closing=closed)
    watch.proposals.forget(closed)
    return Heard(proposal.decision)


async def _approve_pool(
    watch: Watch,
    proposal: Proposal,
    case: PoolCase,
    *,
    fallbacks: Mapping[int, Fallback | None],
    author: str,
    reason: str,
) -> Heard:
    """Isolate every member with a confirmed breach: an order and a decision each, all written down at once.

    Cap, storm and rate are overridden, and told; who is held back by anything else stays, and that is told too.
    """
    decider, now = watch.turns.decider, watch.clock.now()
    ruled = await ruled_together(watch, case, fallbacks)
    told = tuple(f"overridden: {one.reason}" for one in said([one for _, one in ruled]) if one.brake in OVERRIDDEN)
    made = [
        (_of_member(one, proposal, found, now=now, id_=fresh_id("d", now, watch.random), author=author), one)
        for one, (ruling, found) in ruled
        if ruling is Ruling.ACT
    ]
    if not made:
        raise InputError(_stays_open(proposal, dict.fromkeys(against(found) for _, (_, found) in ruled)))
    going = [f"{one.target.name} leaves by decision {decision.id}" for decision, one in made]
    held = [(one.target.name, found) for one, (ruling, found) in ruled if ruling is not Ruling.ACT]
    staying = [f"{name} stays: {against(found)}" for name, found in held]
    closed = watch.proposals.closed(
        proposal, Fate.APPROVED, author=author, said="; ".join(filter(None, (reason, *going, *staying)))
    )
    await decider.act_together(made, closing=closed)
    watch.proposals.forget(closed)
    return Heard(proposal.decision, (*going, *staying, *told))


async def ruled_together(
    watch: Watch, case: PoolCase, fallbacks: Mapping[int, Fallback | None]
) -> list[tuple[Case, tuple[Ruling, tuple[Objection, ...]]]]:
    """What becomes of each member when all of a pool is approved now. Raises StoreError."""
    stand_ins = [fallbacks.get(rungs_above(one.target, case.pool)) for one in case.members]
    asked = [await watch.turns.decider.asked(*one) for one in zip(case.members, stand_ins, strict=True)]
    wanted = [replace(one, wish=wish) for one, (wish, _) in zip(case.members, asked, strict=True)]
    return list(zip(wanted, together(asked), strict=True))


def _stays_open(proposal: Proposal, why: Iterable[str]) -> str:
    return f"not approved, since something objects now; {proposal.decision} stays open: {'; '.join(why)}"


def against(found: tuple[Objection, ...]) -> str:
    """What a yes to the whole pool does not override."""
    return "; ".join(one.reason for one in found if one.brake not in OVERRIDDEN)


def _of_member(
    case: Case, proposal: Proposal, found: tuple[Objection, ...], *, now: datetime, id_: str, author: str
) -> Decision:
    """The decision about one member of an approved pool, with what it overrides."""
    wanted = replace(case.wish, reason=f"{case.wish.reason} (approved for all of {proposal.pool}: {proposal.decision})")
    mode = case.pool.rules.mode
    return Decision(id_, now, wanted, mode, Ruling.ACT, found, author, Origin.APPROVED)


def now_standing(watch: Watch, proposal: Proposal) -> Case | PoolCase | str:
    """What a proposal asks for by the evidence of now, or why nothing any more."""
    now = watch.clock.now()
    if now >= proposal.expires:
        return "it has expired"
    return standing(proposal, watch.memory, watch.watchlist, now)


def waiting(watch: Watch, given: str) -> Proposal:
    """The open proposal of an id. Raises InputError for none or several."""
    fits = [
        one
        for one in watch.memory.proposals.values()
        if given and (one.decision.startswith(given) or one.decision.endswith(given))
    ]
    whole = [one for one in fits if one.decision == given] or fits
    if len(whole) != 1:
        ids = ", ".join(sorted(one.decision for one in watch.memory.proposals.values()))
        raise InputError(f"{given}: no open proposal of this id, or several; there are: {ids or 'none'}")
    return whole[0]
