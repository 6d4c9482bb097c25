"""The baseline's own answers, kept as the yardstick: rows of the store <-> StoredAnswer.

Arrays are little-endian blobs: ids, positions and sequences int32, since no vocabulary reaches 2^31; log-probabilities
float32, which is what servers compute in. Prompts are known by id alone; their text is never stored.
"""

import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, and_, select

from quantwatch.errors import StoreError
from quantwatch.flow.distribution import Distribution, Mark, MarkKind
from quantwatch.flow.prompt import ProbeMode
from quantwatch.record.tables import ANSWERS

ID, LOGPROB = "i", "f"
"""Type codes of array.array with 4 bytes an item on every platform that Python runs on."""


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """What the baseline answered to one golden sequence.

    sequence: the ids that were scored. k, mode, prompt_length: as asked; k of the distribution is what the server gave.
    made: when. distribution: its numbers come back rounded to float32.
    """

    prompt_id: str
    k: int
    mode: ProbeMode
    sequence: tuple[int, ...]
    prompt_length: int
    made: datetime
    distribution: Distribution


def keep(connection: Connection, answers: Sequence[StoredAnswer], *, fingerprint: str, pool: str) -> None:
    """Write answers down; an older answer to the same question is superseded. The same answer twice is kept once."""
    for answer in answers:
        question = and_(
            *(ANSWERS.c.fingerprint == fingerprint, ANSWERS.c.pool == pool, ANSWERS.c.superseded.is_(None)),
            *(ANSWERS.c[name] == getattr(answer, name) for name in ("prompt_id", "mode", "k")),
        )
        row = {"fingerprint": fingerprint, "pool": pool, **_row(answer)}
        old = connection.execute(select(ANSWERS).where(question)).mappings().first()
        if old is not None and all(old[name] == value for name, value in row.items() if name != "seconds"):
            continue
        connection.execute(ANSWERS.update().where(question).values(superseded=answer.made))
        connection.execute(ANSWERS.insert(), row)


def kept(connection: Connection, *, fingerprint: str, pool: str) -> list[StoredAnswer]:
    """The answers of one baseline to one pool that still count, oldest first. Raises StoreError for a damaged one."""
    wanted = select(ANSWERS).where(
        ANSWERS.c.fingerprint == fingerprint, ANSWERS.c.pool == pool, ANSWERS.c.superseded.is_(None)
    )
    return [_answer(dict(row)) for row in connection.execute(wanted.order_by(ANSWERS.c.number)).mappings()]


def supersede(connection: Connection, *, at: datetime) -> int:
    """Let no answer count any longer; how many did."""
    return connection.execute(ANSWERS.update().where(ANSWERS.c.superseded.is_(None)).values(superseded=at)).rowcount


def _row(answer: StoredAnswer) -> dict[str, Any]:
    d = answer.distribution
    return {
        **{name: getattr(answer, name) for name in ("prompt_id", "mode", "k", "prompt_length", "made")},
        "seconds": d.seconds,
        "sequence": _blob(ID, answer.sequence),
        "positions": _blob(ID, d.positions),
        "ids": _blob(ID, d.ids),
        "logprobs": _blob(LOGPROB, d.logprobs),
        "actual": _blob(LOGPROB, d.actual),
        "floor": _blob(LOGPROB, d.floor),
        "marks": [[mark.row, mark.kind.value, mark.detail] for mark in d.marks],
    }


def _answer(row: Mapping[str, Any]) -> StoredAnswer:
    try:
        return StoredAnswer(
            prompt_id=row["prompt_id"],
            k=row["k"],
            mode=row["mode"],
            sequence=tuple(_array(ID, row["sequence"])),
            prompt_length=row["prompt_length"],
            made=row["made"],
            distribution=_distribution(row),
        )
    except (TypeError, ValueError) as exc:
        raise StoreError(f"the store holds an answer to {row['prompt_id']} that cannot be read: {exc}") from exc


def _distribution(row: Mapping[str, Any]) -> Distribution:
    """Raises ValueError when the columns do not fit together."""
    positions, ids = array("q", _array(ID, row["positions"])), array("q", _array(ID, row["ids"]))
    logprobs, actual, floor = (array("d", _array(LOGPROB, row[name])) for name in ("logprobs", "actual", "floor"))
    rows = len(positions)
    width = len(ids) // rows if rows else row["k"] + 1
    if (len(ids), len(logprobs), len(actual), len(floor)) != (rows * width, rows * width, rows, rows):
        raise ValueError("its columns differ in length")
    return Distribution(
        prompt_id=row["prompt_id"],
        mode=row["mode"],
        k=width - 1,
        prompt_length=row["prompt_length"],
        positions=positions,
        ids=ids,
        logprobs=logprobs,
        actual=actual,
        floor=floor,
        marks=tuple(Mark(number, MarkKind(kind), detail) for number, kind, detail in row["marks"]),
        seconds=row["seconds"] or 0.0,
    )


def _blob(code: str, values: Sequence[Any]) -> bytes:
    column: array[Any] = array(code, values)
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()


def _array(code: str, blob: bytes) -> "array[Any]":
    """Raises ValueError when the bytes are no whole number of items."""
    column: array[Any] = array(code)
    column.frombytes(blob)
    if sys.byteorder == "big":
        column.byteswap()
    return column
