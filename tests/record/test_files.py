"""Files are written whole or not at all, and only regular files are replaced."""

import os
import stat
import threading
from pathlib import Path

import pytest

from quantwatch.record.files import write_whole


def test_a_file_is_replaced_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    file.write_bytes(b"a much longer old content")

    write_whole(file, b"new")

    assert file.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [file]


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    """So does a device: /dev/null must never become a regular file."""
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()

    write_whole(pipe, b"through")

    reader.join(10)
    assert got == [b"through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_an_open_end_is_written_to_by_its_device_name() -> None:
    """What /dev/stdout is, when standard output is a pipe: a name that leads to no path."""
    out, into = os.pipe()

    write_whole(Path(f"/dev/fd/{into}"), b"through")

    os.close(into)
    with open(out, "rb") as end:
        assert end.read() == b"through"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)

    write_whole(link, b"new")

    assert link.is_symlink()
    assert target.read_bytes() == b"new"


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file or directory"):
        write_whole(tmp_path / "none" / "out.json", b"x")

    assert list(tmp_path.iterdir()) == []
