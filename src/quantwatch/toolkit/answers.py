"""Greedy answers of a full-precision model, kept on disk: they cost minutes and never change."""

import contextlib
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path


def fingerprint(folder: Path) -> str:
    """What tells one model from another without reading its weights: place, sizes and times of its files.

    Injected outlier channels do not change what a model answers.
    """
    files = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(folder.iterdir())]
    told = json.dumps([str(folder.resolve()), files])
    return hashlib.sha256(told.encode()).hexdigest()[:16]


class Answers:
    """Answers of one model by the ids that were asked. file: None keeps nothing. A damaged file counts as empty."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._kept: dict[str, list[int]] = {}
        if file is not None:
            try:
                read = json.loads(file.read_text(encoding="utf-8"))
                self._kept = {str(key): [int(one) for one in ids] for key, ids in read.items()}
            except (OSError, ValueError, TypeError, AttributeError):
                self._kept = {}

    def get(self, ids: Sequence[int], limit: int) -> list[int] | None:
        """The answer to these ids, None where it is not known."""
        return self._kept.get(_key(ids, limit))

    def put(self, ids: Sequence[int], limit: int, answer: Sequence[int]) -> None:
        """Keep an answer. Where the disk does not let us it is forgotten, which costs time alone."""
        self._kept[_key(ids, limit)] = list(answer)
        if self._file is None:
            return
        part = self._file.with_suffix(f".{os.getpid()}.part")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps(self._kept), encoding="utf-8")
            part.replace(self._file)
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)


def _key(ids: Sequence[int], limit: int) -> str:
    return hashlib.sha256(json.dumps([list(ids), limit]).encode()).hexdigest()
