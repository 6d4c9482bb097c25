"""A report as a file to be downloaded from its page."""

import re

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response

from quantwatch.pages.incident import Incident
from quantwatch.pages.manner import Language
from quantwatch.pages.report_file import TYPES, written

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
    "X-Content-Type-Options": "nosniff",
}


async def report_reply(one: Incident, kind: str, language: Language) -> Response:
    """The report of an incident. Raises HTTPException for a kind that there is none of."""
    if kind not in TYPES:
        raise HTTPException(404)
    text = await run_in_threadpool(written, one, kind, language)
    name = f"quantwatch-{_UNSAFE.sub('_', one.subject)}.{kind}"
    headers = {**HEADERS, "Content-Disposition": f'attachment; filename="{name}"'}
    return Response(text.encode("utf-8", "backslashreplace"), headers=headers, media_type=TYPES[kind])
