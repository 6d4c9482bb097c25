"""The protocol of systemd's notify socket: one datagram a message (man sd_notify)."""

import contextlib
import os
import socket
from collections.abc import Mapping


class Notifier:
    """Tells systemd how the daemon is; does nothing where nobody listens."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        mine = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        usec = environ.get("WATCHDOG_USEC", "")
        self.watchdog_seconds: float | None = int(usec) / 1e6 if mine and usec.isdecimal() and int(usec) else None
        """How long systemd waits for a sign of life before it restarts us; None where it does not watch."""

    def tell(self, *lines: str) -> None:
        """Send a message. A manager that is gone is no reason to stop."""
        if not self._address:
            return
        # A leading @ stands for the zero byte of an abstract socket.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto("\n".join(lines).encode(), address)
