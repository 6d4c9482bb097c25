"""The live page: everything of it that the admin listener mounts."""

from collections.abc import Callable, Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from quantwatch.errors import InputError, StoreError
from quantwatch.expose.guard import DOOR
from quantwatch.pages import actions, decision, fleet, login, node, run, sets
from quantwatch.pages.acting import Acting
from quantwatch.pages.site import Site

PAGES: Sequence[Callable[[Site], Sequence[BaseRoute]]] = (
    fleet.routes,
    node.routes,
    sets.routes,
    run.routes,
    decision.routes,
)
"""Each page is one module whose `routes` gives what it answers. A new page adds its line here."""

OTHERS = ("/api/", "/-/")
"""Begin the paths of this listener that programs ask, and that are answered in JSON whatever happens."""


class LivePage:
    """What the admin listener takes in: routes, and pages for what goes wrong on them.

    acting: what people do here; without it the pages only show.
    """

    at_the_door = ("/assets/", DOOR, "/logout")
    """Paths that need no token: the one where it is given, and what makes that look like a page."""

    def __init__(self, site: Site, acting: Acting | None = None) -> None:
        self.site = site
        self.routes: list[BaseRoute] = [Route("/assets/{name}", site.assets.serve)]
        for routes in PAGES:
            self.routes += routes(site)
        if acting is not None:
            site.links.append(("frame.actions", "/actions"))
            self.routes += [*login.routes(site, acting), *actions.routes(site, acting)]

    async def failed(self, request: Request, exc: Exception) -> Response | None:
        """The page for an error; None for a path that is no page's."""
        if request.scope["path"].startswith(OTHERS):
            return None
        if isinstance(exc, HTTPException):
            return await self.site.trouble(request, exc.status_code)
        if isinstance(exc, StoreError):
            return await self.site.trouble(request, 503, str(exc))
        if isinstance(exc, InputError):
            return await self.site.trouble(request, 404, str(exc))
        return await self.site.trouble(request, 500)
