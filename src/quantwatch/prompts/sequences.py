"""Ready id sequences from a file, so that figures can be repeated: JSON, a list of [ids, prompt_length]."""

import hashlib
import json
from pathlib import Path
from typing import Any

from quantwatch.errors import PromptError
from quantwatch.flow.prompt import GoldenSequence


def load_sequences(path: Path) -> tuple[tuple[GoldenSequence, ...], str]:
    """Read a sequences file; returns the sequences and the digest of their content. Raises PromptError."""
    try:
        raw = json.loads(path.read_bytes())
    except FileNotFoundError as exc:
        raise PromptError(f"{path}: no such sequences file") from exc
    except (OSError, ValueError, RecursionError) as exc:
        raise PromptError(f"{path}: no readable JSON: {exc}") from exc
    if not isinstance(raw, list) or not raw:
        raise PromptError(f"{path}: a non-empty list of [ids, prompt_length] is wanted")
    sequences = tuple(_sequence(item, i, path) for i, item in enumerate(raw))
    canonical = json.dumps([[sequence.ids, sequence.prompt_length] for sequence in sequences])
    return sequences, hashlib.sha256(canonical.encode()).hexdigest()


def _sequence(item: Any, index: int, path: Path) -> GoldenSequence:
    where = f"{path}: sequence {index}"
    if not isinstance(item, list) or len(item) != 2:
        raise PromptError(f"{where}: [ids, prompt_length] is wanted")
    ids, prompt_length = item
    if not isinstance(ids, list) or not all(type(token) is int and token >= 0 for token in ids):
        raise PromptError(f"{where}: ids must be a list of whole numbers, 0 or more")
    if type(prompt_length) is not int or not 1 <= prompt_length < len(ids):
        raise PromptError(
            f"{where}: prompt_length {prompt_length!r} must be within 1..{len(ids) - 1}, ids go on after it"
        )
    return GoldenSequence(f"sequence-{index}", tuple(ids), prompt_length)
