"""Where the store lies: no network file system, one writer, and damaged files moved aside."""

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from quantwatch.errors import StoreError

NETWORK = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
    }
)
"""File systems whose locks or shared memory do not hold what SQLite asks of them."""

NETWORK_FUSE = ("sshfs", "s3fs", "rclone", "glusterfs", "davfs", "gcsfuse", "ceph", "blobfuse", "juicefs", "smbnetfs")
MOUNTS = Path("/proc/mounts")
BESIDE = ("-wal", "-shm", "-journal")
"""Files that SQLite keeps beside a database; they belong to it."""


def network_file_system(mounts: str, path: Path) -> str | None:
    """The type of the network file system that a resolved path lies on, or None. mounts: text of /proc/mounts."""
    found, depth = "", -1
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point, kind = re.sub(r"\\([0-7]{3})", _octal, fields[1]), fields[2]
        parts = Path(point).parts
        if path.parts[: len(parts)] == parts and len(parts) >= depth:  # a later mount hides an earlier one
            found, depth = kind, len(parts)
    family, _, inner = found.partition(".")
    over_fuse = family in ("fuse", "fuseblk") and inner.startswith(NETWORK_FUSE)
    return found if found in NETWORK or over_fuse else None


def _octal(match: re.Match[str]) -> str:
    return chr(int(match[1], 8))


def refuse_network(path: Path, *, mounts: Path = MOUNTS) -> None:
    """Raises StoreError where SQLite could lose what it has promised. Says nothing where there is no list of mounts."""
    try:
        text = mounts.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return
    kind = network_file_system(text, path.resolve())
    if kind is not None:
        raise StoreError(f"{path}: lies on a network file system ({kind}), where a store is not safe; use a local disk")


def make_folder(path: Path) -> None:
    """Create the folder of a store. Raises StoreError when it cannot."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise StoreError(f"{path.parent}: cannot be created: {exc.strerror}") from exc


@contextlib.contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Hold the lock of a store. Raises StoreError naming the process that holds it already.

    The lock ends with the process, however it ends; the file stays, since removing it would let two hold it.
    """
    beside = path.with_name(f"{path.name}.lock")
    try:
        handle = os.open(beside, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as exc:
        raise StoreError(f"{beside}: cannot be opened: {exc.strerror}") from exc
    try:
        _lock(handle, path)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, path: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(handle, 32, 0).decode("ascii", "replace").strip() or "unknown"
        raise StoreError(f"{path}: process {pid} writes to this store already; one store has one writer") from None
    except OSError as exc:
        raise StoreError(f"{path}: cannot be locked: {exc.strerror}") from exc
    with contextlib.suppress(OSError):  # a full disk must not hide the store; the pid is only for people
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)


def move_aside(path: Path, *, at: datetime) -> Path:
    """Move a damaged store and what belongs to it to `NAME.corrupt-STAMP`. Raises StoreError when it cannot."""
    stamp = f"{path.name}.corrupt-{at.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    names = [stamp, *(f"{stamp}.{number}" for number in range(2, 1000))]
    aside = next(place for place in map(path.with_name, names) if not _taken(place))
    try:
        for suffix in ("", *BESIDE):
            part = path.with_name(path.name + suffix)
            if part.exists():
                part.rename(aside.with_name(aside.name + suffix))
        sync_folder(path.parent)
    except OSError as exc:
        raise StoreError(f"{path}: is damaged and cannot be moved aside: {exc.strerror}") from exc
    return aside


def _taken(place: Path) -> bool:
    return any(place.with_name(place.name + suffix).exists() for suffix in ("", *BESIDE))


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
