"""/v1/completions: from a request's body to the bytes of its reply."""

import asyncio
import json
import secrets
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from quantwatch.clock import Clock
from quantwatch.lab.card import FINGERPRINT, Card
from quantwatch.lab.engine import Answer, Change, Engine, Job
from quantwatch.lab.faults import Trouble
from quantwatch.lab.gauges import Gauges
from quantwatch.lab.refused import Refused, over_cap, too_long
from quantwatch.lab.reply import Head, completion
from quantwatch.lab.request import ALL, CompletionRequest, Given, completion_request
from quantwatch.lab.sharing import Ids
from quantwatch.lab.words import Words
from quantwatch.lab.worker import AT_ONCE, Size, Worker


class Completions:
    """Answers completion requests of one node."""

    def __init__(self, card: Card, engine: Engine, words: Words, *, trouble: Trouble, clock: Clock) -> None:
        self._card = card
        self._engine = engine
        self._words = words
        self._trouble = trouble
        self._clock = clock
        self.gauges = Gauges(card.name, started=clock.now().timestamp())
        self.worker = Worker(self._moved)

    async def answer(self, raw: dict[str, Any]) -> bytes:
        """The reply to a request. Raises Refused."""
        self._card.check_model(raw.get("model"))
        asked = completion_request(raw)
        self._check_caps(asked)
        self._card.check_named_ids("stop_token_ids", asked.sampling.stop_ids)
        self._card.check_named_ids("logprob_token_ids", asked.named)
        prompts = [self._ids(given, asked) for given in asked.prompts]
        job = self._job(asked, prompts)
        self._trouble.count()
        answers = await self._answers(job)
        for prompt, answer in zip(prompts, answers, strict=True):
            self.gauges.answered(answer, prompt=len(prompt))
        head = Head(f"cmpl-{secrets.token_hex(8)}", int(self._clock.now().timestamp()), self._card.name, FINGERPRINT)

        def content() -> dict[str, Any]:
            return completion(head, asked, prompts=prompts, answers=answers, words=self._words)

        # Long replies take a while to write; others are answered meanwhile.
        return await asyncio.to_thread(_written, content)

    def _check_caps(self, asked: CompletionRequest) -> None:
        most = self._card.vocabulary if self._card.max_logprobs == ALL else self._card.max_logprobs
        named = (("logprobs", "sample", asked.logprobs), ("prompt_logprobs", "prompt", asked.prompt_logprobs))
        for name, spoken, k in named:
            wanted = self._k(k)
            if wanted is not None and wanted > most:
                raise over_cap(name, spoken=spoken, asked=wanted, allowed=most)

    def _k(self, asked: int | None) -> int | None:
        return asked if asked is None else self._card.vocabulary if asked == ALL else asked

    def _ids(self, given: Given, asked: CompletionRequest) -> Ids:
        ids = given if isinstance(given, tuple) else tuple(self._words.encode(given, special=asked.special_tokens))
        if not ids:
            raise Refused("The decoder prompt cannot be empty", param="prompt")
        self._card.check_ids(ids)
        return ids

    def _job(self, asked: CompletionRequest, prompts: list[Ids]) -> Job:
        return Job(
            prompts=prompts,
            max_tokens=[self._room(ids, asked) for ids in prompts],
            sampling=asked.sampling,
            logprobs=None if asked.only_echo else self._k(asked.logprobs),
            prompt_logprobs=self._k(asked.scored),
            named=asked.named,
            change=self._garbling() if self._trouble.garbles() else None,
        )

    def _room(self, ids: Ids, asked: CompletionRequest) -> int:
        """How many tokens may follow a prompt. Raises Refused when it does not fit."""
        limit = self._card.max_model_len
        wanted = max(1, asked.max_tokens)
        if len(ids) + wanted > limit:
            raise too_long(len(ids), generated=wanted, limit=limit)
        return wanted

    def _garbling(self) -> Change:
        """Shuffle the vocabulary: every distribution keeps its shape, and belongs to the wrong tokens."""
        order = torch.randperm(self._card.vocabulary, generator=torch.Generator().manual_seed(0))

        def change(logits: Tensor) -> Tensor:
            return logits[:, order]

        return change

    async def _answers(self, job: Job) -> list[Answer]:
        async def delay() -> None:
            await self._clock.sleep(self._trouble.delay)

        size = Size(len(job.prompts), job.tokens())
        try:
            return await self.worker.do(self._engine.answer(job), size, delay=delay)
        except asyncio.CancelledError:
            self.gauges.aborted(size.prompts)
            raise

    def _moved(self, running: int, waiting: int, tokens: int) -> None:
        room = AT_ONCE * self._card.max_model_len
        self.gauges.load(running=running, waiting=waiting, cache=min(1.0, tokens / room))


def _written(content: Callable[[], dict[str, Any]]) -> bytes:
    return json.dumps(content(), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
