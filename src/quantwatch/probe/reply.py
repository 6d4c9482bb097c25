"""Untrusted completion replies -> Distributions. Every shape is checked before any number is used.

What each fault means is the table of the measurement design, section 4: a value that cannot be inside a position is
corruption, a field that is absent or of another shape is an invalid measurement.
"""

import math
import re
from array import array
from dataclasses import dataclass, replace

from quantwatch.errors import NodeFailed, ReplyInvalid
from quantwatch.flow.distribution import Distribution
from quantwatch.flow.prompt import GoldenSequence, ProbeMode
from quantwatch.probe import bulk
from quantwatch.probe.contract import Ask
from quantwatch.probe.rows import Columns, RowInvalid
from quantwatch.probe.wire import (
    NOT_AN_ID,
    TOKEN_ID_PREFIX,
    Choice,
    Completion,
    Entry,
    NotACompletion,
    Odd,
    TooMuch,
    decode,
)

TOKEN_ID = re.compile(rf"{TOKEN_ID_PREFIX}(0|-?[1-9][0-9]{{0,17}})")
"""One way to write an id, so that no two keys of a row can name the same."""

SAME_SERVER_KIND = "Probe the node's own address, not a gateway, and check that both servers are vLLM 0.10 or newer"
TEXT_KEYS = "Tokens must be named by id; a proxy or an old server names them by text, which loses entries"
NO_IDS = "vLLM honours logprob_token_ids from May 2026 on; an older server ignores it. Leave --exact-ids out"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a reply is held against; raw_proven as in Columns."""

    node: str
    k: int
    raw_proven: bool = True

    def invalid(self, reason: str, advice: str = SAME_SERVER_KIND) -> ReplyInvalid:
        """Build the error for a reply that cannot be used."""
        return ReplyInvalid(reason, node=self.node, advice=advice)


def read(body: bytes, asked: Asked, *, choices: int) -> list[Choice]:
    """Decode a completion reply and return its choices in prompt order, one a prompt."""
    found = _decoded(body, asked, choices).choices
    ordered = sorted(found, key=lambda choice: choice.index) if len(found) == choices else []
    if [choice.index for choice in ordered] != list(range(choices)):
        raise asked.invalid(f"{len(found)} answers for {choices} prompts")
    return ordered


def _decoded(body: bytes, asked: Asked, choices: int) -> Completion:
    try:
        return decode(body, answers=choices)
    except NotACompletion as exc:
        raise asked.invalid(str(exc)) from exc
    except TooMuch as exc:
        raise NodeFailed(f"the reply holds too much to be an answer: {exc}", node=asked.node) from exc
    except ValueError as exc:
        if body.lstrip()[:1] == b"<":
            raise asked.invalid("a web page came back where JSON was expected") from exc
        raise NodeFailed(
            f"the reply is no complete JSON ({len(body)} bytes)",
            node=asked.node,
            advice="The connection or the server broke off; look at the server's log",
        ) from exc


def prompt_scoring(choice: Choice, sequence: GoldenSequence, asked: Asked, *, seconds: float) -> Distribution:
    """Read `prompt_logprobs`: position t holds the distribution of token t given all before it, for t = 1 .. n-1."""
    _check_echo(choice, sequence.ids, asked)
    rows = choice.prompt_logprobs
    if rows is None:
        raise asked.invalid("no prompt_logprobs in the reply")
    if len(rows) != len(sequence.ids):
        raise asked.invalid(f"{len(rows)} positions for {len(sequence.ids)} prompt tokens")
    columns = None if isinstance(choice, Odd) else bulk.columns(rows[1:], sequence.ids[1:], k=asked.k)
    if columns is None:
        columns = Columns(asked.k, asked.raw_proven)
        for position in range(1, len(rows)):
            _add_scored(columns, rows[position], sequence.ids[position], position, asked)
    return _distribution(columns, sequence, ProbeMode.PROMPT_SCORING, range(1, len(rows)), seconds)


def _add_scored(columns: Columns, row: dict[int, Entry] | None, own_id: int, position: int, asked: Asked) -> None:
    if row is None:
        raise asked.invalid(f"position {position} of prompt_logprobs is null")
    ids = [*row]
    _refuse_text(ids, position, asked)
    if own_id not in row:
        raise asked.invalid(f"position {position} does not list the prompt's own token {own_id}")
    ranks = [entry.rank for entry in row.values() if entry.rank is not None]
    try:
        columns.add(ids, [e.logprob for e in row.values()], ids.index(own_id), lowest_rank=min(ranks, default=None))
    except RowInvalid as exc:
        raise asked.invalid(f"position {position}: {exc}") from exc


def one_token(
    choices: list[Choice], sequence: GoldenSequence, ask: Ask, asked: Asked, *, seconds: float
) -> Distribution:
    """Read the first generated token's list after each prefix sequence.ids[:position]: the top k, or `ask.ids`."""
    columns = Columns(asked.k, asked.raw_proven)
    for i, (choice, position) in enumerate(zip(choices, ask.positions, strict=True)):
        _check_echo(choice, sequence.ids[:position], asked)
        own_id = sequence.ids[position] if position < len(sequence.ids) else None
        row = _first_row(choice, position, asked)
        if ask.ids:
            row = _named(row, ask.ids[i], position, asked)
        _add_generated(columns, row, own_id, position, asked)
    found = _distribution(columns, sequence, ask.mode, list(ask.positions), seconds)
    # Nothing is known of a token that was not asked for, the generated one apart: no value bounds it.
    return replace(found, floor=array("d", [math.inf]) * len(found), exact=True) if ask.ids else found


def _named(row: dict[str, float], wanted: tuple[int, ...], position: int, asked: Asked) -> dict[str, float]:
    """A list of tokens that were asked for, with the generated one in front, where servers put what they add."""
    added = {key: value for key, value in row.items() if _token_id(key) not in wanted}
    lacking = len(wanted) - (len(row) - len(added))
    if lacking:
        said = f"{lacking} of {len(wanted)} ids asked for after prefix {position} are not listed"
        raise asked.invalid(said, NO_IDS)
    return {**added, **row}


def first_list(body: bytes, sent: tuple[int, ...], asked: Asked) -> dict[int, float]:
    """The list of the first generated token after one prompt, by token id; values as they stand, NaN among them."""
    choice = read(body, asked, choices=1)[0]
    _check_echo(choice, sent, asked)
    row = _first_row(choice, len(sent), asked)
    ids = [_token_id(key) for key in row]
    _refuse_text(ids, len(sent), asked)
    return dict(zip(ids, row.values(), strict=True))


def _first_row(choice: Choice, position: int, asked: Asked) -> dict[str, float]:
    rows = choice.logprobs.top_logprobs if choice.logprobs is not None else None
    if not rows or rows[0] is None:
        raise asked.invalid(f"no logprobs for the token after prefix {position}")
    return rows[0]


def _add_generated(columns: Columns, row: dict[str, float], own_id: int | None, position: int, asked: Asked) -> None:
    ids = [_token_id(key) for key in row]
    _refuse_text(ids, position, asked)
    own = ids.index(own_id) if own_id in ids else -1
    try:
        columns.add(ids, list(row.values()), own)
    except RowInvalid as exc:
        raise asked.invalid(f"position {position}: {exc}") from exc


def _token_id(key: str) -> int:
    """The id that a key names, or NOT_AN_ID for text and for what no id can be."""
    match = TOKEN_ID.fullmatch(key)
    return int(match[1]) if match else NOT_AN_ID


def _refuse_text(ids: list[int], position: int, asked: Asked) -> None:
    if min(ids, default=0) < -(2**61):
        raise asked.invalid(f"position {position} names tokens by text", TEXT_KEYS)


def _check_echo(choice: Choice, sent: tuple[int, ...], asked: Asked) -> None:
    if choice.prompt_token_ids is None:
        raise asked.invalid("the reply does not repeat the prompt's token ids")
    if tuple(choice.prompt_token_ids) != sent:
        raise asked.invalid("the server scored other token ids than were sent")


def _distribution(
    columns: Columns, sequence: GoldenSequence, mode: ProbeMode, positions: range | list[int], seconds: float
) -> Distribution:
    return Distribution(
        prompt_id=sequence.prompt_id,
        mode=mode,
        k=columns.k,
        prompt_length=sequence.prompt_length,
        positions=array("q", positions),
        ids=columns.ids,
        logprobs=columns.logprobs,
        actual=columns.actual,
        floor=columns.floor,
        marks=tuple(columns.marks),
        seconds=seconds,
    )
