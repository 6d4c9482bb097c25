"""How configuration names nodes of gateways that keep them in upstreams: APISIX, Kong."""

import re

UPSTREAM = re.compile(r"[A-Za-z0-9_.-]+")
ADDRESS = re.compile(r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}")


def member_of(gateway_name: str, upstream: str | None) -> tuple[str, str]:
    """A gateway_name, `HOST:PORT` or `UPSTREAM/HOST:PORT`, as upstream and address. upstream: of those that name none.

    Raises ValueError with a sentence for what cannot be one.
    """
    home, slash, address = gateway_name.partition("/")
    if not slash:
        home, address = upstream or "", gateway_name
    if not ADDRESS.fullmatch(address):
        raise ValueError(f"{gateway_name!r} is no HOST:PORT or UPSTREAM/HOST:PORT")
    if not home:
        raise ValueError(f"{gateway_name!r} names no upstream; write UPSTREAM/{gateway_name}, or set gateway.upstream")
    if not UPSTREAM.fullmatch(home):
        raise ValueError(f"{home!r} is no id or name of an upstream; these have letters, digits and _.- alone")
    return home, address
