"""The listener of those who run quantwatch: state, pauses, reload, runs by hand. On loopback unless configured."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from quantwatch.errors import InputError, QuantwatchError, StoreError
from quantwatch.expose.as_json import board_json, pause_json, proposal_json
from quantwatch.expose.body import BodyError, Fields, read_body
from quantwatch.expose.guard import Guard
from quantwatch.expose.page import ADMIN_LINKS, page
from quantwatch.expose.replies import error_reply, html_reply, json_reply, refused
from quantwatch.flow.board import Board
from quantwatch.flow.state import ROLLOUT, Pause
from quantwatch.flow.word import Heard, Word
from quantwatch.log import Logger, logger

LONGEST_PAUSE = 366 * 86_400.0
"""Seconds; who needs more leaves the end open."""

WORDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "isolations": ("isolate", ("seconds", "force")),
    "holds": ("hold", ("seconds",)),
    "releases": ("release", ()),
    "confirmations": ("confirm_healthy", ()),
}
"""Words about a target by their path: what is done, and which fields there are beside target, author and reason."""


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What came of reading the configuration again. changes: one line each, without secrets."""

    ok: bool
    message: str
    changes: tuple[str, ...] = ()


class Admin(Protocol):
    """What can be asked of the daemon. InputError: the caller's fault; StoreError: nothing was done."""

    async def reload(self) -> Reloaded:
        """Read the configuration again; the old one stays when the new one cannot be used."""
        ...

    async def pause(self, scope: str, reason: str, *, author: str, seconds: float | None) -> Pause:
        """Stop acting within a scope, for some seconds or until resumed."""
        ...

    async def resume(self, pause_id: str, *, author: str) -> bool:
        """End a pause; False when there is none of that id."""
        ...

    async def accept_baseline(self, *, author: str, reason: str) -> str:
        """Take the baseline as it is now for the yardstick; says what was accepted."""
        ...

    async def isolate(self, word: Word) -> Heard:
        """Take a target out of traffic and keep it out."""
        ...

    async def hold(self, word: Word) -> Heard:
        """Let nothing automatic change a target's routing."""
        ...

    async def release(self, word: Word) -> Heard:
        """Bring an isolated target back, and free it from what people have said."""
        ...

    async def confirm_healthy(self, word: Word) -> Heard:
        """Let what was measured of a target up to now count no more, and bring it back."""
        ...

    async def approve(self, proposal: str, *, author: str) -> Heard:
        """Give the order that a proposal asks for."""
        ...

    async def reject(self, proposal: str, *, author: str, reason: str) -> Heard:
        """Close a proposal without an order."""
        ...

    async def run_now(self, target: str, task_set: str | None) -> int:
        """Queue runs of a target, of one task set or all; says how many."""
        ...


class Pages(Protocol):
    """What people look at on this listener."""

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """What it answers, the page at `/` among it."""
        ...

    async def failed(self, request: Request, exc: Exception) -> Response | None:
        """The page for an error; None where a program asked, which is answered in JSON."""
        ...


def admin_app(
    board: Callable[[], Board],
    admin: Admin,
    *,
    token: str | None = None,
    log: Logger | None = None,
    pages: Pages | None = None,
) -> Starlette:
    """The application of the admin listener. token: what callers must bear; None on loopback only.

    pages: the live page; without it a static one stands at `/`.
    """
    api = _Api(board, admin, log or logger("quantwatch.admin"))
    shown = pages.routes if pages is not None else [Route("/", api.landing)]
    return Starlette(
        routes=[
            *shown,
            Route("/api/v1/status", api.status),
            Route("/-/reload", api.reload, methods=["POST", "PUT"]),
            Route("/api/v1/pauses", api.pauses, methods=["GET"]),
            Route("/api/v1/pauses", api.pause, methods=["POST"]),
            Route("/api/v1/pauses/{id}", api.resume, methods=["DELETE"]),
            Route("/api/v1/baseline/accept", api.accept_baseline, methods=["POST"]),
            *(Route(f"/api/v1/{path}", api.word(path), methods=["POST"]) for path in WORDS),
            Route("/api/v1/proposals", api.proposals, methods=["GET"]),
            Route("/api/v1/proposals/{id}/approve", api.approve, methods=["POST"]),
            Route("/api/v1/proposals/{id}/reject", api.reject, methods=["POST"]),
            Route("/api/v1/runs", api.run, methods=["POST"]),
        ],
        middleware=[Middleware(Guard, token=token)],
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


class _Api:
    def __init__(self, board: Callable[[], Board], admin: Admin, log: Logger) -> None:
        self._board = board
        self._admin = admin
        self._log = log

    async def landing(self, _: Request) -> Response:
        return html_reply(page(self._board(), links=ADMIN_LINKS, verdicts=False))

    async def status(self, _: Request) -> Response:
        return json_reply(board_json(self._board()))

    async def reload(self, request: Request) -> Response:
        self._called(request, "reload")
        done = await self._admin.reload()
        content = {"ok": done.ok, "message": done.message, "changes": list(done.changes)}
        return json_reply(content, 200 if done.ok else 500)

    async def pauses(self, _: Request) -> Response:
        return json_reply({"pauses": [pause_json(one) for one in self._board().pauses]})

    async def pause(self, request: Request) -> Response:
        fields = await read_body(request, known=("scope", "reason", "author", "seconds"))
        scope, reason, author = self._scope(fields), fields.text("reason"), fields.text("author")
        seconds = fields.seconds("seconds", most=LONGEST_PAUSE)
        if scope.startswith(ROLLOUT) and seconds is None:
            raise BodyError("seconds", "a rollout has an end; give how long it may last")
        self._called(request, "pause", scope=scope, reason=reason, author=author, seconds=seconds)
        pause = await self._admin.pause(scope, reason, author=author, seconds=seconds)
        return json_reply(pause_json(pause), 201)

    async def resume(self, request: Request) -> Response:
        author = Fields(dict(request.query_params)).text("author")
        pause_id = request.path_params["id"]
        self._called(request, "resume", pause=pause_id, author=author)
        if not await self._admin.resume(pause_id, author=author):
            return error_reply("there is no pause of this id", 404)
        return json_reply({"resumed": pause_id})

    async def accept_baseline(self, request: Request) -> Response:
        fields = await read_body(request, known=("author", "reason"))
        author, reason = fields.text("author"), fields.text("reason")
        self._called(request, "accept_baseline", author=author, reason=reason)
        return json_reply({"accepted": await self._admin.accept_baseline(author=author, reason=reason)})

    def word(self, path: str) -> Callable[[Request], Awaitable[Response]]:
        """What a person says about a target; WORDS tells which fields each word has."""
        name, also = WORDS[path]
        do: Callable[[Word], Awaitable[Heard]] = getattr(self._admin, name)

        async def said(request: Request) -> Response:
            fields = await read_body(request, known=("target", "author", "reason", *also))
            word = Word(
                fields.text("target"),
                fields.text("author"),
                fields.text("reason"),
                seconds=fields.seconds("seconds", most=LONGEST_PAUSE),
                force=fields.flag("force"),
            )
            self._called(request, name, **{one: getattr(word, one) for one in ("target", "author", "reason", *also)})
            return _heard(await do(word))

        return said

    async def proposals(self, _: Request) -> Response:
        return json_reply({"proposals": [proposal_json(one) for one in self._board().proposals]})

    async def approve(self, request: Request) -> Response:
        author, proposal = (await read_body(request, known=("author",))).text("author"), request.path_params["id"]
        self._called(request, "approve", proposal=proposal, author=author)
        return _heard(await self._admin.approve(proposal, author=author))

    async def reject(self, request: Request) -> Response:
        fields, proposal = await read_body(request, known=("author", "reason")), request.path_params["id"]
        author, reason = fields.text("author"), fields.text("reason")
        self._called(request, "reject", proposal=proposal, author=author, reason=reason)
        return _heard(await self._admin.reject(proposal, author=author, reason=reason))

    async def run(self, request: Request) -> Response:
        fields = await read_body(request, known=("target", "task_set"))
        target, task_set = fields.text("target"), fields.maybe_text("task_set")
        found = self._board().target(target)
        if found is None:
            raise BodyError("target", "there is no target of this name")
        if task_set is not None and task_set not in [one.state.task_set for one in found.sets]:
            raise BodyError("task_set", "the target has no task set of this name")
        self._called(request, "run", target=target, task_set=task_set)
        return json_reply({"queued": await self._admin.run_now(target, task_set)}, 202)

    def _scope(self, fields: Fields) -> str:
        """A scope that names something: a pause of what does not exist would look like one and hold nothing."""
        scope, board = fields.text("scope"), self._board()
        known = scope.removeprefix(ROLLOUT)
        pools = [f"pool:{one.name}" for one in board.pools]
        targets = [f"target:{one.state.target}" for one in board.targets]
        if known not in ["all", *pools, *targets]:
            raise BodyError("scope", "must be all, pool:NAME or target:NAME, of a pool or target that is configured")
        return scope

    def _called(self, request: Request, call: str, **values: Any) -> None:
        """Put a call that changes something on record before it is carried out."""
        client = request.client.host if request.client is not None else "unknown"
        self._log.warning("admin call", call=call, client=client, **values)


def _heard(heard: Heard) -> Response:
    return json_reply({"decision": heard.decision, "told": list(heard.told)}, 200 if heard.decision is None else 202)


async def _failed(_: Request, exc: Exception) -> Response:
    if isinstance(exc, BodyError):
        return error_reply(f"{exc.field}: {exc.message}" if exc.field else exc.message, exc.status, field=exc.field)
    if isinstance(exc, InputError):
        return error_reply(str(exc), 400)
    return error_reply(str(exc), 503 if isinstance(exc, StoreError) else 500)


async def _broken(_: Request, __: Exception) -> Response:
    return error_reply("quantwatch is in trouble itself; its log says more", 500)
