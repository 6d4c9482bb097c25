"""Golden sets: what is asked, and how each node stands on it."""

from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from quantwatch.pages.site import Site


def routes(site: Site) -> Sequence[BaseRoute]:
    """The list of golden sets, and the page of one."""

    async def every(request: Request) -> Response:
        return await site.page(request, "sets.html")

    async def page(request: Request) -> Response:
        name = request.path_params["task_set"]
        found = next((one for one in site.board().task_sets if one.name == name), None)
        if found is None:
            raise HTTPException(404)
        return await site.page(request, "set.html", task_set=found)

    return [Route("/sets", every), Route("/sets/{task_set:path}", page)]
