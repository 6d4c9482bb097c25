"""Damage to replies, drawn from a seed: on the bytes, and on the decoded document.

`MALFORMED` holds what no healthy server could have meant; `ANY` also changes digits, ids and places, after which a
reply may well say other valid numbers.
"""

import gzip
import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Mangle = Callable[[bytes, Random], bytes]

NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
PAIR = re.compile(rb'"[^"\\]{0,60}"\s*:\s*(?:"[^"\\]{0,60}"|[^,{}\[\]"]{1,40}|\{[^{}]{1,200}\})')
VALUE = re.compile(rb'(?<="logprob": )-?\d+(?:\.\d+)?|(?<=": )-\d+\.\d+')
KEY = re.compile(rb'"[^"\\]{0,60}"\s*:')
QUOTE = re.compile(rb'"')

NO_NUMBERS = (
    *(b"null", b"true", b"false", b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b'"x"', b'""', b'"NaN"'),
    *(
        b"[]",
        b"{}",
        b"[[]]",
        b'{"logprob": -1.0}',
        b'"\\ud800"',
        b'"\xff"',
        b"9" * 400,
        b"-" + b"9" * 5000,
        b"01",
        b"+1",
    ),
    *(b"[" * 300 + b"]" * 300, b"[" * 5000 + b"]" * 5000, b'{"a":' * 990 + b"1" + b"}" * 990, b"- 1", b".5", b"0x10"),
)
"""In the place of a number."""

NUMBERS = (
    *(b"0", b"-0", b"0.0", b"-1", b"1", b"0.5", b"17.25", b"1e308", b"-1e308", b"1e-320", b"-9999.0", b"-3.4e38"),
    *(b"2147483648", b"9223372036854775808", b"-9223372036854775809", b"1000000000000000000000000000000", b"-0.00005"),
)

KEYS = (
    *(b'"x"', b'""', b'"-5"', b'"+5"', b'"05"', b'" 5"', b'"5.0"', b'"1e2"', b'"NaN"', b'"token_id:x"', b'"\\ud83d"'),
    *(b'"99999999999999999999999"', b'"2147483648"', b'"token_id:-1"', b'"token_id:007"', b'"\xff\xfe"', b"5", b"null"),
)
"""In the place of a key; none is an id that exists."""

PAGES = (
    b"<!doctype html><html><body><h1>502 Bad Gateway</h1></body></html>",
    b"  <html>",
    b"upstream connect error or disconnect/reset before headers",
    b"",
    b"null",
    b"0",
    b'"ok"',
    b"[]",
    b"{}",
    b'{"choices": []}',
    b'{"choices": [[]]}',
    b'{"error": {"message": "x"}}',
    b"\x00" * 50,
    b"\xef\xbb\xbf{}",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"9" * 100_000,
)


def flip(body: bytes, rng: Random) -> bytes:
    changed = bytearray(body)
    for _ in range(rng.choice([1, 1, 2, 8])):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def delete(body: bytes, rng: Random) -> bytes:
    at = _place(body, rng)
    return body[:at] + body[at + rng.choice([1, 1, 2, 5, 50, 500]) :]


def insert(body: bytes, rng: Random) -> bytes:
    at = _place(body, rng)
    return body[:at] + rng.randbytes(rng.choice([1, 1, 2, 5, 50])) + body[at:]


def truncate(body: bytes, rng: Random) -> bytes:
    return body[: _place(body, rng)]


def repeat(body: bytes, rng: Random) -> bytes:
    at, size = _place(body, rng), rng.choice([1, 5, 50, 500])
    return body[: at + size] + body[at:]


def swap(body: bytes, rng: Random) -> bytes:
    a, b, c, d = sorted(_place(body, rng) for _ in range(4))
    return body[:a] + body[c:d] + body[b:c] + body[a:b] + body[d:]


def repeat_key(body: bytes, rng: Random) -> bytes:
    """Write a pair of key and value twice, the second time perhaps with another value."""
    found = _near(PAIR, body, rng)
    if found is None:
        return body
    pair = found[0] if rng.random() < 0.5 else KEY.match(found[0])[0] + rng.choice(NUMBERS)  # type: ignore[index]
    return body[: found.end()] + b", " + pair + body[found.end() :]


def other_key(body: bytes, rng: Random) -> bytes:
    return _replaced(KEY, body, rng, rng.choice(KEYS) + b":")


def same_key(body: bytes, rng: Random) -> bytes:
    """Give a pair the key of another one close by."""
    first = _near(KEY, body, rng)
    second = KEY.search(body, first.end() + rng.choice([0, 80, 160])) if first is not None else None
    if first is None or second is None:
        return body
    return body[: second.start()] + first[0] + body[second.end() :]


def no_number(body: bytes, rng: Random) -> bytes:
    return _replaced(NUMBER, body, rng, rng.choice(NO_NUMBERS))


def broken_value(body: bytes, rng: Random) -> bytes:
    """What a server of broken numbers sends in a position."""
    return _replaced(VALUE, body, rng, rng.choice([b"null", b"NaN", b"-Infinity", b"-9999.0", b'"NaN"']))


def other_number(body: bytes, rng: Random) -> bytes:
    return _replaced(NUMBER, body, rng, rng.choice(NUMBERS))


def no_unicode(body: bytes, rng: Random) -> bytes:
    return _replaced(QUOTE, body, rng, rng.choice([b'"\xff', b'"\\ud800', b'"\xed\xa0\x80', b'"\\u12', b'"\x01', b"'"]))


def other_page(body: bytes, rng: Random) -> bytes:
    kind = rng.randrange(6)
    if kind == 0:
        return gzip.compress(body, 1, mtime=0)
    if kind == 1:
        return body.decode("utf-8", "replace").encode(rng.choice(["utf-16", "utf-32", "utf-16-le"]))
    if kind == 2:
        return body + rng.choice([body, b"\n", b" x", b"]", b"\x00"])
    return rng.choice(PAGES)


def _place(body: bytes, rng: Random) -> int:
    return rng.randrange(len(body) + 1)


def _near(pattern: re.Pattern[bytes], body: bytes, rng: Random) -> re.Match[bytes] | None:
    return pattern.search(body, _place(body, rng)) or pattern.search(body)


def _replaced(pattern: re.Pattern[bytes], body: bytes, rng: Random, new: bytes) -> bytes:
    found = _near(pattern, body, rng)
    return body if found is None else body[: found.start()] + new + body[found.end() :]


# ------------------------------------------------------------------ the decoded document


JUNK: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 0.5, 17.25, -9999.0, -3.4e38, 1e308, float("nan"), float("inf"), -float("inf")),
    *("", "x", "NaN", "-5", "token_id:5", "<html>", "\ud800", "\x00", [], {}, [[]], [None], {"logprob": -1.0}, 2**31),
    *(-(2**63) - 1, 10**30, 10**400, [1] * 50, {"a": {"a": {"a": 1}}}, [{"index": 0}]),
)


def structure(body: bytes, rng: Random) -> bytes:
    """Replace, rename, drop, repeat, wrap or swap something in the decoded document."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return flip(body, rng)
    place = _somewhere(document, rng)
    if place is None:
        return json.dumps(rng.choice(JUNK)).encode()
    holder, key = place
    if isinstance(holder, dict):
        _change_object(holder, key, rng)
    else:
        _change_array(holder, key, rng)
    return json.dumps(document).encode()


def _somewhere(document: Any, rng: Random) -> tuple[Any, Any] | None:
    """A random holder and key, deep or not so deep."""
    place = None
    while isinstance(document, dict | list) and document and rng.random() < 0.9:
        keys: Sequence[Any] = list(document) if isinstance(document, dict) else range(len(document))
        place = document, rng.choice(keys)
        document = place[0][place[1]]
    return place


def _change_object(holder: dict[str, Any], key: str, rng: Random) -> None:
    match rng.randrange(5):
        case 0:
            holder[rng.choice(["x", "-1", "5", "2147483648", "token_id:7", "", str(rng.randrange(50_000))])] = (
                holder.pop(key)
            )
        case 1:
            del holder[key]
        case 2:
            other = rng.choice(list(holder))
            holder[key], holder[other] = holder[other], holder[key]
        case 3:
            holder[key] = [holder[key]]
        case _:
            holder[key] = rng.choice(JUNK)


def _change_array(holder: list[Any], key: int, rng: Random) -> None:
    match rng.randrange(6):
        case 0:
            holder.insert(key, holder[key])
        case 1:
            del holder[key]
        case 2:
            other = rng.randrange(len(holder))
            holder[key], holder[other] = holder[other], holder[key]
        case 3:
            del holder[key:]
        case 4:
            holder += [rng.choice(JUNK)] * rng.choice([1, 2, 30])
        case _:
            holder[key] = rng.choice(JUNK)


MALFORMED: tuple[Mangle, ...] = (truncate, repeat_key, other_key, no_number, no_unicode, other_page)
ANY: tuple[Mangle, ...] = (
    *(
        flip,
        delete,
        insert,
        truncate,
        repeat,
        swap,
        repeat_key,
        same_key,
        other_key,
        no_number,
        no_number,
        other_number,
    ),
    *(other_number, no_unicode, structure, structure, structure, structure),
)


def mangled(body: bytes, rng: Random, ways: Sequence[Mangle] = ANY) -> bytes:
    """One to four damages of these kinds; now and then another page altogether."""
    if rng.random() < 0.03:
        return other_page(body, rng)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        body = rng.choice(ways)(body, rng)
    return body
