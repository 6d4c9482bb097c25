"""The door of the admin listener: who may come in by the configuration of now, and what a reload changes about it."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from starlette.applications import Starlette

from quantwatch.clock import Clock
from quantwatch.config.access import on_loopback, read_tokens, token_advice
from quantwatch.config.schema import ListenSettings, Settings
from quantwatch.daemon.desk import Desk
from quantwatch.errors import InputError
from quantwatch.expose.access import Access, PageRules
from quantwatch.expose.admin import admin_app
from quantwatch.expose.calls import Calls
from quantwatch.expose.meters import Meters
from quantwatch.expose.sessions import Key, key
from quantwatch.flow.board import Board
from quantwatch.log import logger
from quantwatch.pages.acting import Acting
from quantwatch.pages.app import LivePage
from quantwatch.pages.reading import Reading
from quantwatch.pages.site import Site

log = logger()


class Entrance:
    """Holds the access to a listener that stays bound to one address for as long as the process lives."""

    def __init__(self, server: ListenSettings, *, clock: Clock, meters: Meters) -> None:
        self._address = server.admin_listen
        self._meters = meters
        self.access = Access(self.read(server), rules=self._rules(server), clock=clock, refused=meters.admin_refused)

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
        """Let the tokens and page rules of another configuration take over, and tell what to know of them."""
        for line in token_advice(server):
            log.warning("the configuration is valid, but", advice=line)
        self.access.renew(keys, self._rules(server))

    def app(
        self,
        board: Callable[[], Board],
        desk: Desk,
        settings: Callable[[], Settings],
        *,
        store: Path,
        stack: AsyncExitStack,
    ) -> Starlette:
        """The application of the listener: API and pages.

        settings: those in force, asked anew for each page. store: the record. stack: closes what is opened.
        """
        reading, counted = Reading(store), self._meters.admin_called
        stack.push_async_callback(reading.close)
        acting = Acting(Calls(board, desk, counted), self.access)
        now = self.access.clock.now
        site = Site(board, reading, now, lambda: settings().expose.prompts.value, desk.golden, who=acting.who)
        return admin_app(board, desk, access=self.access, pages=LivePage(site, acting), counted=counted)

    def _rules(self, server: ListenSettings) -> PageRules:
        local = on_loopback(self._address)
        shown = server.page or ("open" if local else "token")
        return PageRules(open=shown == "open", local=local, origin=server.page_url)
