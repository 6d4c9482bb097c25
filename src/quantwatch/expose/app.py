"""The listener that everybody may ask: metrics, health, verdicts, and a page for who comes by."""

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from quantwatch.expose.as_json import not_ready
from quantwatch.expose.exposition import exposition
from quantwatch.expose.meters import Meters
from quantwatch.expose.page import PUBLIC_LINKS, page
from quantwatch.expose.replies import HEADERS, error_reply, html_reply, json_reply, refused
from quantwatch.expose.verdict import cannot_tell, verdict_json
from quantwatch.flow.board import Board

VERDICT = "/verdict/"


def public_app(board: Callable[[], Board], meters: Meters) -> Starlette:
    """The application of the public listener; it only reads."""
    public = _Public(board, meters)
    return Starlette(
        routes=[
            Route("/", public.landing),
            Route("/metrics", public.metrics),
            Route("/-/healthy", public.healthy),
            Route("/-/ready", public.ready),
            # `option httpchk` of HAProxy asks by OPTIONS unless it is told otherwise.
            Route(VERDICT + "{target:path}", public.verdict, methods=["GET", "OPTIONS"]),
        ],
        exception_handlers={HTTPException: refused, Exception: _broken},
    )


class _Public:
    def __init__(self, board: Callable[[], Board], meters: Meters) -> None:
        self._board = board
        self._meters = meters

    async def landing(self, _: Request) -> Response:
        return html_reply(page(self._board(), links=PUBLIC_LINKS, verdicts=True))

    async def metrics(self, request: Request) -> Response:
        # The board is read on the loop, where it cannot change meanwhile; a page of many targets is long, so it is
        # written beside it.
        board, accept = self._board(), ",".join(request.headers.getlist("accept"))
        content, content_type = await run_in_threadpool(exposition, board, self._meters, accept=accept)
        return Response(content, headers={**HEADERS, "Content-Type": content_type, "Vary": "Accept"})

    async def healthy(self, _: Request) -> Response:
        """That the loop turns is all that this says: a restart would not mend baseline, gateway or store."""
        return json_reply({"healthy": True})

    async def ready(self, _: Request) -> Response:
        reasons = not_ready(self._board())
        return json_reply({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)

    async def verdict(self, request: Request) -> Response:
        name = request.path_params["target"].removesuffix("/")
        answer = verdict_json(self._board(), name)
        self._meters.verdict_asked(name, known=answer["known"])
        return json_reply(answer, 503 if answer["isolated"] else 200)


async def _broken(request: Request, _: Exception) -> Response:
    """A fault of our own. A gateway takes any 5xx of /verdict as a word against the node, so it gets none."""
    path = request.url.path
    if path.startswith(VERDICT):
        return json_reply(cannot_tell(path.removeprefix(VERDICT), "quantwatch is in trouble itself"))
    return error_reply("quantwatch is in trouble itself; its log says more", 500)
