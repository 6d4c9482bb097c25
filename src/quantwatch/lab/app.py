"""The HTTP side of a lab node: vLLM 0.32's paths, replies and refusals."""

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quantwatch.clock import Clock
from quantwatch.lab.card import VERSION, Card
from quantwatch.lab.completions import Completions
from quantwatch.lab.engine import Engine
from quantwatch.lab.faults import Trouble
from quantwatch.lab.fields import Fields, json_object
from quantwatch.lab.refused import Refused
from quantwatch.lab.words import Words
from quantwatch.log import logger
from quantwatch.toolkit.library import TEMPLATE_FAULTS

log = logger("quantwatch.lab")

FAULT_HEADER = "x-quantwatch-fault"

Endpoint = Callable[[Request], Awaitable[Response]]


class Node:
    """A lab node."""

    def __init__(self, card: Card, engine: Engine, words: Words, *, trouble: Trouble, clock: Clock) -> None:
        self._card = card
        self._words = words
        self._trouble = trouble
        self._created = int(clock.now().timestamp())
        self._completions = Completions(card, engine, words, trouble=trouble, clock=clock)

    @property
    def told(self) -> dict[str, object]:
        """What the log says of the node once it listens."""
        fault = self._trouble.planned
        rest = {} if fault is None else {"fault": fault.text}
        return {"model": self._card.name, "recipe": self._card.root, **rest}

    def app(self) -> Starlette:
        """The node as an ASGI application."""
        asked = [
            ("/health", self._health),
            ("/version", self._version),
            ("/metrics", self._metrics),
            ("/v1/models", self._models),
        ]
        told = [("/tokenize", self._tokenize), ("/detokenize", self._detokenize), ("/v1/completions", self._complete)]
        routes = [Route(path, _refusing(answer)) for path, answer in asked]
        routes += [Route(path, _refusing(answer), methods=["POST"]) for path, answer in told]
        fault = self._trouble.planned
        return Starlette(
            routes=routes,
            middleware=[] if fault is None else [Middleware(_Marked, fault=fault.text)],
            exception_handlers={HTTPException: _elsewhere, Exception: self._broken},
        )

    def close(self) -> None:
        """End the thread of the model, once the step under way is done."""
        self._completions.worker.close()

    async def _broken(self, request: Request, exc: Exception) -> Response:
        """A fault of ours, told as vLLM tells its own. It is answered outside of all middleware."""
        log.error("a request met a fault in quantwatch", path=request.url.path, fault=repr(exc))
        response = _json(Refused("Internal Server Error", status=500).body(), 500)
        if self._trouble.planned is not None:
            response.headers[FAULT_HEADER] = self._trouble.planned.text
        return response

    async def _health(self, _: Request) -> Response:
        return Response()

    async def _version(self, _: Request) -> Response:
        return _json({"version": VERSION})

    async def _metrics(self, _: Request) -> Response:
        page = self._completions.gauges.page()
        return Response(page, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _models(self, _: Request) -> Response:
        permission = f"modelperm-{secrets.token_hex(8)}"
        return _json(self._card.model_list(created=self._created, permission=permission))

    async def _tokenize(self, request: Request) -> Response:
        fields = await self._fields(request)
        talks = fields.given("messages")
        text = self._conversation(fields) if talks else fields.text("prompt")
        if text is None:
            raise Refused("Either prompt or messages must be given", param="prompt")
        ids = self._words.encode(text, special=fields.flag("add_special_tokens", default=not talks))
        pieces = self._words.pieces(ids) if fields.flag("return_token_strs") else None
        limit = self._card.max_model_len
        return _json({"count": len(ids), "max_model_len": limit, "tokens": ids, "token_strs": pieces})

    def _conversation(self, fields: Fields) -> str:
        begin = fields.flag("add_generation_prompt", default=True)
        try:
            return self._words.conversation(fields.messages("messages"), begin_answer=begin)
        except TEMPLATE_FAULTS as exc:
            raise Refused(f"The chat template does not take these messages: {exc}", param="messages") from exc

    async def _detokenize(self, request: Request) -> Response:
        ids = (await self._fields(request)).ids("tokens")
        self._card.check_ids(ids)
        return _json({"prompt": self._words.decode(ids)})

    async def _complete(self, request: Request) -> Response:
        raw = json_object(await request.body())
        work = asyncio.create_task(self._completions.answer(raw))
        gone = asyncio.create_task(_gone(request))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                return Response(status_code=499)  # nobody reads it
            return Response(work.result(), media_type="application/json")
        finally:
            work.cancel()
            gone.cancel()

    async def _fields(self, request: Request) -> Fields:
        fields = Fields(json_object(await request.body()))
        self._card.check_model(fields.raw.get("model"))
        return fields


class _Marked:
    """Names the fault on every reply, also where there is no such path or method."""

    def __init__(self, app: ASGIApp, *, fault: str) -> None:
        self._app = app
        self._fault = fault

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[FAULT_HEADER] = self._fault
            await send(message)

        await self._app(scope, receive, marked)


def _refusing(answer: Endpoint) -> Endpoint:
    """Turn refusals into replies."""

    async def endpoint(request: Request) -> Response:
        try:
            return await answer(request)
        except Refused as refused:
            return _json(refused.body(), refused.status)

    return endpoint


async def _gone(request: Request) -> None:
    """Return once the client has hung up."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _elsewhere(_: Request, exc: Exception) -> Response:
    """A path or method that there is not."""
    status = exc.status_code if isinstance(exc, HTTPException) else 500
    reply = _json(Refused("Not Found" if status == 404 else "Method Not Allowed", status=status).body(), status)
    reply.headers.update((exc.headers if isinstance(exc, HTTPException) else None) or {})
    return reply


def _json(content: dict[str, Any], status: int = 200) -> Response:
    return Response(json.dumps(content, ensure_ascii=False), status, media_type="application/json")
