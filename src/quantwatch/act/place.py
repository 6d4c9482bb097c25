"""A file that a gateway reads, and beside it what we know of it: who is isolated by it, and of whom we are not sure.

Both survive a crash at any moment. The record goes first and keeps the file of before, until the new one has passed.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ENCODING, ERRORS = "utf-8", "surrogateescape"
"""What others wrote may be no text, and is put back as it was."""

POLL_SECONDS = 0.02
NEW_FILE, RECORD = 0o644, 0o600
"""Modes of a file that was not there before, and of our record, which can hold what only its owner may read."""


@dataclass(frozen=True, slots=True)
class Undo:
    """What stood there before a write that has not passed yet. text: None where there was no file."""

    text: str | None
    isolated: frozenset[str] = frozenset()
    unsure: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Record:
    """What we know of the file. isolated: names of targets, by the file. digest: of the file as it was last known.

    unsure: targets that were changed in the file since the gateway last took it over for certain. Both of these sets
    are empty and the digest is None where there is no file.
    """

    isolated: frozenset[str] = frozenset()
    digest: str | None = None
    unsure: frozenset[str] = frozenset()
    undo: Undo | None = None


class Locked(Exception):
    """Somebody else holds the file for too long."""


def digest(text: str | None) -> str | None:
    """Of a file; None for none."""
    return None if text is None else hashlib.sha256(text.encode(ENCODING, ERRORS)).hexdigest()


class Place:
    """Where the file is. A link is followed, so that it stays one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def beside(self) -> Path:
        """The file of our record; hidden, so that no gateway takes it for one of its own."""
        return self._hidden("quantwatch")

    def text(self) -> str | None:
        """The file; None where there is none. Raises OSError."""
        try:
            return self._file.read_bytes().decode(ENCODING, ERRORS)
        except FileNotFoundError:
            return None

    def write(self, text: str | None) -> None:
        """Put another file in its place, whole, with mode and owner of the old one; None removes it. Raises OSError."""
        if text is None:
            self._file.unlink(missing_ok=True)
        else:
            _replace(self._file, text.encode(ENCODING, ERRORS), self._hidden("quantwatch-new"), mode=NEW_FILE)

    def record(self) -> Record | None:
        """What we wrote down; None before the first time. Raises OSError, and ValueError for a damaged record."""
        try:
            content = json.loads(self.beside.read_bytes())
        except FileNotFoundError:
            return None
        try:
            return _record(content)
        except (KeyError, TypeError, AttributeError) as exc:
            raise ValueError(f"no such record: {exc!r}") from exc

    def save(self, record: Record) -> None:
        """Write a record down; durable on return. Raises OSError."""
        content: dict[str, Any] = {
            "schema": 1,
            "isolated": sorted(record.isolated),
            "unsure": sorted(record.unsure),
            "digest": record.digest,
            "undo": None,
        }
        if record.undo is not None:
            undo = record.undo
            content["undo"] = {
                "text": undo.text,
                "isolated": sorted(undo.isolated),
                "unsure": sorted(undo.unsure),
            }
        text = json.dumps(content, indent=1) + "\n"
        _replace(self.beside, text.encode("ascii"), self._hidden("quantwatch-record-new"), mode=RECORD)

    @contextlib.contextmanager
    def locked(self, seconds: float) -> Iterator[None]:
        """Hold the file against every other writer, waiting for so long. Raises Locked, OSError."""
        end = time.monotonic() + seconds
        handle = os.open(self._hidden("quantwatch-lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not _taken(handle):
                if time.monotonic() > end:
                    raise Locked
                time.sleep(POLL_SECONDS)
            yield
        finally:
            os.close(handle)

    @property
    def _file(self) -> Path:
        return Path(os.path.realpath(self.path))

    def _hidden(self, suffix: str) -> Path:
        return self._file.with_name(f".{self._file.name}.{suffix}")


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _record(content: Any) -> Record:
    if content["schema"] != 1:
        raise TypeError("it is of another version")
    undo = content["undo"]
    return Record(
        isolated=frozenset(content["isolated"]),
        digest=content["digest"],
        unsure=frozenset(content["unsure"]),
        undo=None if undo is None else Undo(undo["text"], frozenset(undo["isolated"]), frozenset(undo["unsure"])),
    )


def _replace(path: Path, content: bytes, new: Path, *, mode: int) -> None:
    """Write beside it and rename over it, so that no reader ever sees half a file. mode: of one that is new."""
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            _like(path, handle, mode)
            file.write(content)
            file.flush()
            os.fsync(handle)
        new.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _like(path: Path, handle: int, mode: int) -> None:
    """Give an open file mode and owner of the one that it replaces. Raises PermissionError where we may not."""
    try:
        old = path.stat()
    except FileNotFoundError:
        os.fchmod(handle, mode)
        return
    own = os.fstat(handle)
    if (old.st_uid, old.st_gid) != (own.st_uid, own.st_gid):
        os.fchown(handle, old.st_uid, old.st_gid)
    os.fchmod(handle, stat.S_IMODE(old.st_mode))
