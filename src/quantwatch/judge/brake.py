"""Looks at the other nodes: everything that can object to an action, each objection a reason in words.

Isolating takes capacity away, so whatever is in doubt objects. A release takes nothing away: caps, rate, storm and
fallback do not hold it back. It does need a person's consent where one has spoken, a store that writes it down, and
proof of the yardstick that called the node clean.
"""

import math
from collections.abc import Callable, Iterable
from decimal import Decimal

from quantwatch.flow.decision import Action, Brake, Objection, PoolMode, Ruling, Wish
from quantwatch.flow.fleet import Fallback, Fleet, PoolRules
from quantwatch.flow.pool import OnFleetDegraded
from quantwatch.flow.state import Human, TargetState

STORM_LEAST_MEMBERS = 3
STORM_LEAST_BREACHING = 2
"""One bad node has no cause in common with anybody, however small the pool's storm share."""

NEEDS_FORCE = frozenset({Brake.CAP, Brake.LAST_BACKEND, Brake.FALLBACK_IN_USE})
"""What may leave users without capacity: a person overrides it by saying so twice, and nothing else does."""

_IMPOSSIBLE = frozenset({Brake.STORE, Brake.DRIVER})
_BY_ITS_WORD = frozenset({Brake.HUMAN, Brake.YARDSTICK})
"""Answered by a person's word itself: it is the word that was spoken, and it rests on no measurement."""

_OF_HASTE = frozenset({Brake.RATE, Brake.STORM})
_UNASKED = frozenset({Brake.STORE, Brake.DRIVER, Brake.HUMAN, Brake.PAUSED, Brake.STORM})
"""What keeps a wish from being proposed at all; the others are told to whoever may approve it.

In a storm nobody is asked about one node after another: the pool is asked about as a whole, or nothing is sure.
"""

_Brake = Callable[[Wish, Fleet], Objection | None]


def objections(wish: Wish, fleet: Fleet) -> tuple[Objection, ...]:
    """Everything that objects to a wish, apart from the pool's mode."""
    brakes = _FOR_ISOLATION if wish.action is Action.ISOLATE else _FOR_RELEASE
    found = (brake(wish, fleet) for brake in brakes)
    return tuple(one for one in found if one is not None)


def ruling(wish: Wish, fleet: Fleet) -> tuple[Ruling, tuple[Objection, ...]]:
    """What becomes of a wish, with every objection, that of the mode last."""
    mode = fleet.rules.mode
    others, own = objections(wish, fleet), _OF_MODE.get(mode)
    everything = others if own is None else (*others, own)
    if not everything:
        return Ruling.ACT, ()
    if mode is PoolMode.APPROVE and not {one.brake for one in others} & _UNASKED:
        return Ruling.PROPOSED, everything
    would_have = mode is PoolMode.DRY_RUN and not others
    return (Ruling.WOULD_HAVE if would_have else Ruling.SUPPRESSED), everything


def ordered(wish: Wish, fleet: Fleet, *, force: bool) -> tuple[Ruling, tuple[Objection, ...]]:
    """What becomes of a person's order, with everything that speaks against it and is told.

    Only what makes it impossible stops it, and what may leave users without capacity unless it is forced.
    """
    found = tuple(one for one in objections(wish, fleet) if one.brake not in _BY_ITS_WORD)
    stop = _IMPOSSIBLE if force else _IMPOSSIBLE | NEEDS_FORCE
    return (Ruling.SUPPRESSED if {one.brake for one in found} & stop else Ruling.ACT), found


def forcible(found: Iterable[Objection]) -> bool:
    """Whether a person's order that these stop is carried out where it is forced: nothing forces what cannot be."""
    brakes = {one.brake for one in found}
    return bool(brakes & NEEDS_FORCE) and not brakes & _IMPOSSIBLE


def insisted(wish: Wish, fleet: Fleet) -> tuple[Ruling, tuple[Objection, ...]]:
    """What becomes of an order that a person's word asks for again, since the gateway does not hold to it.

    Nobody looks on this time, so everything objects but what the word itself answers and what only slows verdicts down.
    """
    found = tuple(one for one in objections(wish, fleet) if one.brake not in _BY_ITS_WORD | _OF_HASTE)
    return (Ruling.SUPPRESSED if found else Ruling.ACT), found


def allowed(members: int, share: float) -> int:
    """How many targets of a pool may be away at once, rounded down.

    The product is formed in decimal, as a person would: 0.29 of 100 is 29, and a third of 3, written 0.33, is 0. A pool
    of one has no share to speak of; there any share but 0 allows it, and the last-backend rule decides.
    """
    if members == 1:
        return 1 if share > 0 else 0
    return max(0, min(members, math.floor(members * _as_written(share))))


def stormy(members: int, breaching: int, share: float) -> bool:
    """Whether so many breach at once that a common cause is likelier than so many bad nodes.

    Reaching the share is enough: a tie goes to not acting. Pools of one or two cannot tell a storm from bad luck.
    """
    many = breaching >= STORM_LEAST_BREACHING and breaching >= members * _as_written(share)
    return members >= STORM_LEAST_MEMBERS and many


def _as_written(share: float) -> Decimal:
    return Decimal(str(share))


def _store(_: Wish, fleet: Fleet) -> Objection | None:
    if fleet.store is None:
        return None
    return Objection(Brake.STORE, f"nothing can be written down, so nothing acts: {fleet.store}")


def _driver(_: Wish, fleet: Fleet) -> Objection | None:
    return None if fleet.driver is None else Objection(Brake.DRIVER, fleet.driver)


def _human(wish: Wish, fleet: Fleet) -> Objection | None:
    said = {one.human for one in fleet.members if one.target == wish.target} - {Human.NONE}
    if not said:
        return None
    return Objection(Brake.HUMAN, f"a person has set {wish.target} to {', '.join(sorted(said))}")


def _paused(wish: Wish, fleet: Fleet) -> Objection | None:
    pauses = [one for one in fleet.pauses if one.covers(wish.target, wish.pool, now=fleet.now)]
    if not pauses:
        return None
    return Objection(Brake.PAUSED, "; ".join(one.said for one in pauses))


def _yardstick(_: Wish, fleet: Fleet) -> Objection | None:
    if fleet.yardstick is None:
        return None
    return Objection(Brake.YARDSTICK, f"the baseline is not proven sound: {fleet.yardstick}")


def _storm(wish: Wish, fleet: Fleet) -> Objection | None:
    if fleet.degraded and fleet.rules.on_fleet_degraded is OnFleetDegraded.UP_TO_CAP:
        return None  # the nodes themselves are proven bad, and the pool's owner lets the cap decide how many go
    members = {one.target for one in fleet.members}
    away = {one.target for one in fleet.members if _away(one)} - fleet.lately
    breaching = ((fleet.breaching - away) | {wish.target}) & members  # who has long been out has been dealt with
    if stormy(len(members), len(breaching), fleet.rules.storm_share):
        said = f"{len(breaching)} of {len(members)} members of {fleet.pool} breach at once"
        return Objection(Brake.STORM, f"{said}, which points to a common cause")
    if fleet.storming:
        return Objection(Brake.STORM, f"many members of {fleet.pool} breached at once a short while ago")
    return None


def over_cap(target: str, fleet: Fleet) -> str | None:
    """What speaks against a target's leaving by the cap, which holds for the state after it; None within the cap.

    A member that the gateway does not have is away already. On a ladder the members of a rung are counted by
    themselves: those of other rungs take no traffic beside them.
    """
    rung = fleet.rung_of(target)
    counted = [one for one in fleet.members if rung is None or one.target in rung.members]
    unlisted = (missing(fleet) & {one.target for one in counted}) - {target}
    away = {one.target for one in counted if _away(one)} | {target} | unlisted
    most = allowed(len(counted), fleet.rules.max_isolated)
    if len(away) <= most:
        return None
    where = fleet.pool if rung is None else f"{fleet.pool} on rung {rung.name}"
    listed = f" ({', '.join(sorted(unlisted))} by the gateway's own list)" if unlisted else ""
    said = f"{len(away)} of {len(counted)} members of {where} would be away{listed}"
    return f"{said}, and {fleet.rules.max_isolated:.4g} of them, which is {most}, may be"


def _cap(wish: Wish, fleet: Fleet) -> Objection | None:
    """On a ladder a member may go beyond the cap where the next rung takes over what it leaves."""
    if wish.target not in {one.target for one in fleet.members}:
        return Objection(Brake.CAP, f"{wish.target} is not known as a member of {fleet.pool}")
    if fleet.roll is not None and fleet.roll.trouble is not None:
        said = f"how many members of {fleet.pool} the gateway has is not known: {fleet.roll.trouble}"
        return Objection(Brake.CAP, said)
    over = over_cap(wish.target, fleet)
    if over is None or takes_over(wish.target, fleet):
        return None
    return Objection(Brake.CAP, over)


def _last_backend(wish: Wish, fleet: Fleet) -> Objection | None:
    """A member counts as a backend only while its own results say so, and the gateway's own list where it has one.

    To take the target out and leave the traffic to a node that is bad, down or not known would cure nothing. Whoever
    else the gateway lists was never measured.
    """
    known = ({one.target for one in fleet.members if not _away(one)} & fleet.sound) - missing(fleet)
    reliable = known - fleet.breaching - {wish.target}
    if reliable or verified(fleet):
        return None
    why = "no fallback is named" if fleet.fallback is None else f"the fallback {fleet.fallback.name} is not verified"
    return Objection(Brake.LAST_BACKEND, f"{fleet.pool} would have no sound backend left, and {why}")


def _fallback(_: Wish, fleet: Fleet) -> Objection | None:
    if fleet.fallback is None or verified(fleet):
        return None
    why = fleet.fallback.why or "whether it is healthy could not be found out"
    return Objection(Brake.FALLBACK, f"the fallback {fleet.fallback.name} cannot take over: {why}")


def overloaded(fallback: Fallback, rules: PoolRules) -> list[str]:
    """What of a fallback's load is over its limits, in words; what is not told must be taken for too high."""
    loads = (
        ("requests waiting", fallback.waiting, rules.fallback_max_waiting),
        ("KV cache use", fallback.kv_usage, rules.fallback_max_kv_usage),
    )
    # `not value <= most`, and not `value > most`, so that NaN objects too.
    return [
        f"{name} {'unknown' if value is None else f'{value:g}'} (at most {most:g})"
        for name, value, most in loads
        if value is None or not value <= most
    ]


def _fallback_overloaded(_: Wish, fleet: Fleet) -> Objection | None:
    """It must be proven to be under its limits."""
    over = [] if fleet.fallback is None else overloaded(fleet.fallback, fleet.rules)
    if fleet.fallback is None or not over:
        return None
    return Objection(Brake.FALLBACK_OVERLOADED, f"the fallback {fleet.fallback.name} is loaded: {', '.join(over)}")


def _fallback_in_use(wish: Wish, fleet: Fleet) -> Objection | None:
    if not fleet.fallback_for:
        return None
    pools = ", ".join(fleet.fallback_for)
    return Objection(Brake.FALLBACK_IN_USE, f"{wish.target} stands in for isolated members of {pools}")


def _rate(_: Wish, fleet: Fleet) -> Objection | None:
    most = fleet.rules.actions_per_hour
    if fleet.recent_actions < most:
        return None
    return Objection(Brake.RATE, f"{fleet.recent_actions} isolations within the last hour, and {most} may be")


def _away(member: TargetState) -> bool:
    return member.away


def takes_over(target: str, fleet: Fleet) -> bool:
    """Whether the stand-in of a ladder is sound, under its load limits, and would really get what the target leaves.

    A gateway with an order of its own goes on to the next rung only once nobody of this one is left.
    """
    rung, who = fleet.rung_of(target), fleet.fallback
    if rung is None or who is None or not verified(fleet) or overloaded(who, fleet.rules):
        return False
    left = {one.target for one in fleet.members if not _away(one)} & set(rung.members) - missing(fleet)
    return who.steered or left <= {target}


def missing(fleet: Fleet) -> set[str]:
    """Members that should be in traffic, and are not by the gateway's own list; all where that cannot be read."""
    if fleet.roll is None:
        return set()
    return {one.target for one in fleet.members if not _away(one)} - fleet.roll.present


def verified(fleet: Fleet) -> bool:
    """Whether the fallback was found to be healthy a moment ago."""
    return fleet.fallback is not None and fleet.fallback.healthy is True


_OF_MODE = {
    PoolMode.OBSERVE: Objection(Brake.DRY_RUN, "the pool's mode is observe, which only watches"),
    PoolMode.DRY_RUN: Objection(Brake.DRY_RUN, "the pool's mode is dry_run, which only records"),
    PoolMode.APPROVE: Objection(Brake.AWAITING_APPROVAL, "the pool's mode is approve, so a person has to agree"),
}

_FOR_RELEASE: tuple[_Brake, ...] = (_store, _driver, _human, _paused, _yardstick)
_FOR_ISOLATION: tuple[_Brake, ...] = (
    *_FOR_RELEASE,
    _storm,
    _cap,
    _last_backend,
    _fallback,
    _fallback_overloaded,
    _fallback_in_use,
    _rate,
)
