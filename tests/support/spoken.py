"""Answers in words, with ids by a small tokenizer: a text repeats itself exactly as its ids do."""

import re
import zlib

from quantwatch.flow.canary import FreeAnswer

PIECE = re.compile(r" ?[A-Za-z]{1,6}|\d{1,3}|\n+| {2,}|([^\w\s])\1{1,15}|.", re.DOTALL)


def pieces(text: str) -> list[str]:
    """A text in the pieces that are its tokens."""
    return [one[0] for one in PIECE.finditer(text)]


def ids_of(text: str) -> tuple[int, ...]:
    """An id a piece, the same for the same piece, none of them 0."""
    return tuple(1 + zlib.crc32(piece.encode()) % 100_000 for piece in pieces(text))


def ended(text: str, *, limit: int = 32) -> FreeAnswer:
    """An answer that ended by itself, with room for an end token."""
    ids = (*ids_of(text), 2)
    return FreeAnswer(ids, text, max(limit, len(ids)), "stop")


def cut(text: str, *, limit: int = 32) -> FreeAnswer:
    """An answer that the limit cut: the text must be long enough for it."""
    kept = pieces(text)[:limit]
    assert len(kept) == limit, f"{len(kept)} of {limit} tokens"
    return FreeAnswer(ids_of("".join(kept)), "".join(kept), limit, "length")
