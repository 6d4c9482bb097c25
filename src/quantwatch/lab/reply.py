"""Replies of /v1/completions with the fields of vLLM 0.32, numerically as it computes them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from quantwatch.lab.engine import Answer
from quantwatch.lab.refused import not_a_number
from quantwatch.lab.request import ALL, CompletionRequest
from quantwatch.lab.rows import Row
from quantwatch.lab.sharing import Ids
from quantwatch.lab.words import MOST_CONTEXT, Words

LOWEST = -9999.0
"""Stands for minus infinity, which JSON does not know."""


@dataclass(frozen=True, slots=True)
class Head:
    """What a reply says of itself. created: seconds since 1970."""

    id: str
    created: int
    model: str
    fingerprint: str


def completion(
    head: Head, request: CompletionRequest, *, prompts: Sequence[Ids], answers: Sequence[Answer], words: Words
) -> dict[str, Any]:
    """The whole reply. Raises Refused when a log-probability is NaN."""
    writer = _Choices(request, words)
    choices = [writer.choice(i, prompts[i], answer) for i, answer in enumerate(answers)]
    prompt, generated = sum(map(len, prompts)), sum(len(answer.ids) for answer in answers)
    return {
        "id": head.id,
        "object": "text_completion",
        "created": head.created,
        "model": head.model,
        "choices": choices,
        "service_tier": None,
        "system_fingerprint": head.fingerprint,
        "usage": {
            "prompt_tokens": prompt,
            "total_tokens": prompt + generated,
            "completion_tokens": generated,
            "prompt_tokens_details": None,
            "completion_tokens_details": None,
        },
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": None,
    }


class _Choices:
    def __init__(self, request: CompletionRequest, words: Words) -> None:
        self._request = request
        self._words = words

    def choice(self, index: int, prompt: Ids, answer: Answer) -> dict[str, Any]:
        request = self._request
        names = request.names_ids
        return {
            "index": index,
            "text": self._text(index, prompt, answer),
            "logprobs": None if request.logprobs is None else self._logprobs(prompt, answer),
            "finish_reason": answer.finish,
            "stop_reason": answer.stop,
            "token_ids": answer.ids if names else None,
            "prompt_logprobs": None if answer.scored is None else self._prompt_logprobs(answer.scored),
            "prompt_token_ids": list(prompt) if names else None,
            "routed_experts": None,
        }

    def _text(self, index: int, prompt: Ids, answer: Answer) -> str:
        if not self._request.echo:
            return answer.text
        given = self._request.prompts[index]
        said = "" if self._request.names_ids else given if isinstance(given, str) else self._words.decode(prompt)
        return said if self._request.only_echo else said + answer.text

    def _prompt_logprobs(self, rows: Sequence[Row | None]) -> list[dict[str, Any] | None]:
        before: list[int] = []
        listed: list[dict[str, Any] | None] = []
        for row in rows:
            listed.append(None if row is None else self._entries(row, before))
            before = before if row is None else [*before, row.ids[0]][-MOST_CONTEXT:]
        return listed

    def _entries(self, row: Row, before: Sequence[int]) -> dict[str, Any]:
        return {
            str(token): {"logprob": _number(value), "rank": rank, "decoded_token": self._words.within(token, before)}
            for token, value, rank in zip(row.ids, row.logprobs, row.ranks(), strict=True)
        }

    def _logprobs(self, prompt: Ids, answer: Answer) -> dict[str, Any]:
        """Lists with an element a token: those generated, in an echo behind those of the prompt."""
        request = self._request
        ids = [*(prompt if request.echo else ()), *(() if request.only_echo else answer.ids)]
        rows = [*((answer.scored or ()) if request.echo else ()), *(() if request.only_echo else answer.rows)]
        tokens: list[str] = []
        top: list[dict[str, float] | None] = []
        before: list[int] = []
        for token, row in zip(ids, rows, strict=True):
            tokens.append(self._name(token, before))
            top.append(None if row is None else self._named(row, before))
            before = [*before, token][-MOST_CONTEXT:]
        starts = [0]
        for name in tokens[:-1]:
            starts.append(starts[-1] + len(name))
        return {
            "text_offset": starts[: len(tokens)],
            "token_logprobs": [None if row is None else _number(row.logprobs[0]) for row in rows],
            "tokens": tokens,
            "top_logprobs": top,
        }

    def _named(self, row: Row, before: Sequence[int]) -> dict[str, float]:
        """Entries by the token's name; tokens that are written alike share one, which loses entries, as in vLLM.

        No more than logprobs + 1 of them, also where prompt_logprobs asked for more; or those asked for by name.
        """
        entries = dict(zip(row.ids, row.logprobs, strict=True))
        asked = len(self._request.named) or self._request.logprobs
        most = None if asked is None or asked == ALL else asked + 1
        return {self._name(one, before): _number(value) for one, value in islice(entries.items(), most)}

    def _name(self, token: int, before: Sequence[int]) -> str:
        return f"token_id:{token}" if self._request.tokens_as_ids else self._words.within(token, before)


def _number(value: float) -> float:
    """A log-probability for JSON. Raises Refused for NaN."""
    if math.isnan(value):
        raise not_a_number()
    return max(value, LOWEST)
