"""What an answer of a gateway, or its silence, means for an order."""

import email.utils
import ssl
from collections.abc import Iterable, Mapping
from datetime import datetime

from quantwatch.act.contract import Unanswered
from quantwatch.errors import GatewayRefused, Misconfigured, NodeUnreachable, ProbeError
from quantwatch.net import Answer

PUT_OFF = frozenset({425, 429})
"""Statuses by which a gateway says that it has not looked at the order yet."""

COME_AGAIN = PUT_OFF | {408}


def no_reply(name: str, exc: ProbeError, *, secrets: Iterable[str] = ()) -> Unanswered | GatewayRefused:
    """No complete reply: either the order may be sent again, or a person has to mend the way to the gateway.

    secrets: are not repeated; a gateway can say them, in the address of a redirect for one.
    """
    said = f"{name}: {exc.reason}"
    for secret in secrets:
        said = said.replace(secret, "...")
    if isinstance(exc, Misconfigured):
        return GatewayRefused(f"{said}. {exc.advice or 'Look at the gateway settings'}")
    if tls_fault(exc):
        return GatewayRefused(f"{said}. Look at gateway.tls and the gateway's certificate")
    return Unanswered(said, arrived=not isinstance(exc, NodeUnreachable))


def no(name: str, answer: Answer, *, now: datetime, advice: Mapping[int, str]) -> Unanswered | GatewayRefused:
    """An answer that is not yes. advice: by status, for the person who reads it."""
    said = f"{name} answered {answer.status}"
    if answer.status in COME_AGAIN or answer.status >= 500:
        wait = seconds_of(answer.retry_after, now)
        return Unanswered(said, arrived=answer.status not in PUT_OFF, retry_after=wait)
    return GatewayRefused(f"{said}. {advice.get(answer.status, 'Look at its log')}")


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


def tls_fault(exc: BaseException | None) -> bool:
    """Whether certificates or protocol are at fault; a handshake that merely broke off may succeed next time."""
    while exc is not None:
        if isinstance(exc, ssl.SSLError):
            return not isinstance(exc, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError)
        exc = exc.__cause__ or exc.__context__
    return False
