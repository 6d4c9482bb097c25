"""Sessions of people in browsers: in memory alone, each from one token, each for a while."""

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field

from quantwatch.clock import Clock
from quantwatch.flow.access import Caller, Role

IDLE_SECONDS = 1800.0
LONGEST_SECONDS = 12 * 3600.0
"""Also a session that is used all the time ends: its owner shows the token once a shift."""

MOST = 16
"""Sessions from one token; beyond it the one of them that was idle for longest ends, and nobody else's."""


@dataclass(frozen=True, slots=True)
class Key:
    """A token that opens, by its digest alone."""

    caller: Caller
    digest: bytes = field(repr=False)


def key(caller: Caller, token: str) -> Key:
    """The key of a token."""
    return Key(caller, digest_of(token.encode("utf-8")))


def digest_of(token: bytes) -> bytes:
    """What is kept of a token. Digests have one length, so that comparing them tells nothing of the token's own."""
    return hashlib.sha256(token).digest()


@dataclass(slots=True)
class Session:
    """A person's browser. csrf: what each form of theirs carries. began, used: by the monotonic clock."""

    key: Key
    csrf: str
    began: float
    used: float

    @property
    def caller(self) -> Caller:
        """Who it is."""
        return self.key.caller

    def wrote(self, given: str) -> bool:
        """Whether a form is one that was made for this session."""
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.csrf.encode())


class Sessions:
    """All open sessions, by the digest of their id."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: OrderedDict[bytes, Session] = OrderedDict()

    def begin(self, of: Key) -> tuple[str, Session]:
        """A new session; its id goes to the browser and nowhere else."""
        now, id_ = self._clock.monotonic(), secrets.token_urlsafe(32)
        session = self._open[digest_of(id_.encode())] = Session(of, secrets.token_urlsafe(24), now, now)
        theirs = [name for name, one in self._open.items() if one.key == of]  # the idlest stands first
        for name in theirs[:-MOST]:
            del self._open[name]
        return id_, session

    def find(self, id_: str, *, by_itself: bool = False) -> Session | None:
        """The session of an id, used now; None where it has ended or never was.

        by_itself: a page asks for its newest state, and no person. That keeps the session of somebody who only looks,
        such as a screen on a wall, and not the one of somebody who may act and has gone away.
        """
        name, now = digest_of(id_.encode("utf-8", "replace")), self._clock.monotonic()
        session = self._open.get(name)
        if session is None:
            return None
        if now - session.used > IDLE_SECONDS or now - session.began > LONGEST_SECONDS:
            del self._open[name]
            return None
        if by_itself and session.caller.may(Role.OPERATOR):
            return session
        session.used = now
        self._open.move_to_end(name)
        return session

    def end(self, session: Session) -> None:
        """End a session."""
        self._open = OrderedDict((name, one) for name, one in self._open.items() if one is not session)

    def keep(self, keys: Collection[Key]) -> int:
        """End the sessions of keys that open no more, or open something else; tells how many."""
        before = len(self._open)
        self._open = OrderedDict((name, one) for name, one in self._open.items() if one.key in keys)
        return before - len(self._open)

    def __len__(self) -> int:
        return len(self._open)
