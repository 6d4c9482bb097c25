"""The part of an OpenAI-style completion reply that we read, decoded fast or, when it is odd, tolerantly.

The fast path (typed msgspec) takes every healthy reply. Whatever it refuses, bare NaN, nulls and text keys among
others, goes through Python's own json and is looked at value by value, because odd values are what a watchdog is for.
Only this file knows how the bytes become objects; `reply.py` judges them.
"""

import json
import math
from typing import Any

import msgspec

TOKEN_ID_PREFIX = "token_id:"  # noqa: S105, the prefix that return_tokens_as_token_ids puts before an id

NOT_AN_ID = -(2**62)
"""Stands for a key that is text where an id was asked for."""


class Entry(msgspec.Struct, gc=False):
    """One token at one prompt position."""

    logprob: float
    rank: int | None = None


class Generated(msgspec.Struct, gc=False):
    """Log-probabilities of generated tokens, keyed by text or by `token_id:<n>`."""

    tokens: list[str]
    top_logprobs: list[dict[str, float] | None] | None = None


class Choice(msgspec.Struct, gc=False):
    """One answer; `index` is the only link to its prompt."""

    index: int
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: list[dict[int, Entry] | None] | None = None
    logprobs: Generated | None = None


class Completion(msgspec.Struct, gc=False):
    """The whole reply."""

    choices: list[Choice]


class NotACompletion(Exception):
    """The bytes are JSON but not a completion; the text says what is missing."""


_FAST = msgspec.json.Decoder(Completion)


def decode(body: bytes) -> Completion:
    """Turn a reply into objects. Raises ValueError for what is no JSON, NotACompletion for JSON of another shape."""
    try:
        return _FAST.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _tolerant(_loads(body))


def _loads(body: bytes) -> Any:
    try:
        return json.loads(body)
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc


def _tolerant(raw: Any) -> Completion:
    if not isinstance(raw, dict) or not isinstance(raw.get("choices"), list):
        raise NotACompletion("the reply has no list of choices")
    return Completion([_choice(choice) for choice in raw["choices"]])


def _choice(raw: Any) -> Choice:
    if not isinstance(raw, dict) or not isinstance(raw.get("index"), int):
        raise NotACompletion("a choice has no index")
    return Choice(
        index=raw["index"],
        token_ids=_ids(raw.get("token_ids")),
        prompt_token_ids=_ids(raw.get("prompt_token_ids")),
        prompt_logprobs=_prompt_rows(raw.get("prompt_logprobs")),
        logprobs=_generated(raw.get("logprobs")),
    )


def _ids(raw: Any) -> list[int] | None:
    return raw if isinstance(raw, list) and all(type(value) is int for value in raw) else None


def _prompt_rows(raw: Any) -> list[dict[int, Entry] | None] | None:
    if not isinstance(raw, list):
        return None
    return [_prompt_row(row) if isinstance(row, dict) else None for row in raw]


def _prompt_row(row: dict[str, Any]) -> dict[int, Entry]:
    return {_id(key, i): _entry(value) for i, (key, value) in enumerate(row.items())}


def _id(key: str, place: int) -> int:
    """The id that a key names; text gets a number no id can have, another one at each place so that none is lost."""
    digits = key[1:] if key.startswith("-") else key
    return int(key) if digits.isascii() and digits.isdigit() and len(digits) <= 18 else NOT_AN_ID + place


def _entry(raw: Any) -> Entry:
    value = raw.get("logprob") if isinstance(raw, dict) else raw
    rank = raw.get("rank") if isinstance(raw, dict) else None
    return Entry(_number(value), rank if type(rank) is int else None)


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
    rows = raw.get("top_logprobs")
    return Generated([str(token) for token in raw["tokens"]], _top_rows(rows) if isinstance(rows, list) else None)


def _top_rows(rows: list[Any]) -> list[dict[str, float] | None]:
    return [{k: _number(v) for k, v in row.items()} if isinstance(row, dict) else None for row in rows]
