"""A ladder of variants: which rung the traffic is on, who stands in when a member leaves, and how weights shift.

Traffic is on the lowest rung that has a routable member; the rungs above stand by. One rung up is an isolation whose
fallback is found here; down again is the release of the lower rung.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from quantwatch.flow.decision import Action, Wish
from quantwatch.flow.fleet import Fallback, Fleet, Rung
from quantwatch.judge.brake import allowed, missing, over_cap, takes_over

WHOLE = 100
"""Percent of a node's own weight."""


def above(target: str, ladder: Sequence[Rung]) -> tuple[Rung, ...]:
    """The rungs over a target's own, the next first; none for one that is on no rung."""
    own = next((i for i, one in enumerate(ladder) if target in one.members), len(ladder))
    return tuple(ladder[own + 1 :])


def in_charge(ladder: Sequence[Rung], routable: Collection[str]) -> str | None:
    """The rung that the traffic is on: the lowest with a routable member; None where there is none."""
    return next((one.name for one in ladder if not set(routable).isdisjoint(one.members)), None)


def routable(fleet: Fleet) -> frozenset[str]:
    """Who gets traffic, or would if it came: members that are in, and whoever on the ladder is no target.

    Nobody counts whom the gateway does not have, where it tells.
    """
    members = {one.target for one in fleet.members}
    others = {name for rung in fleet.ladder for name in rung.members} - members
    unlisted = missing(fleet) if fleet.roll is not None and fleet.roll.trouble is None else set()
    return frozenset({one.target for one in fleet.members if not one.away} - unlisted | others)


def on_ladder(wish: Wish, fleet: Fleet) -> Fleet:
    """The fleet with the fallback that this wish needs on a ladder: none where the traffic stays where it is.

    It stays while a sound member is left on the target's rung or below, within the cap. Beyond the cap the rung may go
    on where the fallback takes over. Where nobody is left and no rung stands above, nobody can. The fallback was asked
    a moment ago, so what has been learned of it since is looked at again.
    """
    if not fleet.ladder or wish.action is not Action.ISOLATE:
        return fleet
    if fleet.fallback is not None and (why := _meanwhile(fleet.fallback.name, wish, fleet)) is not None:
        fleet = replace(fleet, fallback=replace(fleet.fallback, healthy=False, why=why))
    if _carried(wish.target, fleet) and not (over_cap(wish.target, fleet) and takes_over(wish.target, fleet)):
        return replace(fleet, fallback=None)
    if fleet.fallback is not None:
        return fleet
    last = not above(wish.target, fleet.ladder)
    said = f"{wish.target} is on the last rung, which is never taken" if last else "nobody of the rungs above is in"
    return replace(fleet, fallback=Fallback(f"of {wish.target}", healthy=False, why=said))


def aimed(wish: Wish, fleet: Fleet) -> Wish:
    """The wish with the rung that the traffic is on afterwards, said in its reason where it is another one."""
    if not fleet.ladder:
        return wish
    there = routable(fleet)
    now = in_charge(fleet.ladder, there)
    if wish.action is Action.RELEASE:
        rung = in_charge(fleet.ladder, there | {wish.target})
        said = f"; traffic goes down from {now} to {rung}" if now not in (rung, None) else ""
        return replace(wish, rung=rung, reason=wish.reason + said)
    who = fleet.fallback
    if who is None or who.rung is None:
        return replace(wish, rung=in_charge(fleet.ladder, there - {wish.target}))
    own = fleet.rung_of(wish.target)
    said = f"; traffic goes up from {own.name if own is not None else 'nowhere'} to {who.rung} ({who.name})"
    return replace(wish, rung=who.rung, fallback=who.node, reason=wish.reason + said)


def may_leave(ladder: Sequence[Rung], members: Collection[str], share: float) -> int:
    """How many targets of a ladder may be away at once: all of a rung with another one above, the cap's of the last."""
    rungs = [set(one.members) & set(members) for one in ladder]
    last = [allowed(len(one), share) for one in rungs[-1:] if one]
    return sum(len(one) for one in rungs[:-1]) + sum(last)


def shares(
    ladder: Sequence[Rung],
    now: Mapping[str, int],
    *,
    sound: Collection[str],
    stepping: Collection[str],
    steps: Sequence[int],
) -> dict[str, int]:
    """Who is to be given another share of its own weight, in percent, whoever gets more first.

    now: the share of everyone who is in. The rung in charge keeps its share, and takes one step more where its member
    is in `stepping`; the next sound rung above has the rest, and all others stand by with 0. Where nobody above is
    sound the rung in charge takes everything.
    """
    charge = in_charge(ladder, now)
    at = next((i for i, one in enumerate(ladder) if one.name == charge), len(ladder))
    over = [[one for one in rung.members if one in now] for rung in ladder[at + 1 :]]
    relief = next((good for members in over if (good := [one for one in members if one in sound])), [])
    wanted: dict[str, int] = {}
    for one in (member for rung in ladder[at : at + 1] for member in rung.members if member in now):
        wanted[one] = _next(now[one], steps) if one in stepping else now[one]
        wanted[one] = wanted[one] if relief else WHOLE
    rest = WHOLE - max(wanted.values(), default=0)
    wanted |= {one: rest if one in relief else 0 for members in over for one in members}
    changes = {one: share for one, share in wanted.items() if share != now[one]}
    return dict(sorted(changes.items(), key=lambda each: now[each[0]] - each[1]))


def _next(share: int, steps: Sequence[int]) -> int:
    return next((one for one in steps if one > share), WHOLE)


def _carried(target: str, fleet: Fleet) -> bool:
    """Whether a sound member is left on a target's rung or on a lower one."""
    higher = {name for rung in above(target, fleet.ladder) for name in rung.members}
    left = ({one.target for one in fleet.members if not one.away} & fleet.sound) - missing(fleet)
    return bool(left - fleet.breaching - {target} - higher)


def _meanwhile(name: str, wish: Wish, fleet: Fleet) -> str | None:
    """Why who was asked to stand in cannot after all, by what is known now."""
    if name == wish.target or name in {one.target for one in fleet.members if one.away}:
        return "it is leaving itself"
    if name in fleet.breaching:
        return "it breaches itself"
    return None if name in routable(fleet) else "it gets no traffic by the gateway's own list"
