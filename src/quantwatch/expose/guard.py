"""Who may use the admin listener, and how far."""

import ipaddress
from math import ceil
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.requests import Request, cookie_parser
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from quantwatch.expose.access import Access, Entry, PageRules
from quantwatch.expose.replies import Handler, error_reply, see_other
from quantwatch.expose.sessions import Session
from quantwatch.flow.access import LOCAL, READER, Role

READING = ("GET", "HEAD")
ENTRY = "quantwatch.entry"
"""Where a request's Entry stands in its scope."""

BY_ITSELF = "hx-request"
"""The header of requests that a page makes for its newest state."""

DOOR = "/login"
"""Where a person gives a token."""

NEVER_OPEN = ("/api/", "/-/")
"""Paths that open pages do not open."""

FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via")
"""What a proxy leaves on a request: it comes from elsewhere, although the proxy is on this machine."""


ELSEWHERE = "elsewhere"
"""Whose guesses those are that reach a loopback address by another name: a page that does so must slow nobody else."""


class Guard:
    """Finds out who calls and lets in who may; each route then says which role it needs.

    A browser on this machine reaches the loopback address too, on behalf of any page it shows. Such a page does not
    know the token, so with one nothing more is needed. Without one, two things give it away: a request that changes
    something carries the page's Origin (CSRF), and one from a page whose name was pointed at this address after it had
    been loaded carries that name as its Host (DNS rebinding). A session's cookie is sent along by the browser whoever
    asks, so what changes something must come from a page of ours.

    at_the_door: paths that everybody may ask for, such as the one where a token is given.
    """

    def __init__(self, app: ASGIApp, *, access: Access, at_the_door: tuple[str, ...] = ()) -> None:
        self._app = app
        self._access = access
        self._at_the_door = at_the_door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is allowed, answer the rest."""
        if scope["type"] == "http":
            found = self._looked_at(scope, Headers(scope=scope))
            if isinstance(found, Response):
                await found(scope, receive, send)
                return
            scope[ENTRY] = found
        await self._app(scope, receive, send)

    def _looked_at(self, scope: Scope, headers: Headers) -> Entry | Response:
        client = scope["client"][0] if scope.get("client") else "unknown"
        if not self._access.keys:
            return self._local(scope, headers, client)
        if "authorization" in headers:
            return self._by_token(scope, headers, client)
        session = self._session(headers)
        if session is not None:
            if scope["method"] in READING or self._access.rules.same_origin(headers):
                return Entry(session.caller, session, client)
            return self._refuse("origin", scope, client, OTHER_ORIGIN)
        return self._reader(scope, headers, client)

    def _local(self, scope: Scope, headers: Headers, client: str) -> Entry | Response:
        if "origin" in headers:
            said = "requests of web pages are refused while no admin_token or tokens are configured"
            return self._refuse("origin", scope, client, said)
        if not from_here(headers):
            said = "without an admin_token or tokens only this machine is answered, by its loopback address"
            return self._refuse("not_local", scope, client, said)
        return Entry(LOCAL, None, client)

    def _by_token(self, scope: Scope, headers: Headers, client: str) -> Entry | Response:
        counted = client if rightly_named(headers, self._access.rules) else ELSEWHERE
        wait = self._access.slowing.wait(counted)
        if wait > 0:
            reply = self._refuse("slowed", scope, client, SLOWED.format(ceil(wait)), 429)
            reply.headers["Retry-After"] = str(ceil(wait))
            return reply
        given = _borne(headers)
        key = self._access.key_of(given)
        if key is not None:
            return Entry(key.caller, None, client)
        self._access.slowing.failed(counted, given)
        return self._unauthorized(scope, client)

    def _session(self, headers: Headers) -> Session | None:
        id_ = cookie(headers, self._access.rules.cookie)
        return self._access.sessions.find(id_, by_itself=BY_ITSELF in headers) if id_ else None

    def _reader(self, scope: Scope, headers: Headers, client: str) -> Entry | Response:
        """Somebody without a token: for the door, and for pages where they are open."""
        path, rules = scope["path"], self._access.rules
        if any(path == one or (one.endswith("/") and path.startswith(one)) for one in self._at_the_door):
            return Entry(READER, None, client)
        page, reading = not path.startswith(NEVER_OPEN), scope["method"] in READING
        if page and reading and rules.open and (not rules.local or from_here(headers)):
            return Entry(READER, None, client)
        if page and self._at_the_door and "text/html" in headers.get("accept", ""):
            return see_other(f"{DOOR}?next={quote(path)}" if reading else f"{DOOR}?ended=1")
        reply = self._unauthorized(scope, client)
        if page and BY_ITSELF in headers:
            reply.headers["HX-Redirect"] = f"{DOOR}?ended=1"  # the page itself goes there, and not the part of it
        return reply

    def _unauthorized(self, scope: Scope, client: str) -> Response:
        reply = self._refuse("unauthorized", scope, client, UNKNOWN, 401)
        reply.headers["WWW-Authenticate"] = 'Bearer realm="quantwatch"'
        return reply

    def _refuse(self, reason: str, scope: Scope, client: str, said: str, status: int = 403) -> Response:
        self._access.refused(reason, client, path=scope["path"])
        return error_reply(said, status)


UNKNOWN = "this listener needs the admin_token, or one of its tokens, as a bearer token"
SLOWED = "too many wrong tokens from this address; the next one is looked at in {} s"
OTHER_ORIGIN = (
    "this request comes from no page of this listener; behind a proxy set server.page_url to the address in the browser"
)


def needs(least: Role | None, handler: Handler, *, access: Access, does: str, scripts: bool = True) -> Handler:
    """A handler that answers callers with this role alone; None for everybody who was let in.

    does: what it is, in the words of a refusal. scripts: it changes something and is called with a token or from this
    machine, never with a browser's session.
    """

    async def checked(request: Request) -> Response:
        entry = entry_of(request)
        if least is not None and not entry.caller.may(least):
            access.refused("forbidden", entry.client, path=request.url.path, caller=entry.caller)
            return error_reply(short_of(least, entry, does), 403, needs=least.value)
        if scripts and entry.session is not None and request.method not in READING:
            access.refused("session", entry.client, path=request.url.path, caller=entry.caller)
            return error_reply("a browser's session acts by the forms of the pages; scripts send the token itself", 403)
        return await handler(request)

    return checked


def short_of(least: Role, entry: Entry, does: str) -> str:
    """Why a caller may not."""
    role = "none" if entry.caller.role is None else entry.caller.role.value
    return f"{does} needs the role {least.value}; {entry.caller.name} has the role {role}"


def from_here(headers: Headers) -> bool:
    """Whether a request was sent to this machine's loopback address, by nobody's proxy."""
    hosts = headers.getlist("host")
    return len(hosts) == 1 and is_loopback(hosts[0]) and not any(one in headers for one in FORWARDED)


def rightly_named(headers: Headers, rules: PageRules) -> bool:
    """Whether a request to a loopback address calls it that, unless it has another name by the configuration.

    What does not may come from a page whose name was pointed at this machine, which looks like one of ours.
    """
    return from_here(headers) or not rules.local or rules.origin is not None


def entry_of(request: Request) -> Entry:
    """Who a request comes from."""
    entry: Entry = request.scope[ENTRY]
    return entry


def cookie(headers: Headers, name: str) -> str:
    """The value of a cookie; empty where there is none.

    Split as browsers put them together: other programs on this host set cookies too, and some of them are not well
    formed.
    """
    return cookie_parser("; ".join(headers.getlist("cookie"))).get(name, "")


def _borne(headers: Headers) -> bytes:
    """The bearer token of a request; empty where there is none, or several."""
    given = headers.getlist("authorization")
    scheme, _, value = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    return value.strip().encode("latin-1") if scheme.lower() == "bearer" else b""


def is_loopback(host: str) -> bool:
    """Whether a Host header (`name`, `name:port`, `[address]:port`) names this machine by its loopback address."""
    name = host.rpartition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
