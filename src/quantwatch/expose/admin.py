"""The listener of those who run quantwatch: state, pauses, reload, runs by hand. On loopback unless configured."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from quantwatch.errors import InputError, NeedsForce, QuantwatchError, StoreError
from quantwatch.expose.access import Access
from quantwatch.expose.as_json import board_json, pause_json, proposal_json
from quantwatch.expose.body import BodyError, Fields, read_body
from quantwatch.expose.calls import FIELDS, LEAST, Admin, Calls, Counted, unheard
from quantwatch.expose.guard import Guard, entry_of, needs
from quantwatch.expose.page import ADMIN_LINKS, page
from quantwatch.expose.replies import Handler, error_reply, html_reply, json_reply, refused
from quantwatch.flow.access import Role
from quantwatch.flow.board import Board
from quantwatch.flow.word import Heard

PATHS: dict[str, str] = {
    "isolations": "isolate",
    "holds": "hold",
    "releases": "release",
    "confirmations": "confirm_healthy",
}
"""Words about a target by their path."""


class Pages(Protocol):
    """What people look at on this listener, and act through."""

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """What it answers, the page at `/` among it."""
        ...

    @property
    def at_the_door(self) -> tuple[str, ...]:
        """Paths that need no token, such as the one where it is given; with a slash at the end, all below."""
        ...

    async def failed(self, request: Request, exc: Exception) -> Response | None:
        """The page for an error; None where a program asked, which is answered in JSON."""
        ...


def admin_app(
    board: Callable[[], Board],
    admin: Admin,
    *,
    access: Access | None = None,
    pages: Pages | None = None,
    counted: Counted = unheard,
) -> Starlette:
    """The application of the admin listener. access: who may call; without one everybody on this machine.

    pages: the live page; without it a static one stands at `/`. counted: is told each call and the caller's role.
    """
    known = access or Access()
    shown = pages.routes if pages is not None else [Route("/", _landing(board))]
    door = pages.at_the_door if pages is not None else ()
    return Starlette(
        routes=[*shown, *api_routes(Calls(board, admin, counted), known)],
        middleware=[Middleware(Guard, access=known, at_the_door=door)],
        exception_handlers={
            HTTPException: _or_page(pages, refused),
            QuantwatchError: _or_page(pages, _failed),
            Exception: _or_page(pages, _broken),
        },
    )


def _or_page(
    pages: Pages | None, in_json: Callable[[Request, Exception], Awaitable[Response]]
) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Tell people of an error on a page, and programs in JSON."""

    async def told(request: Request, exc: Exception) -> Response:
        page = await pages.failed(request, exc) if pages is not None else None
        return await in_json(request, exc) if page is None else page

    return told


def _landing(board: Callable[[], Board]) -> Handler:
    """The small page that needs nothing but the board."""

    async def landed(_: Request) -> Response:
        return html_reply(page(board(), links=ADMIN_LINKS, verdicts=False))

    return landed


def api_routes(calls: Calls, access: Access) -> list[Route]:
    """Every path of the API, each with the least role for it."""
    api = _Api(calls)

    def does(path: str, call: str, handler: Handler, methods: Sequence[str] = ("POST",)) -> Route:
        said = call.replace("_", " ")
        return Route(path, needs(LEAST[call], handler, access=access, does=said), methods=list(methods), name=call)

    def shows(path: str, handler: Handler) -> Route:
        return Route(path, needs(Role.VIEWER, handler, access=access, does="reading"), methods=["GET"], name="read")

    return [
        shows("/api/v1/status", api.status),
        shows("/api/v1/pauses", api.pauses),
        shows("/api/v1/proposals", api.proposals),
        does("/-/reload", "reload", api.reload, ("POST", "PUT")),
        does("/api/v1/pauses", "pause", api.pause),
        does("/api/v1/pauses/{id}", "resume", api.resume, ("DELETE",)),
        does("/api/v1/baseline/accept", "accept_baseline", api.accept_baseline),
        *(does(f"/api/v1/{path}", call, api.word(call)) for path, call in PATHS.items()),
        does("/api/v1/proposals/{id}/approve", "approve", api.approve),
        does("/api/v1/proposals/{id}/reject", "reject", api.reject),
        does("/api/v1/runs", "run", api.run),
    ]


class _Api:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def status(self, _: Request) -> Response:
        return json_reply(board_json(self._calls.board()))

    async def reload(self, request: Request) -> Response:
        done = await self._calls.reload(entry_of(request))
        content = {"ok": done.ok, "message": done.message, "changes": list(done.changes)}
        return json_reply(content, 200 if done.ok else 500)

    async def pauses(self, _: Request) -> Response:
        return json_reply({"pauses": [pause_json(one) for one in self._calls.board().pauses]})

    async def pause(self, request: Request) -> Response:
        fields = await read_body(request, known=FIELDS["pause"])
        return json_reply(pause_json(await self._calls.pause(entry_of(request), fields)), 201)

    async def resume(self, request: Request) -> Response:
        pause_id, fields = request.path_params["id"], Fields(dict(request.query_params))
        if not await self._calls.resume(entry_of(request), pause_id, fields):
            return error_reply("there is no pause of this id", 404)
        return json_reply({"resumed": pause_id})

    async def accept_baseline(self, request: Request) -> Response:
        fields = await read_body(request, known=FIELDS["accept_baseline"])
        return json_reply({"accepted": await self._calls.accept_baseline(entry_of(request), fields)})

    def word(self, call: str) -> Handler:
        """What a person says about a target."""

        async def said(request: Request) -> Response:
            fields = await read_body(request, known=FIELDS[call])
            return _heard(await self._calls.word(entry_of(request), call, fields))

        return said

    async def proposals(self, _: Request) -> Response:
        return json_reply({"proposals": [proposal_json(one) for one in self._calls.board().proposals]})

    async def approve(self, request: Request) -> Response:
        fields = await read_body(request, known=FIELDS["approve"])
        return _heard(await self._calls.approve(entry_of(request), request.path_params["id"], fields))

    async def reject(self, request: Request) -> Response:
        fields = await read_body(request, known=FIELDS["reject"])
        return _heard(await self._calls.reject(entry_of(request), request.path_params["id"], fields))

    async def run(self, request: Request) -> Response:
        fields = await read_body(request, known=FIELDS["run"])
        return json_reply({"queued": await self._calls.run(entry_of(request), fields)}, 202)


def _heard(heard: Heard) -> Response:
    return json_reply({"decision": heard.decision, "told": list(heard.told)}, 200 if heard.decision is None else 202)


async def _failed(_: Request, exc: Exception) -> Response:
    if isinstance(exc, BodyError):
        return error_reply(f"{exc.field}: {exc.message}" if exc.field else exc.message, exc.status, field=exc.field)
    if isinstance(exc, NeedsForce):
        return json_reply({"error": str(exc), "forcible": True}, 400)
    if isinstance(exc, InputError):
        return error_reply(str(exc), 400)
    return error_reply(str(exc), 503 if isinstance(exc, StoreError) else 500)


async def _broken(_: Request, __: Exception) -> Response:
    return error_reply("quantwatch is in trouble itself; its log says more", 500)
