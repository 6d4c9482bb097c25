"""The page of one run, with the token view; and its report as a file."""

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
    """The page of a run, and its report."""

    async def gathered(request: Request) -> Incident:
        wanted, now, shown = request.path_params["id"], site.now(), PromptsShown(site.prompts())
        return await site.reading(lambda archive: incident_of(archive, archive.run(wanted), now=now, shown=shown))

    async def page(request: Request) -> Response:
        one, language = await gathered(request), Manner.of(request).language
        values = incident_values(one, language) | shared(language, linked=True, runbook=None)
        kept = 0 if values["tokens"] is None else len(values["tokens"].prompts)
        return await site.page(request, "run.html", **values, chosen=_chosen(request, kept))

    async def report(request: Request) -> Response:
        one = await gathered(request)
        return await report_reply(one, request.path_params["kind"], Manner.of(request).language)

    return [Route("/runs/{id}", page), Route("/runs/{id}/report.{kind}", report)]


def _chosen(request: Request, kept: int) -> int:
    """Which golden text is shown, from 0; the worst where the query names none that there is."""
    given = request.query_params.get("prompt", "1")
    number = int(given) if given.isascii() and given.isdigit() and len(given) < 4 else 1
    return number - 1 if 1 <= number <= kept else 0
