"""Where a person shows a token and gets a session, and where that ends."""

from collections.abc import Sequence
from math import ceil

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from quantwatch.expose.access import PageRules
from quantwatch.expose.body import BodyError, read_form
from quantwatch.expose.guard import DOOR, cookie, entry_of, rightly_named
from quantwatch.expose.replies import see_other
from quantwatch.log import logger
from quantwatch.pages.acting import Acting
from quantwatch.pages.site import Site

log = logger("quantwatch.admin")


def routes(site: Site, acting: Acting) -> Sequence[BaseRoute]:
    """The door."""
    door = _Door(site, acting)
    return [
        Route(DOOR, door.page, methods=["GET"]),
        Route(DOOR, door.enter, methods=["POST"]),
        Route("/logout", door.leave, methods=["POST"]),
    ]


class _Door:
    def __init__(self, site: Site, acting: Acting) -> None:
        self._site = site
        self._access = acting.access

    async def page(self, request: Request) -> Response:
        ended = "ended" in request.query_params
        return await self._page(request, said="login.ended" if ended else None)

    async def enter(self, request: Request) -> Response:
        access, client = self._access, entry_of(request).client
        if not access.keys:
            return await self._page(request, status=403)
        ours = "origin" not in request.headers or access.rules.same_origin(request.headers)
        if not ours or not rightly_named(request.headers, access.rules):
            access.refused("origin", client, path=DOOR)
            return await self._page(request, said="login.origin", status=403)
        wait = access.slowing.wait(client)
        if wait > 0:
            access.refused("slowed", client, path=DOOR)
            reply = await self._page(request, said="login.slowed", status=429, seconds=ceil(wait))
            reply.headers["Retry-After"] = str(ceil(wait))
            return reply
        try:
            given = await read_form(request, known=("token", "next"))
        except BodyError:
            return await self._page(request, said="login.wrong", status=400)
        token = given.get("token", "").strip().encode("utf-8")
        found = access.key_of(token)
        if found is None:
            access.slowing.failed(client, token)
            access.refused("unauthorized", client, path=DOOR)
            return await self._page(request, said="login.wrong", status=401)
        old = access.sessions.find(cookie(request.headers, access.rules.cookie))
        if old is not None:
            access.sessions.end(old)
        id_, session = access.sessions.begin(found)
        log.info("session begun", caller=session.caller.name, role=session.caller.role, client=client)
        reply = see_other(inside(given.get("next", "")))
        _keep(reply, access.rules, id_)
        return reply

    async def leave(self, request: Request) -> Response:
        entry, access = entry_of(request), self._access
        if not access.rules.same_origin(request.headers):  # also where the browser kept the session to itself
            access.refused("origin", entry.client, path="/logout")
            return await self._site.page(request, "act_refused.html", status=403, key="act.csrf", values={})
        if entry.session is not None:
            try:
                given = await read_form(request, known=("csrf",))
            except BodyError:
                given = {}
            if not entry.session.wrote(given.get("csrf", "")):
                access.refused("csrf", entry.client, path="/logout", caller=entry.caller)
                return await self._site.page(request, "act_refused.html", status=403, key="act.csrf", values={})
            access.sessions.end(entry.session)
            log.info("session ended", caller=entry.caller.name, client=entry.client)
        reply = see_other("/")
        reply.delete_cookie(access.rules.cookie, path="/", secure=access.rules.secure, httponly=True, samesite="strict")
        return reply

    async def _page(
        self, request: Request, *, said: str | None = None, status: int = 200, seconds: int = 0
    ) -> Response:
        go_on = inside(request.query_params.get("next", ""))
        return await self._site.page(
            request, "login.html", status=status, fault=said, wait=seconds, go_on=go_on, rules=self._access.rules
        )


def inside(path: str) -> str:
    """A path of ours to go on to; anything that could lead elsewhere becomes the first page."""
    fine = path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()
    return path if fine and path.isascii() and not path.startswith(DOOR) else "/"


def _keep(reply: Response, rules: PageRules, id_: str) -> None:
    """Give the browser its session: sent to us alone, by our own pages alone, and out of reach of scripts."""
    reply.set_cookie(rules.cookie, id_, path="/", secure=rules.secure, httponly=True, samesite="strict")
