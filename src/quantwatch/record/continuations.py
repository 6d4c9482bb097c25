"""Keeps the baseline's own greedy answers, so that each is made once.

One small JSON file an answer, under the fingerprint of the baseline that gave it. A file that cannot be used is made
anew; losing the folder costs time, never correctness, since both servers always score the same ids.
"""

import contextlib
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from quantwatch.flow.identity import Identity
from quantwatch.record.files import write_whole

FORMAT = 1


def fingerprint(baseline: Identity) -> str:
    """What must be equal for an old answer to count as this baseline's own: 16 hex digits."""
    parts = [FORMAT, baseline.model, baseline.root, baseline.max_model_len, baseline.version, baseline.tokenizer]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


class Continuations:
    """Answers of one baseline, in a folder of the user's cache."""

    def __init__(self, folder: Path, baseline: Identity) -> None:
        self._folder = folder / fingerprint(baseline)

    def get(self, prompt: Sequence[int], limit: int) -> tuple[int, ...] | None:
        """The stored answer to a prompt's ids, or None."""
        try:
            kept = json.loads(self._path(prompt, limit).read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        ids = kept.get("continuation") if isinstance(kept, dict) and kept.get("prompt") == list(prompt) else None
        return tuple(ids) if isinstance(ids, list) and all(type(token) is int for token in ids) else None

    def put(self, prompt: Sequence[int], limit: int, continuation: Sequence[int]) -> None:
        """Store an answer whole or not at all. A full or read-only disk is no reason to stop measuring."""
        content = json.dumps({"prompt": list(prompt), "continuation": list(continuation)})
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            write_whole(self._path(prompt, limit), content.encode())

    def _path(self, prompt: Sequence[int], limit: int) -> Path:
        key = hashlib.sha256(json.dumps([list(prompt), limit]).encode()).hexdigest()[:32]
        return self._folder / f"{key}.json"
