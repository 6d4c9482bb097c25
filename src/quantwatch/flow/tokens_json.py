"""What a run keeps of single tokens as JSON, and back. Numbers that do not exist are null, never NaN.

Log-probabilities are written to the ten-thousandth of a nat, and KL to five digits: what servers compute is no finer.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.tokens import Candidate, PromptSeen, TokenSeen, TokensSeen

DECIMALS = 4
DIGITS = 5

UNREADABLE = (AttributeError, KeyError, TypeError, ValueError, RecursionError)
"""What reading a document of another form raises."""


def tokens_json(seen: TokensSeen) -> dict[str, Any]:
    """Everything that is kept of a run, ready for json.dumps; texts by id where they are known."""
    return {
        "measured": seen.measured,
        "prompts": [prompt_json(one) for one in seen.prompts],
        "texts": {str(key): text for key, text in seen.texts.items()},
    }


def prompt_json(one: PromptSeen) -> dict[str, Any]:
    """One golden sequence with its positions."""
    return {
        "prompt": one.prompt_id,
        "mode": one.mode.value,
        "prompt_length": one.prompt_length,
        "kl_mean": _short(one.kl_mean),
        "kl_max": _short(one.kl_max),
        "tokens": [_token_json(token) for token in one.tokens],
    }


def _token_json(one: TokenSeen) -> dict[str, Any]:
    """A list is written as pairs of id and log-probability, the most probable first."""
    return {
        "position": one.position,
        "id": one.id,
        "kl": _short(one.kl),
        "logprob_baseline": _rounded(one.logprob_baseline),
        "logprob_node": _rounded(one.logprob_node),
        "tail_baseline": _short(one.tail_baseline),
        "tail_node": _short(one.tail_node),
        "baseline": [[each.id, _rounded(each.logprob)] for each in one.baseline],
        "node": [[each.id, _rounded(each.logprob)] for each in one.node],
        "mark": one.mark,
    }


def prompt_of(document: Mapping[str, Any]) -> PromptSeen:
    """The sequence that was written. Raises one of UNREADABLE for anything else."""
    return PromptSeen(
        prompt_id=str(document["prompt"]),
        mode=ProbeMode(document["mode"]),
        prompt_length=int(document["prompt_length"]),
        kl_mean=_number(document["kl_mean"]),
        kl_max=_number(document["kl_max"]),
        tokens=tuple(_token(one) for one in document["tokens"]),
    )


def _token(document: Mapping[str, Any]) -> TokenSeen:
    return TokenSeen(
        position=int(document["position"]),
        id=int(document["id"]),
        kl=_maybe(document["kl"]),
        logprob_baseline=_maybe(document["logprob_baseline"]),
        logprob_node=_maybe(document["logprob_node"]),
        baseline=_candidates(document["baseline"]),
        node=_candidates(document["node"]),
        tail_baseline=_number(document["tail_baseline"]),
        tail_node=_number(document["tail_node"]),
        mark=None if document["mark"] is None else str(document["mark"]),
    )


def _candidates(pairs: Sequence[Sequence[Any]]) -> tuple[Candidate, ...]:
    return tuple(Candidate(int(key), float(value)) for key, value in pairs)


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, DECIMALS)


def _short(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.{DIGITS}g}")


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _maybe(value: Any) -> float | None:
    return None if value is None else float(value)
