"""Who is at the admin listener: tokens, sessions, refusals. One object a daemon, renewed at each reload."""

import hmac
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers

from quantwatch.clock import Clock, SystemClock
from quantwatch.expose.sessions import Key, Session, Sessions, digest_of
from quantwatch.expose.slowing import Slowing
from quantwatch.flow.access import Caller
from quantwatch.log import logger

log = logger("quantwatch.admin")

QUIET_SECONDS = 60.0
"""How long refusals of one kind for one address are counted before they are told again."""

MOST_TOLD = 512


@dataclass(frozen=True, slots=True)
class Entry:
    """A request that was let in. session: of the browser that it comes from; None for a script."""

    caller: Caller
    session: Session | None = None
    client: str = "unknown"


@dataclass(frozen=True, slots=True)
class PageRules:
    """Who may read the pages. local: the listener is on loopback.

    origin: where browsers find the pages, where that is not the listener itself.
    """

    open: bool = True
    local: bool = True
    origin: str | None = None

    @property
    def secure(self) -> bool:
        """Whether browsers reach the pages by https, as the configuration says; no header is believed about that."""
        return self.origin is not None and self.origin.startswith("https://")

    @property
    def cookie(self) -> str:
        """The name of the session's cookie. The prefix makes browsers refuse one that others have set."""
        return "__Host-quantwatch" if self.secure else "quantwatch"

    def same_origin(self, headers: Headers) -> bool:
        """Whether a request comes from one of our own pages. One that does not say where from does not count."""
        given = headers.getlist("origin")
        if len(given) != 1:
            return False
        if self.origin is not None:
            return given[0].lower() == self.origin
        hosts = headers.getlist("host")
        return len(hosts) == 1 and given[0].lower() in (f"http://{hosts[0].lower()}", f"https://{hosts[0].lower()}")


class Access:
    """Knows callers by their tokens and sessions.

    refused: is told the reason of each refusal, to count it. same: whether two digests are one, in constant time.
    """

    def __init__(
        self,
        keys: Iterable[Key] = (),
        *,
        rules: PageRules | None = None,
        clock: Clock | None = None,
        refused: Callable[[str], None] | None = None,
        same: Callable[[bytes, bytes], bool] = hmac.compare_digest,
    ) -> None:
        self.keys: Sequence[Key] = tuple(keys)
        self.rules = rules or PageRules()
        self.clock = clock or SystemClock()
        self.sessions = Sessions(self.clock)
        self.slowing = Slowing(self.clock)
        self._count = refused or (lambda _: None)
        self._same = same
        self._told: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()

    def renew(self, keys: Iterable[Key], rules: PageRules) -> None:
        """Take over the tokens of another configuration; sessions of those that are gone or changed end."""
        self.keys, self.rules = tuple(keys), rules
        ended = self.sessions.keep(self.keys)
        if ended:
            log.info("sessions ended with their tokens", sessions=ended)

    def key_of(self, given: bytes) -> Key | None:
        """The key that a token is; every one is compared, whichever it is."""
        found, digest = None, digest_of(given)
        for one in self.keys:
            if self._same(one.digest, digest):
                found = one
        return found if given else None

    def refused(self, reason: str, client: str, *, path: str, caller: Caller | None = None) -> None:
        """Count a refusal, and tell it unless its like was told a moment ago."""
        self._count(reason)
        now, kind = self.clock.monotonic(), (reason, client)
        last, silent = self._told.pop(kind, (-QUIET_SECONDS, 0))
        if now - last < QUIET_SECONDS:
            self._told[kind] = (last, silent + 1)
            return
        self._told[kind] = (now, 0)
        while len(self._told) > MOST_TOLD:
            self._told.popitem(last=False)
        who = {} if caller is None else {"caller": caller.name, "role": caller.role}
        log.warning("admin call refused", reason=reason, client=client, path=path[:200], unsaid=silent, **who)
