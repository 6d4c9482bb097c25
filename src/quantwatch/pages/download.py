"""What the pages of runs and decisions share: the incident around one, and its report as a file to be downloaded."""

import re
from collections.abc import Awaitable, Callable

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from quantwatch.flow.tokens import PromptsShown
from quantwatch.pages.gather import incident_of
from quantwatch.pages.incident import Incident
from quantwatch.pages.manner import Language, Manner
from quantwatch.pages.report_file import TYPES, written
from quantwatch.pages.site import Site
from quantwatch.record.archive import Archive
from quantwatch.record.decisions import StoredDecision
from quantwatch.record.documents import StoredRun

Gathered = Callable[[Request], Awaitable[Incident]]

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
    "X-Content-Type-Options": "nosniff",
}


def gathering(site: Site, find: Callable[[Archive, str], StoredRun | StoredDecision]) -> Gathered:
    """Reads the incident around what a request's path names. find: looks it up by its id."""

    async def gathered(request: Request) -> Incident:
        wanted, now, shown = request.path_params["id"], site.now(), PromptsShown(site.prompts())
        return await site.reading(lambda archive: incident_of(archive, find(archive, wanted), now=now, shown=shown))

    return gathered


def reporting(gathered: Gathered) -> Callable[[Request], Awaitable[Response]]:
    """Answers with the report of what is gathered, in the kind that the path names."""

    async def report(request: Request) -> Response:
        return await report_reply(await gathered(request), request.path_params["kind"], Manner.of(request).language)

    return report


async def report_reply(one: Incident, kind: str, language: Language) -> Response:
    """The report of an incident. Raises HTTPException for a kind that there is none of."""
    if kind not in TYPES:
        raise HTTPException(404)
    text = await run_in_threadpool(written, one, kind, language)
    name = f"quantwatch-{_UNSAFE.sub('_', one.subject)}.{kind}"
    headers = {**HEADERS, "Content-Disposition": f'attachment; filename="{name}"'}
    return Response(text.encode("utf-8", "backslashreplace"), headers=headers, media_type=TYPES[kind])
