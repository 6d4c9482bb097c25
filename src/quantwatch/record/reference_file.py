"""A reference: a baseline's answers to one task set, as one safetensors file that proves itself when it is read.

Tensors, with P prompts and per mode N positions and K log-probabilities: `sequences` int32, `sequence_offsets` int64
[P + 1], `prompt_lengths` int32 [P]; of each mode `positions` int32 [N], `offsets` int64 [P + 1], `ids` int32 [N, K + 1]
and `logprobs` float32 [N, K + 1] as in flow.Distribution, `actual` float32 [N] (NaN where it is not listed), and
`floor` float32 [N], the cap: no token that is not listed is more probable. The metadata is one JSON document; its
`sha256` covers itself and every tensor. Prompts are known by id alone; their text is never stored, but the beginning
of the baseline's own answers is.
"""

import hashlib
import itertools
import json
from array import array
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from quantwatch.errors import StoreError
from quantwatch.flow.distribution import Distribution
from quantwatch.flow.identity import Identity
from quantwatch.flow.prompt import ProbeMode
from quantwatch.record.continuations import fingerprint
from quantwatch.record.files import write_whole
from quantwatch.record.reference_check import check_answers, check_document, check_rows
from quantwatch.record.references import StoredAnswer
from quantwatch.record.tensors import Damage, Tensor, column, little, pack, unpack

FORMAT = 1
SUFFIX = ".safetensors"
DOCUMENT = "quantwatch"
LARGEST = 2**31
"""Bytes; no reference of any sensible size is larger."""

SHARED = ("sequences", "sequence_offsets", "prompt_lengths")
COLUMNS = ("positions", "offsets", "ids", "logprobs", "actual", "floor")
IDENTITY = (
    *("name", "url", "model", "root", "max_model_len", "version", "started", "tokenizer"),
    *("engine", "vocabulary", "born"),
)

CURE = "import an intact copy with `quantwatch references import`, or make it anew with `quantwatch enroll --force`"

Answers = Mapping[str, StoredAnswer]


@dataclass(frozen=True, slots=True)
class FreeAnswer:
    """What the baseline answered to a golden prompt by itself, greedily and within so many tokens. text: of the ids."""

    limit: int
    ids: tuple[int, ...]
    text: str
    finish_reason: str | None


@dataclass(frozen=True, slots=True)
class Reference:
    """The answers of one baseline to one task set.

    pool: digest of the golden prompts. k: log-probabilities a position that the server gave; asked_k: how many were
    wanted. modes: the set's own first. continuation_tokens, positions: as configured. prompts: every id of the pool.
    answers: by mode and prompt. left_out: by mode, why a prompt has no answer there. free: free answers by prompt, what
    a node's are held against. digest: of the whole content, set when it is written or read.
    """

    name: str
    baseline: Identity
    pool: str
    k: int
    asked_k: int
    modes: tuple[ProbeMode, ...]
    continuation_tokens: int
    positions: int
    made: datetime
    prompts: tuple[str, ...]
    answers: Mapping[ProbeMode, Answers] = field(repr=False)
    left_out: Mapping[ProbeMode, Mapping[str, str]]
    free: Mapping[str, tuple[FreeAnswer, ...]] = field(default_factory=dict, repr=False)
    digest: str = ""

    @property
    def fingerprint(self) -> str:
        """What names the baseline: 16 hex digits."""
        return fingerprint(self.baseline)


def save(path: Path, reference: Reference) -> Reference:
    """Write a reference whole or not at all; gives it back with its digest. Raises StoreError."""
    content, digest = encode(reference)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
    except OSError as exc:
        raise StoreError(f"{path}: the reference cannot be written: {exc.strerror}") from exc
    return replace(reference, digest=digest)


def load(path: Path) -> Reference:
    """Read a reference and check all of it. Raises StoreError naming the file, the field and the cure."""
    try:
        if path.stat().st_size > LARGEST:
            raise StoreError(f"{path}: larger than any reference; {CURE}")
        content = path.read_bytes()
    except OSError as exc:
        raise StoreError(f"{path}: the reference cannot be read: {exc.strerror}") from exc
    try:
        return decode(content)
    except Damage as exc:
        raise StoreError(f"{path}: the reference is damaged: {exc}; {CURE}") from exc


def encode(reference: Reference) -> tuple[bytes, str]:
    """The bytes of a reference, and its digest."""
    tensors = _tensors(reference)
    document = _document(reference)
    digest = _digest(document, tensors)
    return pack(tensors, {DOCUMENT: json.dumps({**document, "sha256": digest})}), digest


def decode(content: bytes) -> Reference:
    """The reference of a file's bytes. Raises Damage."""
    tensors, metadata = unpack(content)
    document = check_document(metadata.get(DOCUMENT, ""), version=FORMAT)
    digest = document.pop("sha256")
    if digest != _digest(document, tensors):
        raise Damage("sha256: it does not fit the content, so something was changed or lost")
    modes = tuple(ProbeMode(one) for one in document["modes"])
    wanted = {
        "sequences",
        "sequence_offsets",
        "prompt_lengths",
        *(f"{mode}.{name}" for mode in modes for name in COLUMNS),
    }
    if set(tensors) != wanted:
        raise Damage(f"tensors: {', '.join(sorted(set(tensors) ^ wanted))} missing or unknown")
    made = datetime.fromisoformat(document["made"])
    reference = Reference(
        name=document["name"],
        baseline=Identity(**{name: document["baseline"].get(name) for name in IDENTITY}),
        pool=document["golden_set"],
        k=document["k"],
        asked_k=document["asked_k"],
        modes=modes,
        continuation_tokens=document["continuation_tokens"],
        positions=document["positions"],
        made=made,
        prompts=tuple(document["prompts"]),
        answers={mode: _answers(mode, document, tensors, made) for mode in modes},
        left_out={mode: document["left_out"].get(mode.value, {}) for mode in modes},
        free={name: tuple(map(_free, given)) for name, given in document["free_answers"].items()},
        digest=digest,
    )
    for mode in modes:
        check_answers(mode, reference.answers[mode], prompts=reference.prompts, left_out=reference.left_out[mode])
    return reference


def _document(reference: Reference) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "name": reference.name,
        "baseline": {name: getattr(reference.baseline, name) for name in IDENTITY},
        "golden_set": reference.pool,
        "k": reference.k,
        "asked_k": reference.asked_k,
        "modes": [mode.value for mode in reference.modes],
        "continuation_tokens": reference.continuation_tokens,
        "positions": reference.positions,
        "made": reference.made.isoformat(timespec="seconds"),
        "prompts": list(reference.prompts),
        "left_out": {mode.value: dict(said) for mode, said in reference.left_out.items()},
        "free_answers": {name: [asdict(one) for one in given] for name, given in reference.free.items()},
    }


def _free(given: Mapping[str, Any]) -> FreeAnswer:
    return FreeAnswer(given["limit"], tuple(given["ids"]), given["text"], given["finish_reason"])


def _digest(document: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over the document in canonical form and every tensor with its name and shape."""
    seen = hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode())
    for name in sorted(tensors):
        one = tensors[name]
        seen.update(json.dumps([name, one.dtype, list(one.shape)]).encode())
        seen.update(little(one.values))
    return seen.hexdigest()


def _tensors(reference: Reference) -> dict[str, Tensor]:
    whole = {prompt: one for answers in reference.answers.values() for prompt, one in answers.items()}
    sequences = [whole[prompt].sequence if prompt in whole else () for prompt in reference.prompts]
    lengths = [whole[prompt].prompt_length if prompt in whole else 0 for prompt in reference.prompts]
    tensors = {
        "sequences": column("i", [token for sequence in sequences for token in sequence]),
        "sequence_offsets": column("q", _running(len(sequence) for sequence in sequences)),
        "prompt_lengths": column("i", lengths),
    }
    for mode, answers in reference.answers.items():
        rows = [answers[prompt].distribution if prompt in answers else None for prompt in reference.prompts]
        tensors |= {f"{mode}.{name}": one for name, one in _mode(rows, reference.k).items()}
    return tensors


def _mode(rows: list[Distribution | None], k: int) -> dict[str, Tensor]:
    held = [one for one in rows if one is not None]

    def joined(name: str, code: str) -> "array[Any]":
        values: array[Any] = array(code)
        for one in held:
            values.extend(array(code, getattr(one, name)))
        return values

    positions = joined("positions", "i")
    wide = (len(positions), k + 1)
    return {
        "positions": Tensor(wide[:1], positions),
        "offsets": column("q", _running(0 if one is None else len(one) for one in rows)),
        "ids": Tensor(wide, joined("ids", "i")),
        "logprobs": Tensor(wide, joined("logprobs", "f")),
        "actual": Tensor(wide[:1], joined("actual", "f")),
        "floor": Tensor(wide[:1], joined("floor", "f")),
    }


def _running(lengths: Any) -> list[int]:
    """Where each part begins, and where the last one ends."""
    ends = [0]
    for length in lengths:
        ends.append(ends[-1] + length)
    return ends


def _answers(
    mode: ProbeMode, document: Mapping[str, Any], tensors: Mapping[str, Tensor], made: datetime
) -> dict[str, StoredAnswer]:
    """The answers in one mode. Raises Damage where offsets or rows do not fit together."""
    count, k = len(document["prompts"]), document["k"]
    of = {name: tensors[f"{mode}.{name}"] for name in COLUMNS}
    bounds = _bounds("sequence_offsets", tensors["sequence_offsets"], count, len(tensors["sequences"].values))
    rows = _bounds(f"{mode}.offsets", of["offsets"], count, len(of["positions"].values))
    check_rows(mode.value, of, k=k)
    if tensors["prompt_lengths"].shape != (count,):
        raise Damage("prompt_lengths: not one for each prompt")
    found = {}
    for i, prompt in enumerate(document["prompts"]):
        first, last = rows[i], rows[i + 1]
        if first == last:
            continue
        sequence = tuple(tensors["sequences"].values[bounds[i] : bounds[i + 1]])
        length = tensors["prompt_lengths"].values[i]
        wide = slice(first * (k + 1), last * (k + 1))
        distribution = Distribution(
            prompt_id=prompt,
            mode=mode,
            k=k,
            prompt_length=length,
            positions=array("q", of["positions"].values[first:last]),
            ids=array("q", of["ids"].values[wide]),
            logprobs=array("d", of["logprobs"].values[wide]),
            actual=array("d", of["actual"].values[first:last]),
            floor=array("d", of["floor"].values[first:last]),
        )
        found[prompt] = StoredAnswer(prompt, k, mode, sequence, length, made, distribution)
    return found


def _bounds(name: str, offsets: Tensor, count: int, size: int) -> "array[Any]":
    """Where the parts begin and end. Raises Damage unless they cover everything, in order."""
    values = offsets.values
    ordered = all(a <= b for a, b in itertools.pairwise(values))
    if offsets.shape != (count + 1,) or not ordered or values[0] != 0 or values[-1] != size:
        raise Damage(f"{name}: they do not cut {size} rows into {count} parts")
    return values
