"""The door of the admin listener: who may come in by the configuration of now, and what a reload changes about it."""

from collections.abc import Callable

from quantwatch.clock import Clock
from quantwatch.config.access import on_loopback, read_tokens
from quantwatch.config.schema import ListenSettings
from quantwatch.errors import InputError
from quantwatch.expose.access import Access, PageRules
from quantwatch.expose.sessions import Key, key


class Entrance:
    """Holds the access to a listener that stays bound to one address for as long as the process lives."""

    def __init__(self, server: ListenSettings, *, clock: Clock, refused: Callable[[str], None]) -> None:
        self._address = server.admin_listen
        self.access = Access(self.read(server), rules=self._rules(server), clock=clock, refused=refused)

    def read(self, server: ListenSettings) -> tuple[Key, ...]:
        """The tokens of a configuration, as they are now. Raises InputError, and then the old ones stay.

        The address is the one that is bound, whatever the configuration names by now.
        """
        if not server.secured and not on_loopback(self._address):
            raise InputError(
                f"server.admin_listen: {self._address} is still bound and can be reached from elsewhere; restart with "
                "another address before the tokens go"
            )
        return tuple(key(one.caller, one.secret) for one in read_tokens(server))

    def renew(self, keys: tuple[Key, ...], server: ListenSettings) -> None:
        """Let the tokens and page rules of another configuration take over."""
        self.access.renew(keys, self._rules(server))

    def _rules(self, server: ListenSettings) -> PageRules:
        local = on_loopback(self._address)
        shown = server.page or ("open" if local else "token")
        return PageRules(open=shown == "open", local=local, origin=server.page_url)
