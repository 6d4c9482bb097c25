"""Files that are written whole or not at all."""

import contextlib
import os
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write through a file beside it, so that a reader never sees half. Raises OSError and leaves nothing behind.

    What is no regular file, a device or a pipe, is written to as it is: a new file must not take its place.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    place = path.resolve()
    part = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(place)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise
