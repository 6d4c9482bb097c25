"""Converted models on disk: each is there whole or not at all, whoever else is converting."""

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from quantwatch.errors import InputError

UNFINISHED = ".unfinished-"
"""How the folder is called in which a model is being made."""

Make = Callable[[Path, Path], None]
"""Makes a model: takes a scratch folder and an empty folder that becomes the model. Raises InputError."""


def shelved(folder: Path, make: Make, *, tell: Callable[[str], None]) -> Path:
    """The folder, made now if it is not there: in a folder beside it that takes its name when all is written.

    Of two processes one makes it and the other waits. What a killed process left unfinished is removed. Raises
    InputError where the disk does not let us, and whatever make raises; nothing half-made is left then.
    """
    try:
        if folder.is_dir():
            return folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.parent, tell):
            if not folder.is_dir():
                _remove_unfinished(folder.parent)
                _make(folder, make)
    except OSError as exc:
        raise InputError(_sentence(folder, exc)) from exc
    return folder


def _make(folder: Path, make: Make) -> None:
    scratch = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=folder.parent))
    try:
        made = scratch / "model"
        made.mkdir()
        make(scratch, made)
        _sync(made)
        made.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _sync(folder: Path) -> None:
    """A crash of the machine after the renaming must not find empty files."""
    for path in folder.iterdir():
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _remove_unfinished(parent: Path) -> None:
    """Under the lock nobody else is making anything, so these folders are nobody's."""
    for left in parent.glob(f"{UNFINISHED}*"):
        shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def _locked(parent: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """One maker of models at a time; the lock ends with the process, however it ends."""
    handle = os.open(parent / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("another process is preparing a model; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _sentence(folder: Path, exc: OSError) -> str:
    if exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"{folder}: no space left for the model; free some, or keep models elsewhere with --cache DIR"
    return f"{folder}: the model cannot be kept there: {exc.strerror or exc}; choose another place with --cache DIR"


def refuse_full_disk(folder: Path, *, wanted: int) -> None:
    """Raise InputError unless so many bytes are free where the folder is: told before minutes of work, not after."""
    free = shutil.disk_usage(folder).free
    if free < wanted:
        raise InputError(
            f"{folder}: {wanted / 1e6:,.0f} MB are needed for the model and {free / 1e6:,.0f} MB are free; "
            "free some, or keep models elsewhere with --cache DIR"
        )
