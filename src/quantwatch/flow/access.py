"""Who calls the admin listener, and how far they may go."""

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What a caller may do; each role may do what those before it may.

    VIEWER reads. OPERATOR says what happens to targets: pause, hold, isolate, release, approve, run. ADMIN changes what
    quantwatch itself goes by: its configuration and its yardstick.
    """

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def may(self, least: "Role") -> bool:
        """Whether this role is enough where `least` is wanted."""
        order = list(Role)
        return order.index(self) >= order.index(least)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls. role: None for a reader of open pages. named: known by a token that is this caller's own."""

    name: str
    role: Role | None
    named: bool = False

    def may(self, least: Role) -> bool:
        """Whether the caller may do what needs this role."""
        return self.role is not None and self.role.may(least)

    def author(self, given: str | None) -> str | None:
        """Who is put on record: the token's name first, where it is one caller's own, then who was named besides.

        None where nobody is known: a shared token proves a role and no person.
        """
        if not self.named:
            return given
        return self.name if given in (None, self.name) else f"{self.name} (as {given})"


ADMIN_TOKEN = "admin"  # noqa: S105, a name
"""What the caller with `server.admin_token` is called. Several people may share it."""

LOCAL = Caller("this machine", Role.ADMIN)
"""Whoever comes from this machine while no token is configured."""

READER = Caller("a reader", None)
"""Whoever reads pages that are open."""
