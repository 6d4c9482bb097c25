"""Commands that talk to a running daemon through its admin listener: status, pause, resume, reload, accept."""

import asyncio
import getpass
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, urlencode

import typer
from rich.console import Console

from quantwatch.cli.exit_codes import BREACH, CANNOT_SAY, OK
from quantwatch.cli.output import STANDARD_OUTPUT, Terminal, write_json
from quantwatch.cli.status import show_status
from quantwatch.clock import SystemClock
from quantwatch.errors import InputError, ProbeError
from quantwatch.flow.verdict import BREACHES, CANNOT_TELL, Quality

if TYPE_CHECKING:
    from quantwatch.net import Answer, Endpoint, Link

Config = Annotated[Path, typer.Option(help="The YAML configuration file; it names the admin listener")]
STATUS = "/api/v1/status"
UNAUTHORIZED = 401
Json = Annotated[Path | None, typer.Option("--json", help="Write it as JSON; - for standard output")]


def status(config: Config, json_file: Json = None) -> None:
    """What the running daemon sees: every target with its quality, routing and reason.

    Exit code: 0 all is well, 1 a target is degraded or corrupted, 2 something cannot be told, 3 no daemon answers.
    """
    board = asked(config, lambda link: link.get(STATUS))
    if json_file is not None:
        write_json(board, json_file)
    if json_file != STANDARD_OUTPUT:
        show_status(board, Terminal(highlight=False), now=SystemClock().now())
    raise typer.Exit(board_code(board))


def board_code(board: dict[str, Any]) -> int:
    """Exit code of a board: a breach, else something that cannot be told, else all is well."""
    qualities = {Quality(one["quality"]) for one in board["targets"]}
    cannot_tell = qualities & CANNOT_TELL or not board["ready"]
    return BREACH if qualities & BREACHES else CANNOT_SAY if cannot_tell else OK


def reload(config: Config) -> None:
    """Let the daemon read its configuration again; the old one stays when the new one is wrong (exit code 3)."""
    told = asked(config, lambda link: link.post("/-/reload", {}))
    lines = told["changes"]
    say(told["message"] + (":" if lines else "; nothing in it has changed"))
    for line in lines:
        say(f"  {line}")


def pause(
    config: Config,
    reason: Annotated[str, typer.Option(help="Why; everybody who wonders will read it")],
    scope: Annotated[str, typer.Option(help="all, pool:NAME or target:NAME")] = "all",
    hours: Annotated[float | None, typer.Option(min=0.01, help="For so long; until resumed if left out")] = None,
    author: Annotated[str | None, typer.Option(help="Who says so; the user of this shell if left out")] = None,
) -> None:
    """Let nothing act: quantwatch goes on measuring and showing."""
    body: dict[str, Any] = {"scope": scope, "reason": reason, "author": author or user()}
    if hours is not None:
        body["seconds"] = hours * 3600
    told = asked(config, lambda link: link.post("/api/v1/pauses", body))
    until = told["until"] or "somebody resumes it"
    say(f"paused {told['scope']} until {until}\nto end it: quantwatch resume --config {config} {told['id']}")


def resume(
    config: Config,
    pause_id: Annotated[str, typer.Argument(help="The pause's id, from `quantwatch status`")],
    reason: Annotated[str | None, typer.Option(help="Why; it is kept with the changes")] = None,
    author: Annotated[str | None, typer.Option(help="Who says so; the user of this shell if left out")] = None,
) -> None:
    """End a pause."""
    query = urlencode({"author": author or user(), **({"reason": reason} if reason else {})})
    asked(config, lambda link: link.delete(f"/api/v1/pauses/{quote(pause_id, safe='')}?{query}"))
    say(f"resumed: {pause_id}")


def accept_baseline(
    config: Config,
    reason: Annotated[str, typer.Option(help="Why the baseline is meant to be as it is now")],
    author: Annotated[str | None, typer.Option(help="Who says so; the user of this shell if left out")] = None,
) -> None:
    """Take the baseline as it is now for the yardstick, after it was changed on purpose."""
    body = {"reason": reason, "author": author or user()}
    told = asked(config, lambda link: link.post("/api/v1/baseline/accept", body))
    say(f"accepted: {told['accepted']}")


def asked(config: Path, action: "Callable[[Link], Awaitable[Answer]]") -> dict[str, Any]:
    """Ask the daemon; its JSON. Raises InputError when none answers or it refuses."""
    from quantwatch.net import Limits, Link

    endpoint, address = daemon_at(config)

    async def ask() -> "Answer":
        async with Link(endpoint, Limits(connect_seconds=5, total_seconds=60)) as link:
            return await action(link)

    try:
        answer = asyncio.run(ask())
    except ProbeError as exc:
        raise InputError(
            f"no daemon answers on {address} (server.admin_listen of {config}): {exc.reason}\nIs it running? "
            "`quantwatch run` or its systemd unit starts it, and its log says why it ended."
        ) from exc
    return read_answer(answer, address)


def daemon_at(config: Path) -> "tuple[Endpoint, str]":
    """Where the daemon of a configuration listens, and that address for messages. Raises InputError."""
    from quantwatch.config.access import callers_token
    from quantwatch.config.load import load_listen
    from quantwatch.net import Endpoint

    server = load_listen(config)
    token = callers_token(server, os.environ)
    return Endpoint("quantwatch", here(server.admin_listen), api_key=token), server.admin_listen


def here(listen: str) -> str:
    """The URL by which a listener of this machine is reached."""
    host, _, port = listen.rpartition(":")
    host = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)  # noqa: S104, what listens everywhere is here too
    return f"http://{host}:{port}"


def read_answer(answer: "Answer", address: str) -> dict[str, Any]:
    """The daemon's JSON. Raises InputError when it refuses, or when something else answers."""
    try:
        told = json.loads(answer.body)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise InputError(f"what answers on {address} (server.admin_listen) is not quantwatch: HTTP {answer.status}")
    if 200 <= answer.status < 300:
        return told
    reason = told.get("error") or told.get("message") or "it gives no reason"
    hint = "; --force isolates it all the same" if told.get("forcible") else ""
    if answer.status == UNAUTHORIZED:
        hint = (
            "\nIs the token that was sent one of server.admin_token and server.tokens, as the daemon last read them? "
            "QUANTWATCH_TOKEN_FILE names the file of your own."
        )
    raise InputError(f"the daemon refused (HTTP {answer.status}): {reason}{hint}")


def user() -> str:
    """Who sits here; a container often has no name for its user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def say(text: str) -> None:
    """Print a line as it is."""
    Console(highlight=False).print(text, markup=False, soft_wrap=True)
