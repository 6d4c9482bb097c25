"""What a person's word would lead to if it were said now."""

from dataclasses import dataclass

from quantwatch.flow.decision import Action, Brake
from quantwatch.flow.fleet import Fallback


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What would come of a call. action: the order that would be given, None where none would.

    refused: why it would be refused now, None where it would be done. forcible: refused, and done all the same where it
    is forced. objections: what speaks against it and holds nobody up who insists. brakes: which of them object to
    an isolation by a person; their words tell numbers, which move from one look to the next. fallback: who would take
    the traffic, None where other members of the pool do or nothing leaves. told: what else to know of it.
    """

    action: Action | None = None
    refused: str | None = None
    forcible: bool = False
    objections: tuple[str, ...] = ()
    fallback: Fallback | None = None
    told: tuple[str, ...] = ()
    brakes: frozenset[Brake] = frozenset()
