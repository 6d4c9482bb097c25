"""One node: its three axes, its numbers over time, its runs, and what was done about it."""

from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from quantwatch.pages.site import Site


def routes(site: Site) -> Sequence[BaseRoute]:
    """The page of a node."""

    async def page(request: Request) -> Response:
        target = site.board().target(request.path_params["target"])
        if target is None:
            raise HTTPException(404)
        return await site.page(request, "node.html", target=target)

    return [Route("/nodes/{target:path}", page)]
