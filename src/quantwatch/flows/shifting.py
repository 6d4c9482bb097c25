"""Weights around an order of a ladder that shifts, and when nobody knows to whom they could go."""

from collections.abc import Collection, Mapping, Sequence

from quantwatch.act.contract import Driver, Seen, Unanswered, Weighs
from quantwatch.errors import GatewayRefused, GatewayUnavailable
from quantwatch.flow.decision import Action, Order
from quantwatch.flow.fleet import Rung
from quantwatch.flows.memory import Memory
from quantwatch.flows.watched import Watchlist
from quantwatch.judge.ladder import WHOLE, in_charge
from quantwatch.log import logger

log = logger()


class Shifting:
    """A driver that sets weights before an order. before: percent by the name at the gateway.

    Whoever stands in has everything before anybody leaves, and whoever comes back begins with the first step.
    """

    def __init__(self, driver: Driver, weighs: Weighs, before: Mapping[str, int]) -> None:
        self.name, self.abilities = driver.name, driver.abilities
        self._driver, self._weighs, self._before = driver, weighs, before

    async def call(self, order: Order) -> str:
        """Set the weights, then pass the order on. A refused weight holds no order up: what counts is who is in.

        Raises Unanswered or GatewayRefused.
        """
        for node, share in self._before.items():
            try:
                await self._weighs.weigh(node, share)
            except GatewayRefused as exc:
                log.warning("a weight could not be set", node=node, share=share, reason=str(exc))
            except GatewayUnavailable as exc:
                raise Unanswered(str(exc), arrived=False) from exc  # the order itself was not sent
        return await self._driver.call(order)

    async def observe(self, order: Order) -> Seen:
        """Pass the question on."""
        return await self._driver.observe(order)


def shifting(driver: Driver, order: Order, watchlist: Watchlist, memory: Memory) -> Driver:
    """The driver for an order: with weights around it where its pool is a ladder that shifts."""
    pool = watchlist.pools.get(order.pool)
    if pool is None or not pool.steps or not isinstance(driver, Weighs):
        return driver
    if order.action is Action.RELEASE:
        return Shifting(driver, driver, {order.node: pool.steps[0]})
    names = next((one.members for one in pool.ladder if one.name == order.rung and order.target not in one.members), ())
    inside = [one for one in names if not memory.target_state(one, pool.name).away]
    known = {one.name: one.gateway_name for one in watchlist.targets.values()}
    return Shifting(driver, driver, {known.get(one, pool.baseline_name): WHOLE for one in inside})


def at_a_loss(ladder: Sequence[Rung], now: Mapping[str, int], *, good: Collection[str], bad: Collection[str]) -> bool:
    """Whether the rest of the traffic lies with somebody who is neither good nor bad, and nobody good could have it.

    Who comes down a ladder must then neither go on nor take everything at once. now: percent of everyone who is in.
    """
    names = [one.name for one in ladder]
    charge = in_charge(ladder, now)
    at = names.index(charge) if charge is not None else len(names)
    inside = [[name for name in rung.members if name in now] for rung in ladder[at:]]
    own, over = inside[:1], {name for rung in inside[1:] for name in rung}
    part = any(now[name] < WHOLE for rung in own for name in rung)
    return part and over.isdisjoint(good) and any(now[name] > 0 for name in over - set(bad))
