"""What `/tokenize`, `/detokenize` and other plain paths of a server answer."""

from typing import Any

from quantwatch.errors import ReplyInvalid
from quantwatch.net import Answer
from quantwatch.probe.reply import SAME_SERVER_KIND
from quantwatch.probe.rows import MAX_VOCABULARY
from quantwatch.probe.wire import loads

LONGEST_TEXT = 1000
"""Characters of one token: runs of spaces reach a few hundred."""


def ids_and_strings(answer: Answer, *, node: str) -> tuple[tuple[int, ...], Any]:
    """The ids, and what the server says of their text. Raises ReplyInvalid."""
    said = json_of(answer, node)
    tokens = said.get("tokens")
    if not isinstance(tokens, list) or not all(type(one) is int and 0 <= one < MAX_VOCABULARY for one in tokens):
        raise ReplyInvalid("/tokenize gave no list of ids", node=node)
    return tuple(tokens), said.get("token_strs")


def text_of(answer: Answer, *, node: str) -> str:
    """The text of one id as the server wrote it, U+FFFD for a part of a character. Raises ReplyInvalid."""
    text = json_of(answer, node).get("prompt")
    if not isinstance(text, str) or len(text) > LONGEST_TEXT:
        raise ReplyInvalid("/detokenize gave no text for an id", node=node)
    return text


def json_of(answer: Answer, node: str) -> dict[str, Any]:
    """The object of a reply. Raises ReplyInvalid for anything else."""
    try:
        raw = loads(answer.body)
    except ValueError as exc:
        page = "a web page" if answer.body.lstrip()[:1] == b"<" else "no JSON"
        raise ReplyInvalid(f"{page} came back where JSON was expected", node=node, advice=SAME_SERVER_KIND) from exc
    if not isinstance(raw, dict):
        raise ReplyInvalid("the reply is no JSON object", node=node, advice=SAME_SERVER_KIND)
    return raw
