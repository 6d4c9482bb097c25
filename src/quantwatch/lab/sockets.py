"""Sockets that a node listens on."""

import socket

from quantwatch.errors import InputError


def bound(host: str, port: int) -> socket.socket:
    """A socket that holds an address and does not listen yet, so that nobody waits while a model is loaded.

    port 0: a free one. Raises InputError when the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    taken = socket.socket(family, socket.SOCK_STREAM)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((host, port))
    except OSError as exc:
        taken.close()
        raise InputError(f"cannot listen on {host}:{port}: {exc.strerror or exc}; choose another --port") from exc
    return _known(taken.detach())


def inherited(fd: int) -> socket.socket:
    """A listening socket of the parent process; others may accept on it too. Raises InputError when it is none."""
    try:
        taken = _known(fd)
    except OSError as exc:
        raise InputError(f"--fd {fd}: no open socket has this number: {exc.strerror or exc}") from exc
    tcp = taken.family in (socket.AF_INET, socket.AF_INET6) and taken.type == socket.SOCK_STREAM
    if not tcp or not taken.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        taken.detach()  # it stays the parent's
        raise InputError(f"--fd {fd}: this is no TCP socket that listens; let the parent process bind it and listen")
    return taken


def _known(fd: int) -> socket.socket:
    """Take a socket up by its number: it then knows that it speaks TCP, and asyncio sends without Nagle's delay."""
    return socket.socket(fileno=fd)


def url_of(taken: socket.socket) -> str:
    """Where a socket can be reached."""
    host, port = taken.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
