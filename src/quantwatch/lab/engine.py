"""Scoring and generation on a prepared model, cut into steps so that several requests can take turns.

Prompts go through in chunks of positions: memory follows chunk x vocabulary, not length x vocabulary as in vLLM.

A node agrees with itself: a prompt alone, as a prefix of another or read in chunks gets the same log-probabilities to
about 1e-4 nat, from 16 positions on. Below, and where it writes token by token, an int8 node may flip a code: products
of few rows are summed in another order. So may one whose keys and values `--kv` rounds.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from quantwatch.lab.request import Sampling
from quantwatch.lab.rows import Row, named_row, rows_of
from quantwatch.lab.sampling import generator_for, next_token
from quantwatch.lab.sharing import Ids, shared
from quantwatch.lab.words import Words
from quantwatch.toolkit.prepare import Prepared

CHUNK = 256
"""Positions of one step: 256 x 49,152 float32 logits are 48 MiB. Half as many cost a quarter more time in all."""

Change = Callable[[Tensor], Tensor]
Steps = Generator[None, None, list["Answer"]]


@dataclass(frozen=True, slots=True)
class Job:
    """What is wanted of every prompt of a request.

    max_tokens: at least 1, one number a prompt. logprobs, prompt_logprobs: k, None without. change: applied to logits,
    by which a fault shows. named: ids that are listed in place of the top logprobs.
    """

    prompts: Sequence[Ids]
    max_tokens: Sequence[int]
    sampling: Sampling
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    change: Change | None = None
    named: tuple[int, ...] = ()

    def groups(self) -> list[list[int]]:
        """Places of prompts that share a forward pass: only where nothing is generated behind the first token."""
        if max(self.max_tokens) > 1:
            return [[place] for place in range(len(self.prompts))]
        return shared(self.prompts)

    def tokens(self) -> int:
        """Tokens whose keys and values may come to be held; what prompts share counts once."""
        return sum(len(self.prompts[group[0]]) + self.max_tokens[group[0]] for group in self.groups())


@dataclass(slots=True)
class Answer:
    """What a prompt got. scored: a row a prompt position, the first None; rows: one a generated token."""

    ids: list[int] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    scored: list[Row | None] | None = None
    text: str = ""
    finish: str = "length"
    stop: str | int | None = None


class Engine:
    """One model. Its steps must run one at a time."""

    def __init__(self, prepared: Prepared, words: Words) -> None:
        self._prepared = prepared
        model: Any = prepared.model
        self._words = words
        self.vocabulary = int(model.config.vocab_size)
        self.context = int(getattr(model.config, "max_position_embeddings", 2048))
        self._ends = _end_ids(model, prepared.tokenizer)

    def answer(self, job: Job) -> Steps:
        """Answer a request step by step; the answers, in the order of the prompts, are the generator's value."""
        answers = [Answer() for _ in job.prompts]
        for group in job.groups():
            longest = job.prompts[group[0]]
            cache = self._prepared.new_cache()
            last = yield from self._read(longest, group, job=job, answers=answers, cache=cache)
            for place in group:
                writer = _Writer(self._ends, self._words, job=job, place=place, answer=answers[place])
                token = writer.take(last[len(job.prompts[place])])
                while token is not None:
                    yield
                    token = writer.take(self._logits([token], cache, [0], job)[0])
                yield
        return answers

    def poison(self) -> None:
        """Set one weight to NaN: the first gain of the last norm, from which it reaches every logit."""
        norms = [one for name, one in self._prepared.model.named_parameters() if "norm" in name and one.dim() == 1]
        with torch.no_grad():
            norms[-1][0] = torch.nan

    def _read(
        self, ids: Ids, group: list[int], *, job: Job, answers: list[Answer], cache: Any
    ) -> Generator[None, None, dict[int, Tensor]]:
        """Read a prompt in chunks. Gives logits after each length that a prompt of the group has."""
        ends = {len(job.prompts[place]) for place in group}
        last: dict[int, Tensor] = {}
        rows: list[Row | None] = [None]
        for start in range(0, len(ids), CHUNK):
            part = ids[start : start + CHUNK]
            scored = job.prompt_logprobs is not None
            kept = [i for i in range(len(part)) if scored or start + i + 1 in ends]
            logits = self._logits(part, cache, kept or [len(part) - 1], job)
            last |= {start + i + 1: logits[row].clone() for row, i in enumerate(kept) if start + i + 1 in ends}
            if scored:
                own = list(ids[start + 1 : start + len(part) + 1])
                rows += rows_of(logits[: len(own)], own, k=job.prompt_logprobs or 0) if own else []
            yield
        if job.prompt_logprobs is not None:
            for place in group:
                answers[place].scored = rows[: len(job.prompts[place])]
        return last

    @torch.inference_mode()
    def _logits(self, ids: Sequence[int], cache: Any, kept: list[int], job: Job) -> Tensor:
        """Logits (kept positions, vocabulary) float32 after reading on."""
        logits = self._prepared.logits(torch.tensor([list(ids)]), cache, kept=torch.tensor(kept))[0].float()
        return logits if job.change is None else job.change(logits)


class _Writer:
    """Chooses the tokens behind one prompt and knows when to stop."""

    def __init__(self, ends: frozenset[int], words: Words, *, job: Job, place: int, answer: Answer) -> None:
        self._ends = frozenset() if job.sampling.ignore_eos else ends
        self._job = job
        self._most = job.max_tokens[place]
        self._answer = answer
        self._generator = generator_for(job.sampling)
        self._stream = words.stream(job.prompts[place])

    @torch.inference_mode()
    def take(self, logits: Tensor) -> int | None:
        """Choose a token by the logits (vocabulary,) and note it; None when it is the last one."""
        sampling, answer = self._job.sampling, self._answer
        early = len(answer.ids) < sampling.min_tokens
        banned = [*self._ends, *sampling.stop_ids] if early else []
        token = next_token(logits, sampling, self._generator, banned=banned)
        answer.ids.append(token)
        if self._job.logprobs is not None and self._job.named:
            answer.rows.append(named_row(logits, token, self._job.named))
        elif self._job.logprobs is not None:
            answer.rows += rows_of(logits.unsqueeze(0), [token], k=self._job.logprobs)
        stopped = self._stopped(token)
        return None if stopped or len(answer.ids) >= self._most else token

    def _stopped(self, token: int) -> bool:
        answer, sampling = self._answer, self._job.sampling
        if token in self._ends or token in sampling.stop_ids:
            answer.finish = "stop"
            answer.stop = None if token in self._ends else token
            return True
        searched = max(len(answer.text) - max(map(len, sampling.stop), default=0), 0)
        self._stream.push(token)
        answer.text = self._stream.text
        if len(answer.ids) < sampling.min_tokens:
            return False
        found = [(answer.text.find(one, searched), one) for one in sampling.stop if one in answer.text[searched:]]
        if found:
            at, answer.stop = min(found)
            answer.text, answer.finish = answer.text[:at], "stop"
        return bool(found)


def _end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Tokens that end an answer, by the tokenizer and the model's generation settings."""
    configured = getattr(model.generation_config, "eos_token_id", None)
    listed = configured if isinstance(configured, list) else [configured]
    return frozenset(int(one) for one in [tokenizer.eos_token_id, *listed] if one is not None)
