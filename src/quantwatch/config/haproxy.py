"""How configuration names servers of HAProxy, and where its runtime socket is."""

import re

ADDRESS = re.compile(r"\[?([^\s/\[\]]+)\]?:(\d{1,5})")
NAME = re.compile(r"[A-Za-z0-9_.:-]+")
"""What HAProxy itself takes for a name; a space, a line break or a semicolon would begin another command."""


def servers_of(gateway_name: str, backend: str | None) -> tuple[str, ...]:
    """A gateway_name as `BACKEND/SERVER`s: one, or several with commas between; backend: for those that name none.

    Raises ValueError with a sentence for what cannot be one.
    """
    found = [_server(one.strip(" "), backend) for one in gateway_name.split(",")]
    return tuple(dict.fromkeys(found))


def _server(name: str, backend: str | None) -> str:
    home, slash, server = name.rpartition("/")
    parts = (home if slash else backend, server)
    if parts[0] is None:
        raise ValueError(f"{name!r} names no backend; write BACKEND/{name}, or set gateway.backend")
    if not all(NAME.fullmatch(one or "") for one in parts):
        raise ValueError(
            f"{name!r} is no SERVER or BACKEND/SERVER of HAProxy; names have letters, digits and _.:- alone"
        )
    return f"{parts[0]}/{parts[1]}"


def address_of(socket: str) -> tuple[str, int] | None:
    """Host and port of a runtime socket that is given as HOST:PORT; None for a path."""
    found = ADDRESS.fullmatch(socket)
    return (found[1], int(found[2])) if found is not None else None
