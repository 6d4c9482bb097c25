"""What people have asked for and not yet confirmed: each can be confirmed once, by whoever asked, for a while."""

import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from quantwatch.clock import Clock
from quantwatch.flow.decision import Brake

LASTS_SECONDS = 600.0
"""A confirmation shows what would happen; after so long it may be something else."""

KEPT_SECONDS = 86_400.0
"""For so long it is known what came of a confirmation, so that the same one again is told that, and not a guess."""

MOST = 512
"""Plans that nobody has confirmed; the oldest go first."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an action. key, values: of the sentence about it. decision: the order that followed, or None.

    ordered: the order has been given, and how the gateway answers is not known yet. failed: why nothing was done, None
    where it was. forcible: it failed, and is done all the same where it is forced.
    """

    key: str
    values: Mapping[str, object] = field(default_factory=dict)
    decision: str | None = None
    told: tuple[str, ...] = ()
    ordered: bool = False
    failed: str | None = None
    forcible: bool = False


@dataclass(slots=True)
class Plan:
    """One action, as it was shown. owner: whose confirmation counts. at, begun: by the monotonic clock.

    given: the form as it was filled in. brakes: what objected when it was shown. begun: when it was confirmed,
    None before. outcome: None until it is carried out.
    """

    call: str
    about: str
    fields: Mapping[str, object]
    owner: str
    at: float
    given: Mapping[str, str] = field(default_factory=dict)
    brakes: frozenset[Brake] = frozenset()
    begun: float | None = None
    outcome: Outcome | None = None


class Plans:
    """All of them, by their ids."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: OrderedDict[str, Plan] = OrderedDict()
        self._begun: OrderedDict[str, Plan] = OrderedDict()

    def add(
        self,
        call: str,
        about: str,
        fields: Mapping[str, object],
        *,
        owner: str,
        given: Mapping[str, str] | None = None,
        brakes: frozenset[Brake] = frozenset(),
    ) -> str:
        """Keep a plan; gives the id by which it is confirmed."""
        id_ = secrets.token_urlsafe(24)
        self._known[id_] = Plan(call, about, fields, owner, self._clock.monotonic(), given or {}, brakes)
        while len(self._known) > MOST:
            self._known.popitem(last=False)
        return id_

    def find(self, id_: str, *, owner: str) -> Plan | None:
        """The plan of an id; None where it is not theirs, too old, or none. One that was begun is given as well."""
        plan, now = self._begun.get(id_) or self._known.get(id_), self._clock.monotonic()
        if plan is None or plan.owner != owner:
            return None
        since, lasts = (plan.at, LASTS_SECONDS) if plan.begun is None else (plan.begun, KEPT_SECONDS)
        return plan if now - since <= lasts else None

    def begin(self, id_: str) -> None:
        """Note that a plan is carried out from now on; those of yesterday are forgotten."""
        now = self._clock.monotonic()
        plan = self._begun[id_] = self._known.pop(id_)
        plan.begun = now
        while (oldest := next(iter(self._begun.values()))).begun is not None and now - oldest.begun > KEPT_SECONDS:
            self._begun.popitem(last=False)
