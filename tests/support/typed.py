"""Command lines that documents show, and whether the product's command would take them."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any

import typer
from typer.main import get_command

from quantwatch.cli.main import app

FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"(?<!`)`(quantwatch [^`]+)`")
PIPES = frozenset({"|", "&&", "||", ";", "&", ">", "2>&1", "2>", ">>", "<"})
SHELLS = ("", "sh", "bash", "console")
SETTING = re.compile(r"[A-Z_]+=.*")


def blocks(text: str, *languages: str) -> list[str]:
    """Contents of the fenced blocks in these languages."""
    return [content for language, content in FENCE.findall(text) if language in languages]


def shell_calls(text: str) -> list[list[str]]:
    """Arguments of every call of quantwatch in the shell blocks of a page."""
    lines = "\n".join(blocks(text, *SHELLS)).replace("\\\n", " ").splitlines()
    return [call for line in lines if "quantwatch" in line for call in _calls(line)]


def mentions(text: str) -> list[list[str]]:
    """Arguments of every call of quantwatch in a sentence; one may lack what the reader has to fill in."""
    prose = " ".join(FENCE.sub("", text).split())
    return [shlex.split(_plain(call))[1:] for call in INLINE.findall(prose)]


def _plain(line: str) -> str:
    """Without the brackets around what may be left out."""
    return line.replace("[", "").replace("]", "")


def _calls(line: str) -> Iterator[list[str]]:
    try:
        words = shlex.split(_plain(line.removeprefix("$ ")), comments=True)
    except ValueError:
        return  # no command, but what one has printed
    command: list[str] = []
    for word in [*words, ";"]:
        if word not in PIPES:
            command += [] if not command and SETTING.fullmatch(word) else [word]
            continue
        if command and (command[0] == "quantwatch" or command[0].endswith("/bin/quantwatch")):
            yield command[1:]
        command = []


@cache
def whole() -> Any:
    """The whole command; to put it together takes longer than to ask it."""
    return get_command(app)


def refusal(arguments: list[str]) -> str | None:
    """Why the command would refuse its arguments, None when it takes them. Nothing is carried out."""
    command, context, given = whole(), None, list(arguments)
    try:
        while True:
            context = command.make_context(command.name or "quantwatch", [*given], parent=context)
            if not hasattr(command, "resolve_command"):
                return None
            _, command, given = command.resolve_command(context, [*context._protected_args, *context.args])
    except typer.TyperException as exc:
        return str(exc.format_message()) if hasattr(exc, "format_message") else str(exc)


def options() -> set[str]:
    """Every option of every command."""
    found, waiting = set(), [whole()]
    for command in waiting:
        waiting += getattr(command, "commands", {}).values()
        found |= {flag for one in command.params for flag in (*one.opts, *one.secondary_opts)}
    return found
