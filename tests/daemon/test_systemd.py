"""The notify protocol, against a real datagram socket in systemd's place."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from quantwatch.daemon.systemd import Notifier


@pytest.fixture(params=["a path", "an abstract address"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """What NOTIFY_SOCKET says, and the socket behind it."""
    name = str(tmp_path / "notify") if request.param == "a path" else f"@quantwatch-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.bind("\0" + name[1:] if name.startswith("@") else name)
        one.settimeout(5)
        yield name, one


def test_a_message_is_one_datagram_with_a_line_a_word(manager: tuple[str, socket.socket]) -> None:
    name, listening = manager

    Notifier({"NOTIFY_SOCKET": name}).tell("RELOADING=1", "MONOTONIC_USEC=123456")

    assert listening.recv(1000) == b"RELOADING=1\nMONOTONIC_USEC=123456"


def test_text_beyond_ascii_arrives_as_utf_8(manager: tuple[str, socket.socket]) -> None:
    name, listening = manager

    Notifier({"NOTIFY_SOCKET": name}).tell("STATUS=watching 2 targets, naïve")

    assert listening.recv(1000).decode() == "STATUS=watching 2 targets, naïve"


def test_without_systemd_nothing_happens() -> None:
    notifier = Notifier({})

    notifier.tell("READY=1")

    assert notifier.watchdog_seconds is None


@pytest.mark.parametrize("address", ["@quantwatch-nobody-there", "/nowhere/notify", "x" * 300])
def test_a_manager_that_is_gone_is_no_reason_to_stop(address: str) -> None:
    Notifier({"NOTIFY_SOCKET": address}).tell("READY=1")


def test_the_watchdog_time_is_read_in_seconds() -> None:
    assert Notifier({"WATCHDOG_USEC": "30000000"}).watchdog_seconds == 30.0
    assert Notifier({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}).watchdog_seconds == 30.0


@pytest.mark.parametrize(
    "environ",
    [
        {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid() + 1)},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": ""},
        {"WATCHDOG_USEC": "-1"},
    ],
)
def test_a_watchdog_of_another_process_or_without_a_time_is_none(environ: dict[str, str]) -> None:
    assert Notifier(environ).watchdog_seconds is None
