"""What must be true of a reference, whatever wrote it. Every function raises Damage."""

import json
import math
import re
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from quantwatch.flow.distribution import NO_ID
from quantwatch.flow.prompt import ProbeMode
from quantwatch.record.references import StoredAnswer
from quantwatch.record.tensors import Damage, Tensor

POSITIVE = 1e-4
"""A log-probability may be over 0 by this, since float32 rounds that of a certain token."""

EXCESS = 1e-3
"""How far the listed probabilities may sum to more than 1."""

NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
"""A task set's name is that of its file, so it must name nothing else."""

TEXTS = ("name", "golden_set", "made", "sha256")
COUNTS = ("k", "asked_k", "continuation_tokens", "positions")


def check_document(text: str, *, version: int) -> dict[str, Any]:
    """The JSON document of a reference, with the right types in it. version: of the format that is understood."""
    try:
        document = json.loads(text)
    except RecursionError as exc:
        raise Damage("metadata: nested too deeply") from exc
    except ValueError as exc:
        raise Damage(f"metadata: no JSON document of quantwatch ({exc})") from exc
    if not isinstance(document, dict) or document.get("format") != version:
        found = document.get("format") if isinstance(document, dict) else None
        raise Damage(f"format: {found} where this quantwatch reads {version}")
    for name in TEXTS:
        if not isinstance(document.get(name), str):
            raise Damage(f"{name}: no text")
    if not NAME.fullmatch(document["name"]):
        raise Damage("name: that of no task set")
    for name in COUNTS:
        if type(document.get(name)) is not int or document[name] < 1:
            raise Damage(f"{name}: no positive number")
    _check_lists(document)
    return document


def _check_lists(document: Mapping[str, Any]) -> None:
    prompts, modes, left_out = (document.get(name) for name in ("prompts", "modes", "left_out"))
    if not _texts(prompts):
        raise Damage("prompts: no list of different names")
    if not _texts(modes) or not set(modes or ()) <= set(ProbeMode):
        raise Damage("modes: no list of modes")
    if not isinstance(left_out, dict) or not all(_said(one) for one in left_out.values()):
        raise Damage("left_out: no reasons by mode and prompt")
    if not _free(document.get("free_answers"), prompts):
        raise Damage("free_answers: no answers of these prompts")
    _check_identity(document.get("baseline"))
    try:
        known = datetime.fromisoformat(document["made"]).tzinfo is not None
    except ValueError:
        known = False
    if not known:
        raise Damage("made: no moment with a time zone")


def _check_identity(baseline: Any) -> None:
    """Who the baseline is: texts, numbers where it is one, null where it did not say."""
    if not isinstance(baseline, dict) or not all(
        isinstance(baseline.get(one), str) for one in ("name", "url", "model")
    ):
        raise Damage("baseline: it does not say who it is")
    for name in ("root", "version", "tokenizer", "engine"):
        if not isinstance(baseline.get(name), str | None):
            raise Damage(f"baseline.{name}: no text")
    for name in ("max_model_len", "vocabulary", "started", "born"):
        if type(baseline.get(name)) not in (int, float, type(None)):
            raise Damage(f"baseline.{name}: no number")


def _texts(values: Any) -> bool:
    """Whether these are texts, at least one, none twice."""
    return (
        isinstance(values, list)
        and bool(values)
        and all(isinstance(one, str) for one in values)
        and len(set(values)) == len(values)
    )


def _free(answers: Any, prompts: Any) -> bool:
    """Whether these are free answers by prompt: token ids, their text, and how each ended."""
    if not isinstance(answers, dict) or not set(answers) <= set(prompts):
        return False
    every = [one for given in answers.values() for one in (given if isinstance(given, list) else [None])]
    return all(
        isinstance(one, dict)
        and set(one) == {"limit", "ids", "text", "finish_reason"}
        and type(one["limit"]) is int
        and isinstance(one["ids"], list)
        and all(type(token) is int and token >= 0 for token in one["ids"])
        and isinstance(one["text"], str)
        and isinstance(one["finish_reason"], str | None)
        for one in every
    )


def _said(reasons: Any) -> bool:
    return isinstance(reasons, dict) and all(isinstance(one, str) for one in reasons.values())


def check_rows(mode: str, columns: Mapping[str, Tensor], *, k: int) -> None:
    """Shapes of one mode, and every number in it."""
    rows = len(columns["positions"].values)
    shapes = {
        "positions": (rows,),
        "ids": (rows, k + 1),
        "logprobs": (rows, k + 1),
        "actual": (rows,),
        "floor": (rows,),
    }
    for name, shape in shapes.items():
        if columns[name].shape != shape:
            raise Damage(f"{mode}.{name}: shape {list(columns[name].shape)} where {list(shape)} is wanted")
    ids, logprobs, floor = (columns[name].values for name in ("ids", "logprobs", "floor"))
    for row in range(rows):
        held = slice(row * (k + 1), (row + 1) * (k + 1))
        _check_ids(f"{mode}.ids", row, ids[held].tolist())
        _check_logprobs(mode, row, logprobs[held].tolist(), extra=ids[held][k] != NO_ID, floor=floor[row])


def _check_ids(name: str, row: int, ids: list[int]) -> None:
    """The top k are tokens, all different; the last column may be empty."""
    if min(ids[:-1]) < 0 or ids[-1] < NO_ID:
        raise Damage(f"{name}: row {row} holds an id that cannot be")
    if len(set(ids)) != len(ids):
        raise Damage(f"{name}: row {row} names a token twice")


def _check_logprobs(mode: str, row: int, values: list[float], *, extra: bool, floor: float) -> None:
    top = values[:-1]
    listed = values if extra else top
    if not all(map(math.isfinite, values)) or max(listed) > POSITIVE:
        raise Damage(f"{mode}.logprobs: row {row} holds no log-probability")
    if math.fsum(map(math.exp, listed)) > 1.0 + EXCESS:
        raise Damage(f"{mode}.logprobs: the probabilities of row {row} sum to more than 1")
    if floor != min(top) or (extra and values[-1] > floor):
        raise Damage(f"{mode}.floor: row {row} is not capped by its rank k")


def check_answers(
    mode: ProbeMode, answers: Mapping[str, StoredAnswer], *, prompts: Collection[str], left_out: Mapping[str, str]
) -> None:
    """Every prompt has an answer or a reason, and each answer is about its own sequence."""
    if set(answers) | set(left_out) != set(prompts) or set(answers) & set(left_out):
        raise Damage(f"{mode}.offsets: a prompt has neither an answer nor a reason, or both")
    for prompt, one in answers.items():
        length, size = one.prompt_length, len(one.sequence)
        if not 0 < length <= size or min(one.sequence) < 0:
            raise Damage(f"sequences: that of {prompt} is none")
        positions = list(one.distribution.positions)
        if positions != _expected(mode, positions, length, size):
            raise Damage(f"{mode}.positions: those of {prompt} do not fit its sequence")
        _check_actual(mode, prompt, one)


def _expected(mode: ProbeMode, found: list[int], length: int, size: int) -> list[int]:
    """The positions that a mode has; in one_token any of the continuation, ascending."""
    match mode:
        case ProbeMode.PROMPT_SCORING:
            return list(range(1, size))
        case ProbeMode.FIRST_TOKEN:
            return [length]
        case ProbeMode.ONE_TOKEN:
            return sorted({one for one in found if length <= one < size})


def _check_actual(mode: ProbeMode, prompt: str, one: StoredAnswer) -> None:
    """The sequence's own token has the value under which it is listed, and none where it is not listed."""
    d = one.distribution
    for row, position in enumerate(d.positions):
        own = one.sequence[position] if position < len(one.sequence) else NO_ID
        ids = d.ids[row * d.width : (row + 1) * d.width].tolist()
        listed = own != NO_ID and own in ids
        value = d.logprobs[row * d.width + ids.index(own)] if listed else math.nan
        if not (d.actual[row] == value or (math.isnan(value) and math.isnan(d.actual[row]))):
            raise Damage(f"{mode}.actual: row {row} of {prompt} is not what its token is listed with")
