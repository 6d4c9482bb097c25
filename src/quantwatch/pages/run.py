"""The page of one run, with the token view; and its report as a file."""

from collections.abc import Sequence
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from quantwatch.pages.download import gathering, reporting
from quantwatch.pages.incident import Incident
from quantwatch.pages.manner import Language, Manner
from quantwatch.pages.site import Site
from quantwatch.pages.tokens import token_view
from quantwatch.pages.view import incident_values, shared
from quantwatch.record.archive import Archive


def routes(site: Site) -> Sequence[BaseRoute]:
    """The page of a run, and its report."""
    gathered = gathering(site, Archive.run)

    async def page(request: Request) -> Response:
        one, language = await gathered(request), Manner.of(request).language
        given = request.query_params.get("prompt", "1")
        values = await run_in_threadpool(run_values, one, language, given)
        return await site.page(request, "run.html", **values)

    return [Route("/runs/{id}", page), Route("/runs/{id}/report.{kind}", reporting(gathered))]


def run_values(one: Incident, language: Language, given: str) -> dict[str, Any]:
    """What the page of a run shows. Takes long, so not on the event loop. given: which golden text, from 1."""
    chosen = 0 if one.tokens is None else _chosen(given, len(one.tokens.prompts))
    tokens = None if one.tokens is None else token_view(one.tokens, only=chosen)
    words = shared(language, linked=True, runbook=None)
    return {**incident_values(one, language, tokens=tokens), **words, "chosen": chosen}


def _chosen(given: str, kept: int) -> int:
    """Which golden text is shown, from 0; the worst where the query names none that there is."""
    number = int(given) if given.isascii() and given.isdigit() and len(given) < 4 else 1
    return number - 1 if 1 <= number <= kept else 0
