"""The page of one decision: the wish, its evidence, what objected, what was sent, and the audit trail."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from quantwatch.pages.download import gathering, reporting
from quantwatch.pages.manner import Manner
from quantwatch.pages.site import Site
from quantwatch.pages.view import incident_values, shared
from quantwatch.record.archive import Archive


def routes(site: Site) -> Sequence[BaseRoute]:
    """The page of a decision, and its report."""
    gathered = gathering(site, Archive.decision)

    async def page(request: Request) -> Response:
        one, language = await gathered(request), Manner.of(request).language
        values = incident_values(one, language) | shared(language, linked=True, runbook=None)
        return await site.page(request, "decision.html", **values)

    return [Route("/decisions/{id}", page), Route("/decisions/{id}/report.{kind}", reporting(gathered))]
