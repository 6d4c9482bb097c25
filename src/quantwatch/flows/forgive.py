"""After a run: whether a target has been well for so long that one of its isolations counts no more."""

from quantwatch.errors import StoreError
from quantwatch.flow.state import Axis, TargetState, Transition
from quantwatch.flows.decide import Decider
from quantwatch.flows.keeper import unbroken
from quantwatch.judge.recovery import forgiven
from quantwatch.log import logger

log = logger()


async def forgive(decider: Decider, name: str) -> None:
    """Count how long a target has been well, and forgive what is due; both are written down. Raises nothing."""
    async with decider.one_at_a_time:
        watchlist, old = decider.watchlist(), decider.memory.targets.get(name)
        target = watchlist.targets.get(name)
        if target is None or old is None or (old.ejections == 0 and old.well_since is None):
            return
        pool = watchlist.pools[target.pool]
        new = forgiven(
            old,
            decider.memory.states_of(name, target.sets),
            periods=target.periods,
            now=decider.clock.now(),
            after=pool.forgive_after_seconds,
            probation=pool.probation_seconds,
        )
        if new != old:
            await unbroken(_keep(decider, old, new))


async def _keep(decider: Decider, old: TargetState, new: TargetState) -> None:
    changes = []
    if new.ejections != old.ejections:
        since = f"{old.well_since:%Y-%m-%d %H:%M} UTC" if old.well_since is not None else "its return"
        said = f"one isolation is forgiven: in traffic with clean results since {since}"
        at = decider.clock.now()
        changes.append(Transition(at, new.target, Axis.EJECTIONS, str(old.ejections), str(new.ejections), said))
    try:
        await decider.keeper.write(lambda store: store.save_target(new, changes))
    except StoreError:
        if changes or new.well_since is not None:
            return  # what is not written is not forgiven; the next run tries again
    decider.memory.targets[new.target] = new
    for one in changes:
        log.info(one.reason, target=one.target, ejections=new.ejections)
