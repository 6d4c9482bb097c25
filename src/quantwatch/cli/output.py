"""JSON to a file or to standard output."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from quantwatch.errors import InputError
from quantwatch.record.files import write_whole

STANDARD_OUTPUT = Path("-")


def refuse_unwritable(path: Path) -> None:
    """Find out before a long run that its result could not be written. Raises InputError."""
    if path == STANDARD_OUTPUT:
        return
    try:
        with path.open("a", encoding="utf-8"):
            return
    except OSError as exc:
        raise InputError(f"{path}: cannot be written: {exc.strerror}") from exc


def write_json(content: dict[str, Any], path: Path) -> None:
    """Write JSON to a file, whole or not at all, or to standard output for `-`. Raises InputError when it cannot."""
    write_text(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n", path)


def write_text(text: str, path: Path) -> None:
    """Write text to a file, whole or not at all, or to standard output for `-`. Raises InputError when it cannot."""
    whole = text.encode("utf-8", "backslashreplace")  # servers can send half a character
    if path == STANDARD_OUTPUT:
        sys.stdout.write(whole.decode())
        return
    try:
        write_whole(path, whole)
    except OSError as exc:
        raise InputError(f"{path}: cannot be written: {exc.strerror}") from exc


class Terminal(Console):
    """A console that falls silent when its reader is gone, so that the exit code still tells the verdict."""

    def on_broken_pipe(self) -> None:
        """Go on without output."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
