"""The part of an OpenAI-style completion reply that we read, decoded fast or, when it is odd, tolerantly.

The fast path (typed msgspec) takes every healthy reply. Whatever it refuses, bare NaN, nulls, text keys and values that
no healthy position holds among others, goes through Python's own json and is looked at value by value, because odd
values are what a watchdog is for. Only this file knows how the bytes become objects; `reply.py` judges them.
"""

import json
import math
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from quantwatch.probe.rows import MAX_VOCABULARY, POSITIVE, SENTINEL

TOKEN_ID_PREFIX = "token_id:"  # noqa: S105, the prefix that return_tokens_as_token_ids puts before an id

NOT_AN_ID = -(2**62)
"""Stands for a key that is text where an id was asked for."""

LARGE = 4 * 1024 * 1024
MOST_OBJECTS = 2**20
MOST_VALUES = 5 * MOST_OBJECTS
"""A reply of over LARGE bytes may hold so many objects and values, more than any honest one of 64 MiB: each costs up to
60 times its bytes in memory, and a server that sends millions of empty ones must not end the process."""

TokenId = Annotated[int, Meta(ge=0, lt=MAX_VOCABULARY)]


class Entry(msgspec.Struct, gc=False):
    """One token at one prompt position; the limits keep what needs a closer look off the fast path."""

    logprob: Annotated[float, Meta(gt=SENTINEL, le=POSITIVE)]
    rank: Annotated[int, Meta(ge=1)] | None = None


class Generated(msgspec.Struct, gc=False):
    """Log-probabilities of generated tokens, keyed by text or by `token_id:<n>`."""

    tokens: list[str]
    top_logprobs: list[dict[str, float] | None] | None = None


class Choice(msgspec.Struct, gc=False):
    """One answer; `index` is the only link to its prompt."""

    index: int
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: list[dict[TokenId, Entry] | None] | None = None
    logprobs: Generated | None = None
    text: str = ""
    finish_reason: str | None = None


class Odd(Choice):
    """A choice that the fast path refused: none of its numbers has been looked at yet."""


class Completion(msgspec.Struct, gc=False):
    """The whole reply."""

    choices: list[Choice]


class NotACompletion(Exception):
    """The bytes are JSON but not a completion; the text says what is missing."""


class TooMuch(ValueError):
    """More objects or values than any honest reply holds; it was not decoded."""


class _RepeatedKey(Exception):
    """One of two equal keys would be lost."""


_FAST = msgspec.json.Decoder(Completion)


def decode(body: bytes, *, answers: int) -> Completion:
    """Turn a reply into objects. answers: how many it should hold; one of another number is not looked at closely.

    Raises ValueError for what is no JSON, TooMuch for what is too much of it, NotACompletion for JSON of another shape.
    """
    _refuse_masses(body)
    try:
        fast = _FAST.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _tolerant(body)
    return fast if len(fast.choices) != answers or _complete(fast, body) else _tolerant(body)


def loads(body: bytes) -> Any:
    """Decode JSON of any shape. Raises ValueError for everything that is none, and TooMuch."""
    _refuse_masses(body)
    try:
        return json.loads(body)
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc


def _refuse_masses(body: bytes) -> None:
    if len(body) <= LARGE:
        return
    if body.count(b"{") + body.count(b"[") > MOST_OBJECTS or body.count(b",") > MOST_VALUES:
        raise TooMuch(f"over {MOST_OBJECTS:,} objects or {MOST_VALUES:,} values")


def _complete(fast: Completion, body: bytes) -> bool:
    """Whether every entry of the bytes is there: decoding keeps the last of two equal keys and says nothing."""
    scored = generated = 0
    for choice in fast.choices:
        scored += sum(len(row) for row in choice.prompt_logprobs or () if row is not None)
        if choice.logprobs is not None:
            rows = choice.logprobs.top_logprobs or ()
            generated += len(choice.logprobs.tokens) + sum(len(row) for row in rows if row is not None)
    if scored and body.count(b'"logprob":') != scored:
        return False
    return not generated or body.count(f'"{TOKEN_ID_PREFIX}'.encode()) == generated


def _tolerant(body: bytes) -> Completion:
    try:
        raw = json.loads(body, object_pairs_hook=_unrepeated)
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc
    except _RepeatedKey as exc:
        raise NotACompletion("an object of the reply has the same key twice, so an entry is lost") from exc
    if not isinstance(raw, dict) or not isinstance(raw.get("choices"), list):
        raise NotACompletion("the reply has no list of choices")
    return Completion([_choice(choice) for choice in raw["choices"]])


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _RepeatedKey
    return found


def _choice(raw: Any) -> Choice:
    if not isinstance(raw, dict) or type(raw.get("index")) is not int:
        raise NotACompletion("a choice has no index")
    return Odd(
        index=raw["index"],
        token_ids=_ids(raw.get("token_ids")),
        prompt_token_ids=_ids(raw.get("prompt_token_ids")),
        prompt_logprobs=_prompt_rows(raw.get("prompt_logprobs")),
        logprobs=_generated(raw.get("logprobs")),
        text=_text(raw.get("text")) or "",
        finish_reason=_text(raw.get("finish_reason")),
    )


def _ids(raw: Any) -> list[int] | None:
    return raw if isinstance(raw, list) and all(type(value) is int for value in raw) else None


def _text(raw: Any) -> str | None:
    """Valid Unicode; lone surrogates, which JSON can spell and nothing can store, become U+FFFD."""
    return raw.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(raw, str) else None


def _prompt_rows(raw: Any) -> list[dict[int, Entry] | None] | None:
    if not isinstance(raw, list):
        return None
    return [_prompt_row(row) if isinstance(row, dict) else None for row in raw]


def _prompt_row(row: dict[str, Any]) -> dict[int, Entry]:
    return {_id(key, i): _entry(value) for i, (key, value) in enumerate(row.items())}


def _id(key: str, place: int) -> int:
    """The id that a key names; text gets a number no id can have, another one at each place so that none is lost."""
    digits = key[1:] if key.startswith("-") else key
    number = int(key) if digits.isascii() and digits.isdigit() and len(digits) <= 18 else NOT_AN_ID
    return number if str(number) == key else NOT_AN_ID + place


def _entry(raw: Any) -> Entry:
    """An entry; one without a number where a server has null or NaN in its place. Any other shape is no entry."""
    if raw is None or (isinstance(raw, float) and not math.isfinite(raw)):
        return Entry(math.nan)
    if not isinstance(raw, dict):
        raise NotACompletion("an entry of prompt_logprobs is no object")
    rank = raw.get("rank")
    return Entry(_number(raw.get("logprob")), rank if type(rank) is int else None)


def _number(value: Any) -> float:
    """A float; NaN for null and for everything that is no number or that no float can hold."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _generated(raw: Any) -> Generated | None:
    if not isinstance(raw, dict) or not isinstance(raw.get("tokens"), list):
        return None
    tokens = [token if isinstance(token, str) else "" for token in raw["tokens"]]
    rows = raw.get("top_logprobs")
    return Generated(tokens, _top_rows(rows) if isinstance(rows, list) else None)


def _top_rows(rows: list[Any]) -> list[dict[str, float] | None]:
    return [{k: _number(v) for k, v in row.items()} if isinstance(row, dict) else None for row in rows]
