"""A driver that an installed package brings, behind a wall: whatever it does, nothing is ever taken for done by it.

The package names its driver's class in the entry-point group `quantwatch.drivers`. Only the one that the configuration
names is imported. The class is made with `(options, outside)` and raises ValueError for options that it cannot use.
"""

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from quantwatch.act.contract import Abilities, ByHand, Driver, Lists, MemoryNotes, Notes, Seen, Unanswered
from quantwatch.clock import Clock, SystemClock
from quantwatch.config.installed import GROUP, brought
from quantwatch.config.secrets import SecretRef, secret_ref
from quantwatch.errors import GatewayError, InputError
from quantwatch.flow.decision import Order
from quantwatch.net import Endpoint, Link

OpenLink = Callable[[Endpoint], Link]
METHODS = ("call", "observe")
SPARE = 2
"""How many times gateway.timeout one call or look may take, so that a request of its own ends first."""


def _alone(endpoint: Endpoint) -> Link:
    return Link(endpoint)


@dataclass(frozen=True, slots=True)
class Outside:
    """What a package's driver is given of the world. folder: where the configuration file is.

    notes: what it must know in its next life. open_link: opens a connection that is closed with the configuration.
    fetch: fetches a secret.
    """

    clock: Clock = field(default_factory=SystemClock)
    notes: Notes = field(default_factory=MemoryNotes)
    folder: Path = field(default_factory=Path)
    open_link: OpenLink = _alone
    fetch: Callable[[SecretRef], str] = SecretRef.resolve

    def link(self, url: str, *, headers: Mapping[str, str] | None = None) -> Link:
        """A connection to a server, with the limits of gateway.timeout."""
        return self.open_link(Endpoint("gateway", url, headers=headers or {}))

    def secret(self, place: str) -> str:
        """What `env:NAME` or `file:/path` holds. Raises InputError, ValueError."""
        return self.fetch(secret_ref(place))


@dataclass(frozen=True, slots=True)
class Package:
    """A package's driver that was imported. made: makes it from options and what is outside."""

    name: str
    origin: str
    abilities: Abilities
    made: Callable[[Mapping[str, Any], Outside], Driver]

    def driver(self, options: Mapping[str, Any], outside: Outside, *, seconds: float) -> "Walled":
        """Make the driver. seconds: of one request at most. Raises InputError naming package and options."""
        try:
            inner = self.made(options, outside)
        except (ValueError, InputError) as exc:
            raise InputError(f"gateway.options: {self.origin} cannot use them: {exc}") from exc
        except Exception as exc:
            raise InputError(f"gateway.options: {self.origin} broke on them: {_told(exc)}") from exc
        return (WalledList if isinstance(inner, Lists) else Walled)(self, inner, seconds)


def package(name: str) -> Package:
    """Import the driver of that name. Raises InputError naming package and entry point where it cannot be used."""
    found = brought(name)
    if not found:
        raise InputError(f"gateway.driver: no installed package brings a driver {name} (entry-point group {GROUP})")
    if len(found) > 1:
        several = " and ".join(sorted(_origin(one) for one in found))
        raise InputError(f"gateway.driver: {several} both bring a driver {name}; remove one of them")
    (point,) = found
    try:
        made = point.load()
    except (Exception, SystemExit) as exc:
        raise InputError(f"gateway.driver: {_origin(point)} cannot be imported: {_told(exc)}") from exc
    lacking = _lacking(made)
    if lacking is not None:
        raise InputError(f"gateway.driver: {_origin(point)} is no driver: it has no {lacking}")
    return Package(name, _origin(point), made.abilities, made)


class Walled:
    """A package's driver as the rest of us sees it. It never raises anything but a GatewayError, nor hangs."""

    def __init__(self, origin: Package, inner: Driver, seconds: float) -> None:
        self.name, self.abilities = origin.name, origin.abilities
        self._origin, self._inner, self._seconds = origin.origin, inner, seconds

    async def call(self, order: Order) -> str:
        """Pass the order on. Raises a GatewayError; whatever else the package raises may have arrived."""
        async with self._wall("call()"):
            said: object = await self._inner.call(order)
            if not isinstance(said, str):
                raise TypeError(f"it gives a sentence on what was answered, and not {type(said).__name__}")
            return said

    async def observe(self, order: Order) -> Seen:
        """Pass the question on; what is no Seen is UNKNOWN, and so is every trouble."""
        try:
            async with self._wall("observe()"):
                seen: object = await self._inner.observe(order)
                return seen if isinstance(seen, Seen) else Seen.UNKNOWN
        except GatewayError:
            return Seen.UNKNOWN

    async def by_hand(self, order: Order) -> str:
        """The package's own line where it has one."""
        if isinstance(self._inner, ByHand):
            with contextlib.suppress(GatewayError):
                async with self._wall("by_hand()"):
                    return str(await self._inner.by_hand(order))
        return f"{order.action.value} {order.node} at the gateway, by its own means"

    @contextlib.asynccontextmanager
    async def _wall(self, where: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(SPARE * self._seconds):
                yield
        except GatewayError:
            raise
        except Exception as exc:
            raise Unanswered(f"{self._origin} broke in {where}: {_told(exc)}") from exc


class WalledList(Walled):
    """The same of a driver whose gateway lists its nodes."""

    async def names(self) -> tuple[str, ...]:
        """The package's list. Raises a GatewayError for every trouble."""
        async with self._wall("names()"):
            listing: Any = self._inner
            return tuple(sorted(str(one) for one in await listing.names()))


def _lacking(made: Any) -> str | None:
    """What a driver's class must have and this has not."""
    if not callable(made):
        return "class that makes it"
    if not isinstance(getattr(made, "abilities", None), Abilities):
        return "`abilities` of quantwatch.act.contract.Abilities"
    return next((f"`async def {one}`" for one in METHODS if not _asynchronous(getattr(made, one, None))), None)


def _asynchronous(method: object) -> bool:
    return inspect.iscoroutinefunction(method)


def _origin(point: EntryPoint) -> str:
    whose = f"package {point.dist.name} {point.dist.version}" if point.dist is not None else "a package"
    return f"{whose} (entry point {point.name} = {point.value})"


def _told(exc: BaseException) -> str:
    text = " ".join(str(exc).split())
    return f"{type(exc).__name__}: {text}" if text else type(exc).__name__
