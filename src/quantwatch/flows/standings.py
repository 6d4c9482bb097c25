"""How every target stands at the gateway now; nothing is changed."""

from collections.abc import Sequence
from dataclasses import dataclass

from quantwatch.act.contract import Abilities, Driver, Lists, Seen, Tells
from quantwatch.errors import GatewayError
from quantwatch.flow.decision import Action, Order
from quantwatch.flows.rehearse import Part


@dataclass(frozen=True, slots=True)
class Standings:
    """What the gateway told. others: names on its own list that are no target's. trouble: why it told nothing.

    missing: targets that it has not, or sends nothing to, by its own list.
    """

    abilities: Abilities
    stands: tuple[tuple[Part, Seen], ...]
    others: tuple[str, ...] = ()
    trouble: str | None = None
    missing: tuple[str, ...] = ()

    @property
    def told(self) -> bool:
        """Whether everything is known."""
        return self.trouble is None and all(seen is not Seen.UNKNOWN for _, seen in self.stands)


async def standings(driver: Driver, parts: Sequence[Part]) -> Standings:
    """Ask about every target. A driver that calls nothing knows nothing here. Raises nothing of the gateway's."""
    others: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    trouble: str | None = None
    try:
        if isinstance(driver, Lists):
            listed = await driver.names()
            others = tuple(name for name in listed if name not in {one.node for one in parts})
        if isinstance(driver, Tells):
            there = await driver.present([one.node for one in parts])
            missing = tuple(one.target for one in parts if one.node not in there)
    except GatewayError as exc:
        trouble = str(exc)
    stands = [(one, await _seen(driver, one)) for one in parts]
    return Standings(driver.abilities, tuple(stands), others, trouble, missing)


async def _seen(driver: Driver, part: Part) -> Seen:
    if not driver.abilities.calls:
        return Seen.UNKNOWN
    return await driver.observe(
        Order("", Action.ISOLATE, part.target, part.pool, part.node, driver.name, reason="", verdict="")
    )
