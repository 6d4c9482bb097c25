"""Who may use the admin listener."""

import hmac
import ipaddress

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from quantwatch.expose.replies import error_reply


class Guard:
    """Lets in who bears the token; without a token, who comes from this machine and from no web page.

    A browser on this machine reaches the loopback address too, on behalf of any page it shows. Such a page does not
    know the token, so with one nothing more is needed. Without one, two things give it away: a request that changes
    something carries the page's Origin (CSRF), and one from a page whose name was pointed at this address after it had
    been loaded carries that name as its Host (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, *, token: str | None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is allowed, answer the rest."""
        if scope["type"] == "http":
            reply = self._objection(Headers(scope=scope))
            if reply is not None:
                await reply(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _objection(self, headers: Headers) -> Response | None:
        if self._token is not None:
            return None if _bears(headers, self._token) else _unauthorized()
        if "origin" in headers:
            return error_reply("requests of web pages are refused while no admin_token is configured", 403)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not is_loopback(hosts[0]):
            return error_reply("without an admin_token only this machine is answered, by its loopback address", 403)
        return None


def _bears(headers: Headers, token: str) -> bool:
    given = headers.getlist("authorization")
    scheme, _, value = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    equal = hmac.compare_digest(value.strip().encode("latin-1"), token.encode("utf-8"))
    return equal and token != "" and scheme.lower() == "bearer"


def _unauthorized() -> Response:
    reply = error_reply("this listener needs the admin_token as a bearer token", 401)
    reply.headers["WWW-Authenticate"] = 'Bearer realm="quantwatch"'
    return reply


def is_loopback(host: str) -> bool:
    """Whether a Host header (`name`, `name:port`, `[address]:port`) names this machine by its loopback address."""
    name = host.rpartition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
