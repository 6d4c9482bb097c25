"""What is injected into everything that is built, and how certificates are named to the network."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TypedDict

import httpx

from quantwatch.act.contract import MemoryNotes, Notes
from quantwatch.clock import Clock
from quantwatch.config.server import TlsSettings
from quantwatch.probe.account import Accounts
from quantwatch.trace import NoTracer, Tracer


class Certificates(TypedDict):
    """What an Endpoint needs to know of TLS."""

    ca_file: str | None
    client_certificate: tuple[str, str] | None


@dataclass(frozen=True, slots=True)
class Tools:
    """What is injected: time, chance, the network's transport (None for the real one), and who hears of requests.

    heard: hears role (`baseline` or `target`), name, seconds and what went wrong, if anything did. spent: hears role,
    name and tokens of every probe. restarted: hears role and name of a server that restarted under one. accounts: what
    is remembered of servers; whoever builds several configurations gives the same each time. notes: where a gateway's
    driver keeps what it must know in its next life; for one process life if left out. tracer: who hears of runs as
    traces.
    """

    clock: Clock
    random: Random
    transport: httpx.AsyncBaseTransport | None = None
    heard: Callable[[str, str, float, str | None], None] = lambda *_: None
    spent: Callable[[str, str, int], None] = lambda *_: None
    restarted: Callable[[str, str], None] = lambda *_: None
    accounts: Accounts = field(default_factory=Accounts)
    notes: Notes = field(default_factory=MemoryNotes)
    tracer: Tracer = field(default_factory=NoTracer)


def certificates(tls: TlsSettings) -> Certificates:
    """The certificates of a server's settings."""
    pair = (tls.certificate_file, tls.key_file) if tls.certificate_file and tls.key_file else None
    return {"ca_file": tls.ca_file, "client_certificate": pair}
