"""Slows down who guesses tokens, and remembers little of it."""

import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import blake2b
from ipaddress import IPv6Address, ip_address

from quantwatch.clock import Clock

FREE = 5
"""Wrong tokens from one address that cost nothing: a person tries again, a script has the one of yesterday."""

LONGEST_WAIT = 60.0
FORGOTTEN_SECONDS = 900.0
MOST_CLIENTS = 1024
MOST_KNOWN = 16


@dataclass(slots=True)
class _Guesses:
    known: list[bytes] = field(default_factory=list)
    count: int = 0
    last: float = 0.0
    until: float = 0.0


class Slowing:
    """Counts different wrong tokens by address, and makes the address wait for longer with each.

    The same wrong token again counts for nothing: it is no guess, and a script that was forgotten when a token changed
    must not lock out the people who work on its machine. What is kept of a token is a keyed digest.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._clients: OrderedDict[str, _Guesses] = OrderedDict()

    def wait(self, client: str) -> float:
        """Seconds until a token from this address is looked at again; 0 where it is now."""
        guesses = self._clients.get(_network(client))
        return max(guesses.until - self._clock.monotonic(), 0.0) if guesses is not None else 0.0

    def failed(self, client: str, given: bytes) -> None:
        """Note a wrong token."""
        now, name = self._clock.monotonic(), _network(client)
        guesses = self._clients.pop(name, None)
        if guesses is None or now - guesses.last > FORGOTTEN_SECONDS:
            guesses = _Guesses()
        self._clients[name] = guesses  # the latest stands last
        digest = blake2b(given, key=self._key, digest_size=16).digest()
        if digest not in guesses.known:
            guesses.known = [*guesses.known[1 - MOST_KNOWN :], digest]
            guesses.count += 1
            over = guesses.count - FREE
            guesses.until = now + min(2.0 ** min(over - 1, 10), LONGEST_WAIT) if over > 0 else 0.0
        guesses.last = now
        while len(self._clients) > MOST_CLIENTS:
            self._clients.popitem(last=False)


def _network(client: str) -> str:
    """The address as it is counted: one household has 2^64 of IPv6."""
    try:
        address = ip_address(client)
    except ValueError:
        return client[:64]
    return f"{int(address) >> 64:x}::/64" if isinstance(address, IPv6Address) else client
