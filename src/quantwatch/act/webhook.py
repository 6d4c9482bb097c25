"""The generic gateway: a signed POST for every order, and a GET that tells how a node stands.

Calls follow Standard Webhooks: webhook-id is the decision's id on every try, so that a receiver can drop a repeat.
"""

import base64
import binascii
import email.utils
import json
import ssl
from datetime import datetime

from standardwebhooks import Webhook

from quantwatch.act.contract import Abilities, Seen, Unanswered
from quantwatch.act.payload import encoded
from quantwatch.clock import Clock
from quantwatch.errors import GatewayRefused, InputError, Misconfigured, NodeUnreachable, ProbeError
from quantwatch.flow.decision import Action, Order
from quantwatch.net import Answer, Link

PUT_OFF = frozenset({425, 429})
"""Statuses by which a gateway says that it has not looked at the order yet."""

COME_AGAIN = PUT_OFF | {408}

ADVICE = {
    401: "Look at gateway.api_key and gateway.signing_secret",
    403: "Look at gateway.api_key and gateway.signing_secret",
    404: "Look at gateway.url and the target's gateway_name",
    405: "It takes no POST; look at gateway.url",
}


class WebhookDriver:
    """One gateway. Each address has its own Link; release: where releases go when that is another one.

    state: answers exactly `{"isolated": true}` or `{"isolated": false}` to `?node_endpoint=...`; without it a yes
    cannot be read back. Raises InputError for a signing secret that cannot be used.
    """

    name = "webhook"

    def __init__(
        self,
        link: Link,
        *,
        clock: Clock,
        release: Link | None = None,
        state: Link | None = None,
        signing_secret: str | None = None,
    ) -> None:
        self.abilities = Abilities(reads_back=state is not None, proven=False, calls=True)
        self._links = {Action.ISOLATE: link, Action.RELEASE: release or link}
        self._state = state
        self._clock = clock
        self._signer = None if signing_secret is None else signer(signing_secret)
        keys = [one.endpoint.api_key for one in self._links.values()]
        self._secrets = [secret for secret in (*keys, signing_secret) if secret]

    async def call(self, order: Order) -> str:
        """Post the order once. Raises Unanswered or GatewayRefused."""
        link, body = self._links[order.action], encoded(order)
        try:
            answer = await link.send(body, signed(order.decision, body, self._signer, now=self._clock.now()))
        except ProbeError as exc:
            raise self._no_reply(link, exc) from exc
        if not 200 <= answer.status < 300:
            raise self._no(link, answer)
        return f"{link.name} answered {answer.status}"

    async def observe(self, order: Order) -> Seen:
        """Ask the state address; whatever is not a plain yes or no is UNKNOWN."""
        if self._state is None:
            return Seen.UNKNOWN
        try:
            answer = await self._state.ask({"node_endpoint": order.node})
        except ProbeError:
            return Seen.UNKNOWN
        return _seen(answer)

    def _no_reply(self, link: Link, exc: ProbeError) -> Unanswered | GatewayRefused:
        """No complete reply: either the order may be sent again, or a person has to mend the way to the gateway."""
        said = self._told(f"{link.name}: {exc.reason}")
        if isinstance(exc, Misconfigured):
            return GatewayRefused(f"{said}. {exc.advice or 'Look at the gateway settings'}")
        if tls_fault(exc):
            return GatewayRefused(f"{said}. Look at gateway.tls and the gateway's certificate")
        return Unanswered(said, arrived=not isinstance(exc, NodeUnreachable))

    def _no(self, link: Link, answer: Answer) -> Unanswered | GatewayRefused:
        said = f"{link.name} answered {answer.status}"
        if answer.status in COME_AGAIN or answer.status >= 500:
            wait = seconds_of(answer.retry_after, self._clock.now())
            return Unanswered(said, arrived=answer.status not in PUT_OFF, retry_after=wait)
        return GatewayRefused(f"{said}. {ADVICE.get(answer.status, 'Look at its log')}")

    def _told(self, text: str) -> str:
        """A text for messages; a gateway can repeat our secrets, in the address of a redirect for one."""
        for secret in self._secrets:
            text = text.replace(secret, "...")
        return text


def signed(id_: str, body: bytes, by: Webhook | None, *, now: datetime) -> dict[str, str]:
    """The headers of a call by Standard Webhooks. id_: the same on every try. by: None leaves the signature out."""
    headers = {
        "Content-Type": "application/json",
        "webhook-id": id_,
        "webhook-timestamp": str(int(now.timestamp())),
    }
    if by is not None:
        headers["webhook-signature"] = by.sign(id_, now, body.decode("ascii"))
    return headers


def signer(secret: str, *, whose: str = "gateway.signing_secret") -> Webhook:
    """What signs: `whsec_` and base64 as the standard has it, any other text by its own bytes.

    The package takes every text for base64, which turns most plain ones into a shorter key and refuses the rest, so a
    plain text goes to it as bytes. A receiver does the same. whose: the key of the configuration, for messages. Raises
    InputError, never repeating the secret.
    """
    if not secret.startswith("whsec_"):
        key = secret.encode()
    else:
        text = secret.removeprefix("whsec_").rstrip("=")
        try:
            key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
        except (binascii.Error, ValueError):
            raise InputError(f"{whose} starts with whsec_, but no base64 follows") from None
    if not key:
        raise InputError(f"{whose} is empty")
    return Webhook(key)


def seconds_of(retry_after: str | None, now: datetime) -> float | None:
    """Seconds that a Retry-After header asks for, given as a number or as a date; None when it cannot be read."""
    if retry_after is None:
        return None
    text = retry_after.strip()
    try:
        if text.isdecimal():
            return float(text)
        return max(0.0, (email.utils.parsedate_to_datetime(text) - now).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None


def _seen(answer: Answer) -> Seen:
    if answer.status != 200:
        return Seen.UNKNOWN
    try:
        told = json.loads(answer.body)
    except (ValueError, RecursionError):
        return Seen.UNKNOWN
    isolated = told.get("isolated") if isinstance(told, dict) and len(told) == 1 else None
    if not isinstance(isolated, bool):
        return Seen.UNKNOWN
    return Seen.ISOLATED if isolated else Seen.ROUTABLE


def tls_fault(exc: BaseException | None) -> bool:
    """Whether certificates or protocol are at fault; a handshake that merely broke off may succeed next time."""
    while exc is not None:
        if isinstance(exc, ssl.SSLError):
            return not isinstance(exc, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError)
        exc = exc.__cause__ or exc.__context__
    return False
