"""A person answers a proposal: yes, after everything was looked at again, or no."""

from quantwatch.errors import InputError
from quantwatch.flow.decision import Decision, Origin, Ruling
from quantwatch.flow.fleet import Fallback
from quantwatch.flow.proposal import Fate, Proposal
from quantwatch.flow.word import Heard
from quantwatch.flows.case import Case, standing
from quantwatch.flows.keeper import unbroken
from quantwatch.flows.roll import call_roll
from quantwatch.flows.scene import fallback_of
from quantwatch.flows.watch import Watch


async def approve(watch: Watch, given: str, *, author: str) -> Heard:
    """Give the order that a proposal asks for, under its id. given: the id, its beginning or its end.

    Raises InputError where nothing of that id waits, where its evidence no longer stands, and where a brake objects
    now; StoreError where nothing was done.
    """
    found = _standing(watch, _waiting(watch, given))
    fallback = None
    if isinstance(found, Case):
        fallback = await fallback_of(found.pool, watch.watchlist, watch.memory, watch.clock.now())
        driver = watch.generation.driver
        await call_roll(found.pool, watch.watchlist, watch.memory, driver=driver, now=watch.clock.now())
    async with watch.one_at_a_time:
        proposal = _waiting(watch, given)
        case = _standing(watch, proposal)
        if isinstance(case, str):
            await watch.proposals.tend()
            raise InputError(f"not approved, and {proposal.decision} is closed: {case}")
        if not isinstance(found, Case) or case.pool != found.pool:
            raise InputError("the configuration has just changed; try again")
        return await unbroken(_approve(watch, proposal, case, fallback=fallback, author=author))


async def reject(watch: Watch, given: str, *, author: str, reason: str) -> Heard:
    """Close a proposal; the same wish rests for a while and then needs new evidence. Raises InputError, StoreError."""
    async with watch.one_at_a_time:
        proposal = _waiting(watch, given)
        await watch.proposals.close(proposal, Fate.REJECTED, author=author, said=reason)
    return Heard(proposal.decision)


async def _approve(watch: Watch, proposal: Proposal, case: Case, *, fallback: Fallback | None, author: str) -> Heard:
    driver, wanted = watch.generation.driver, case.wish
    if not driver.abilities.acts:
        raise InputError(f"gateway.driver {driver.name} changes nothing, so there is nothing to approve")
    objecting = await watch.turns.decider.objecting(case, fallback)
    if objecting:
        why = "; ".join(one.reason for one in objecting)
        raise InputError(f"not approved, since something objects now; {proposal.decision} stays open: {why}")
    now = watch.clock.now()
    decision = Decision(
        proposal.decision, now, wanted, case.pool.rules.mode, Ruling.ACT, author=author, origin=Origin.APPROVED
    )
    closed = watch.proposals.closed(proposal, Fate.APPROVED, author=author, said=wanted.reason)
    await watch.turns.decider.act(decision, case, closing=closed)
    watch.proposals.forget(closed)
    return Heard(proposal.decision)


def _standing(watch: Watch, proposal: Proposal) -> Case | str:
    """What a proposal asks for by the evidence of now, or why nothing any more."""
    now = watch.clock.now()
    if now >= proposal.expires:
        return "it has expired"
    return standing(proposal, watch.memory, watch.watchlist, now)


def _waiting(watch: Watch, given: str) -> Proposal:
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
