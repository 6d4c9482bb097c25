"""What an accepted reply has to be, told from its bytes by other means than the product's."""

import json
import math
from collections.abc import Iterator
from typing import Any

from quantwatch.errors import ProbeError
from quantwatch.flow.distribution import NO_ID, Distribution

SENTINEL = -9998.0
LARGEST_ID = 2**31 - 1


class Twice(dict[str, Any]):
    """An object in which a key stands twice; of an entry's keys only the one that is read counts."""


def document(body: bytes) -> Any:
    """The decoded bytes; what is no text stands as U+FFFD, since nobody reads the words."""
    text = body.decode(json.detect_encoding(body), "replace")
    return json.loads(text, object_pairs_hook=_object, parse_int=lambda digits: int(digits[:1000]))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    twice = names.count("logprob") > 1 if "logprob" in names else len(set(names)) != len(names)
    return Twice(pairs) if twice else dict(pairs)


def rows_of(choice: Any, *, scored: bool) -> list[dict[str, Any]]:
    """The positions of a decoded choice that are read: id in decimal -> entry."""
    if scored:
        return list(choice["prompt_logprobs"][1:])
    first = choice["logprobs"]["top_logprobs"][0]
    return [{key.removeprefix("token_id:"): {"logprob": value} for key, value in first.items()}]


def check_distribution(got: Distribution, rows: list[dict[str, Any]], owns: list[int]) -> None:
    """Hold a Distribution against the decoded rows it was read from. owns: the sequence's own id at each."""
    n, width, marked = len(rows), got.k + 1, {mark.row for mark in got.marks}
    assert len(got.positions) == len(got.actual) == len(got.floor) == n
    assert len(got.ids) == len(got.logprobs) == n * width
    for i, (row, own) in enumerate(zip(rows, owns, strict=True)):
        assert not any(isinstance(one, Twice) for one in (row, *row.values())), row
        ids, values = list(got.ids[i * width : (i + 1) * width]), list(got.logprobs[i * width : (i + 1) * width])
        if i in marked:
            assert _proves_corruption(row, own, got.k), row
            assert ids == [NO_ID] * width
            assert math.isnan(got.actual[i])
            continue
        assert got.k <= len(row) <= width
        assert all(isinstance(entry, dict) for entry in row.values()), row
        assert all(0 <= one <= LARGEST_ID for one in ids[:-1])
        held = dict(zip(ids, values, strict=True))
        assert len(held) == width
        held.pop(NO_ID, None)
        said = {int(key): float(entry["logprob"]) for key, entry in row.items()}
        assert {str(key) for key in said} == {"0" if key == "-0" else key for key in row}
        assert held == said or (held == {k: v for k, v in said.items() if v > SENTINEL} and len(held) == got.k)
        assert all(SENTINEL < value <= 1e-4 for value in held.values())
        assert sum(map(math.exp, held.values())) <= 1.0 + 1e-3 + 1e-9
        assert got.floor[i] == min(values[:-1])
        assert same(got.actual[i], held.get(own, math.nan))


def same(a: float, b: float) -> bool:
    """Equal, or both not a number."""
    return a == b or (math.isnan(a) and math.isnan(b))


def _proves_corruption(row: dict[str, Any], own: int, k: int) -> bool:
    values = [_value(entry) for entry in row.values()]
    ranks = [entry.get("rank") for entry in row.values() if isinstance(entry, dict)]
    if None in values:
        return True
    numbers = {key: value for key, value in zip(row, values, strict=True) if value is not None}
    if len(row) > k:
        added = str(own) if numbers.get(str(own)) == min(numbers.values()) else next(iter(row))
        numbers.pop(added)
    top = sorted(numbers.values(), reverse=True)
    return (
        0 in [rank for rank in ranks if type(rank) is int]
        or any(not 0 <= int(key) <= LARGEST_ID for key in row)
        or top[-1] <= SENTINEL
        or (len(top) >= 5 and top[0] - top[-1] < 1e-3 and top[0] < -9.0)
    )


def _value(entry: Any) -> float | None:
    value = entry.get("logprob") if isinstance(entry, dict) else entry
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def check_error(error: ProbeError) -> None:
    """An error that can be shown, logged and stored, and does not repeat a whole reply."""
    text = str(error)
    assert text.isprintable(), ascii(text)
    assert len(text) < 2000
    text.encode()


def same_numbers(a: Distribution, b: Distribution) -> Iterator[bool]:
    """Column by column, whether two readings of one reply agree."""
    yield (a.ids, a.logprobs, a.positions, a.marks) == (b.ids, b.logprobs, b.positions, b.marks)
    yield all(map(same, a.actual, b.actual))
    yield all(map(same, a.floor, b.floor))


def shows_broken_numbers(body: bytes) -> bool:
    """Whether anything in a completion of status 200 is a sign of corruption by the table of docs/measurement.md."""
    try:
        choices = document(body)["choices"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return False
    return isinstance(choices, list) and any(_broken_choice(one) for one in choices if isinstance(one, dict))


def _broken_choice(choice: dict[str, Any]) -> bool:
    scored = choice.get("prompt_logprobs")
    generated = choice.get("logprobs")
    rows = [*scored[1:]] if isinstance(scored, list) else []
    if isinstance(generated, dict) and isinstance(generated.get("top_logprobs"), list):
        rows += generated["top_logprobs"]
    ids = choice.get("token_ids")
    impossible = isinstance(ids, list) and any(type(one) is int and not 0 <= one <= LARGEST_ID for one in ids)
    return impossible or any(_broken_row(row) for row in rows if isinstance(row, dict))


def _broken_row(row: dict[str, Any]) -> bool:
    values = [_value(entry) for entry in row.values()]
    ranks = [entry.get("rank") for entry in row.values() if isinstance(entry, dict)]
    keys = [key.removeprefix("token_id:") for key in row]
    return (
        any(value is None or value <= SENTINEL for value in values)
        or 0 in [rank for rank in ranks if type(rank) is int]
        or any(key.removeprefix("-").isdecimal() and not 0 <= int(key) <= LARGEST_ID for key in keys)
    )
