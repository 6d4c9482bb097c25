"""Replies of a given size that cost many times as much once they are built."""

from collections.abc import Callable, Mapping


def choices(count: int) -> bytes:
    """A completion of that many empty answers."""
    return b'{"choices": [' + b", ".join(b'{"index": %d}' % i for i in range(count)) + b"]}"


def entries(count: int) -> bytes:
    """A completion whose one position lists that many tokens."""
    row = b", ".join(b'"%d": {"logprob": -20.0}' % i for i in range(count))
    return _scored(b"null, {" + row + b"}")


def _scored(rows: bytes) -> bytes:
    return b'{"choices": [{"index": 0, "prompt_token_ids": [1, 2], "prompt_logprobs": [' + rows + b"]}]}"


def _repeated(piece: bytes, size: int) -> bytes:
    return b",".join([piece] * (size // (len(piece) + 1)))


MASSES: Mapping[str, Callable[[int], bytes]] = {
    "empty arrays": lambda size: b"[" + _repeated(b"[]", size) + b"]",
    "nested arrays": lambda size: b"[" + _repeated(b"[" * 100 + b"]" * 100, size) + b"]",
    "deep arrays": lambda size: b"[" * size,
    "positions without entries": lambda size: _scored(_repeated(b"{}", size)),
    "prefixes without entries": lambda size: (
        b'{"choices": [{"index": 0, "logprobs": {"tokens": [], "top_logprobs": [' + _repeated(b"{}", size) + b"]}}]}"
    ),
    "answers": lambda size: b'{"choices": [' + _repeated(b'{"index":0}', size * 2) + b"]}",
    "numbers": lambda size: b'{"choices": [{"index": 0, "token_ids": [' + _repeated(b"7", size * 2) + b"]}]}",
}
