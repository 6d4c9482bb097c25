"""JSON to a file or to standard output."""

import json
from pathlib import Path
from typing import Any

from quantwatch.errors import InputError

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
    """Write JSON to a file, or to standard output for `-`. Raises InputError when the file cannot be written."""
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    if path == STANDARD_OUTPUT:
        print(text)  # noqa: T201, the output of the command
        return
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as exc:
        raise InputError(f"{path}: cannot be written: {exc.strerror}") from exc
