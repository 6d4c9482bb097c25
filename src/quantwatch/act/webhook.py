"""The generic gateway: a signed POST for every order, and a GET that tells how a node stands.

Calls follow Standard Webhooks: webhook-id is the decision's id on every try, so that a receiver can drop a repeat.
"""

import base64
import binascii
import json
from datetime import datetime

from standardwebhooks import Webhook

from quantwatch.act.answers import no, no_reply
from quantwatch.act.contract import Abilities, Seen
from quantwatch.act.payload import encoded
from quantwatch.clock import Clock
from quantwatch.errors import InputError, ProbeError
from quantwatch.flow.decision import Action, Order
from quantwatch.net import Answer, Link

ADVICE = {
    401: "Look at gateway.api_key and gateway.signing_secret",
    403: "Look at gateway.api_key and gateway.signing_secret",
    404: "Look at gateway.url and the target's gateway_name",
    405: "It takes no POST; look at gateway.url",
}


def able(*, reads_back: bool) -> Abilities:
    """What a webhook can do; it was only tested against stand-ins, since every receiver is another program."""
    return Abilities(reads_back=reads_back, proven=False, calls=True, steers=True)


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
        self.abilities = able(reads_back=state is not None)
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
            raise no_reply(link.name, exc, secrets=self._secrets) from exc
        if not 200 <= answer.status < 300:
            raise no(link.name, answer, now=self._clock.now(), advice=ADVICE)
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
