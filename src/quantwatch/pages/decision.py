"""The page of one decision: the wish, its evidence, what objected, what was sent, and the audit trail."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from quantwatch.flow.tokens import PromptsShown
from quantwatch.pages.download import report_reply
from quantwatch.pages.gather import incident_of
from quantwatch.pages.incident import Incident
from quantwatch.pages.manner import Manner
from quantwatch.pages.site import Site
from quantwatch.pages.view import incident_values, shared


def routes(site: Site) -> Sequence[BaseRoute]:
    """The page of a decision, and its report."""

    async def gathered(request: Request) -> Incident:
        wanted, now, shown = request.path_params["id"], site.now(), PromptsShown(site.prompts())
        return await site.reading(lambda archive: incident_of(archive, archive.decision(wanted), now=now, shown=shown))

    async def page(request: Request) -> Response:
        one, language = await gathered(request), Manner.of(request).language
        values = incident_values(one, language) | shared(language, linked=True, runbook=None)
        return await site.page(request, "decision.html", **values)

    async def report(request: Request) -> Response:
        one = await gathered(request)
        return await report_reply(one, request.path_params["kind"], Manner.of(request).language)

    return [Route("/decisions/{id}", page), Route("/decisions/{id}/report.{kind}", report)]
