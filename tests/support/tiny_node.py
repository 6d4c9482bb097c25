"""A real, tiny language model behind vLLM's dialect: every distribution is known in full, so bounds can be checked.

The model is a seeded three-gram net over bytes (vocabulary 300). `damage` adds seeded noise to its logits, as
quantization does. Faults are named openly and switched on one by one. The replies' shape follows the recordings of
vLLM 0.32 in tests/data; test_tiny_node_speaks_vllm.py holds both against each other.
"""

import asyncio
import json
import math
import struct
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import httpx
import torch
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from torch import Tensor

VOCABULARY = 300
BOS = 256
CONFIDENCE = 3.0


@dataclass(slots=True)
class TinyModel:
    """Log-probabilities of the next token from the last three; damage is the spread of the noise on the logits."""

    damage: float = 0.0
    seed: int = 7
    stuck_on: int | None = None

    def logprobs(self, ids: list[int]) -> Tensor:
        """Distribution after ids: (VOCABULARY,) float64, in nats. It is shared, so nobody may change it."""
        return _after(tuple(ids[-3:]), self.damage, self.seed, self.stuck_on)


@lru_cache(maxsize=4096)
def _after(last: tuple[int, ...], damage: float, seed: int, stuck_on: int | None) -> Tensor:
    logits = torch.zeros(VOCABULARY, dtype=torch.float64)
    for back, token in enumerate(last[::-1]):
        logits += _row(seed, back, token) * (CONFIDENCE / (back + 1))
    if damage:
        logits += damage * _row(seed + 1000, 0, sum(last) % 997)
    if stuck_on is not None:
        logits[stuck_on] += 50.0
    return torch.log_softmax(logits, 0)


_ROWS: dict[tuple[int, int, int], Tensor] = {}


def _row(seed: int, back: int, token: int) -> Tensor:
    key = (seed, back, token)
    if key not in _ROWS:
        generator = torch.Generator().manual_seed(seed * 1_000_003 + back * 1009 + token)
        _ROWS[key] = torch.randn(VOCABULARY, generator=generator, dtype=torch.float64)
    return _ROWS[key]


@dataclass(slots=True)
class TinyNode:
    """One server: a model, what is wrong with it, and a log of what it was asked.

    nan_on: a request whose prompt fulfils it is refused as vLLM refuses NaN. edit: changes a completion reply before it
    is sent. more_metrics: lines of /metrics besides the usual. replace: answers a request in the node's place.
    scored_by: what answers prompt scoring instead of the model, as a fault of that path alone would.
    prompt_tokens, generated_tokens: its own counters; what its users cost is added there by whoever plays them. mode:
    vLLM's --logprobs-mode. engines: data-parallel ranks, of which nan_rank computes NaN; ranks: which were asked for by
    header. generation_config: what fields left out of a request are filled with. owner, vocabulary, born: what it tells
    of itself where they are given. drops: fields that a reply is missing. lists_ids: honours logprob_token_ids.
    bytes_a_token: 1, or as many as
    one token stands for.
    """

    model: TinyModel = field(default_factory=TinyModel)
    name: str = "tiny"
    cap: int = 20
    started: float = 1_700_000_000.0
    waiting: float = 0
    running: float = 0
    prompt_tokens: float = 0
    generated_tokens: float = 0
    delay: float = 0.0
    scored_by: TinyModel | None = None
    max_model_len: int = 8192
    tokenizer_shift: int = 0
    bytes_a_token: int = 1
    api_key: str | None = None
    more_metrics: str = ""
    nan_on: Callable[[list[int]], bool] = lambda _: False
    edit: Callable[[dict[str, Any]], Any] | None = None
    replace: Callable[[str], Response | None] = lambda _: None
    mode: str = "raw_logprobs"
    engines: int = 1
    nan_rank: int | None = None
    ranks: list[str | None] = field(default_factory=list)
    generation_config: dict[str, Any] = field(default_factory=dict)
    version: str = "0.32.0"
    owner: str | None = None
    vocabulary: int | None = None
    born: float | None = None
    drops: tuple[str, ...] = ()
    lists_ids: bool = True
    asked: list[dict[str, Any]] = field(default_factory=list)
    detokenized: list[dict[str, Any]] = field(default_factory=list)

    def app(self) -> Starlette:
        """The server as an ASGI application."""
        routes = [
            Route("/v1/models", self._guarded(self._models)),
            Route("/version", self._guarded(self._version)),
            Route("/health", self._guarded(self._health)),
            Route("/metrics", self._guarded(self._metrics)),
            Route("/tokenize", self._guarded(self._tokenize), methods=["POST"]),
            Route("/detokenize", self._guarded(self._detokenize), methods=["POST"]),
            Route("/v1/completions", self._guarded(self._completions), methods=["POST"]),
        ]
        return Starlette(routes=routes)

    def completions(self) -> list[dict[str, Any]]:
        """The bodies of the completion requests so far."""
        return [body for body in self.asked if "max_tokens" in body]

    def _guarded(self, answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            replaced = self.replace(request.url.path)
            if replaced is not None:
                return replaced
            wanted = f"Bearer {self.api_key}"
            if self.api_key and request.url.path.startswith("/v1") and request.headers.get("authorization") != wanted:
                return _json({"error": "Unauthorized"}, 401)
            return await answer(request)

        return endpoint

    async def _models(self, _: Request) -> Response:
        card = {"id": self.name, "object": "model", "root": "tiny", "parent": None, "max_model_len": self.max_model_len}
        return _json({"object": "list", "data": [card if self.owner is None else {**card, "owned_by": self.owner}]})

    async def _version(self, _: Request) -> Response:
        return _json({"version": self.version})

    async def _health(self, _: Request) -> Response:
        return Response()

    async def _metrics(self, _: Request) -> Response:
        others = "".join(f'vllm:num_requests_waiting{{engine="{rank}"}} 0.0\n' for rank in range(1, self.engines))
        born = "" if self.born is None else f'vllm:num_preemptions_created{{engine="0"}} {self.born!r}\n'
        return PlainTextResponse(
            f"process_start_time_seconds {self.started!r}\n{born}"
            f'vllm:num_requests_running{{engine="0"}} {self.running}\n'
            f'vllm:num_requests_waiting{{engine="0"}} {self.waiting}\n{others}'
            f'vllm:kv_cache_usage_perc{{engine="0"}} 0.1\n{self.more_metrics}'
            f'vllm:prompt_tokens_total{{engine="0"}} {self.prompt_tokens}\n'
            f'vllm:generation_tokens_total{{engine="0"}} {self.generated_tokens}\n'
        )

    async def _tokenize(self, request: Request) -> Response:
        body = await request.json()
        if "messages" in body:
            text = "".join(f"<{m['role']}>{m['content']}" for m in body["messages"]) + "<assistant>"
        else:
            text = body["prompt"]
        special = [BOS] if body.get("add_special_tokens", True) else []
        raw, width = text.encode(), self.bytes_a_token
        pieces = [sum(raw[i : i + width]) for i in range(0, len(raw), width)]
        tokens = special + [(piece + self.tokenizer_shift) % 256 for piece in pieces]
        return _json({"count": len(tokens), "max_model_len": self.max_model_len, "tokens": tokens, "token_strs": None})

    async def _detokenize(self, request: Request) -> Response:
        body = await request.json()
        self.detokenized.append(body)
        raw = bytes((token - self.tokenizer_shift) % 256 for token in body["tokens"])
        return _json({"prompt": raw.decode("utf-8", "replace")})

    async def _completions(self, request: Request) -> Response:
        body = self.generation_config | await request.json()
        rank = request.headers.get("x-data-parallel-rank")
        await asyncio.sleep(self.delay)
        self.asked.append(body)
        self.ranks.append(rank)
        refusal = self._refusal(body) or self._rank_refusal(rank)
        if refusal is not None:
            return refusal
        prompt = body["prompt"]
        if isinstance(prompt, str):  # as users ask
            prompt = [BOS, *prompt.encode()]
        prompts: list[list[int]] = prompt if isinstance(prompt[0], list) else [prompt]
        self.prompt_tokens += sum(map(len, prompts))
        self.generated_tokens += body["max_tokens"] * len(prompts)
        reply = {
            "id": "cmpl-1",
            "object": "text_completion",
            "model": self.name,
            "system_fingerprint": "vllm-0.32.0-tiny",
            "choices": [self._choice(ids, i, body) for i, ids in enumerate(prompts)],
        }
        edited = reply if self.edit is None else self.edit(reply)
        return edited if isinstance(edited, Response) else _json(edited)

    def _refusal(self, body: dict[str, Any]) -> Response | None:
        if body["model"] != self.name:
            return _error(404, f"The model `{body['model']}` does not exist.", "model", "NotFoundError")
        for name, spoken in (("logprobs", "sample"), ("prompt_logprobs", "prompt")):
            if (body.get(name) or 0) > self.cap:
                asked = body[name]
                said = f"Requested {spoken} logprobs of {asked}, which is greater than max allowed: {self.cap}"
                return _error(400, f"{said} (parameter={name}, value={asked})", name)
        prompts = body["prompt"] if isinstance(body["prompt"][0], list) else [body["prompt"]]
        if max(map(len, prompts)) + body["max_tokens"] > self.max_model_len:
            said = f"This model's maximum context length is {self.max_model_len} tokens."
            return _error(400, f"{said} (parameter=input_tokens)", "input_tokens")
        if body.get("logit_bias") and self.vocabulary is not None:
            said = "token_id(s) [2147483647] in logit_bias contain out-of-vocab token ids. Vocabulary size: "
            return _error(400, f"{said}{self.vocabulary} (parameter=logit_bias)", "logit_bias")
        with_numbers = body.get("logprobs") is not None or body.get("prompt_logprobs") is not None
        if with_numbers and any(self.nan_on(ids) for ids in prompts):
            return _error(400, "Out of range float values are not JSON compliant", None)
        return None

    def _rank_refusal(self, rank: str | None) -> Response | None:
        if rank is None:
            return None
        if int(rank) >= self.engines:
            return _error(400, f"data_parallel_rank {rank} is out of range [0, {self.engines}).", None)
        broken = self.nan_rank is not None and int(rank) == self.nan_rank
        return _error(400, "Out of range float values are not JSON compliant", None) if broken else None

    def _listed(self, ids: list[int], body: dict[str, Any]) -> Tensor:
        """What is listed after ids: values of the node's mode."""
        after = self.model.logprobs(ids)
        if self.mode == "raw_logprobs":
            return after
        temperature = body.get("temperature", 1.0) or 1.0
        values = after / temperature if self.mode.startswith("processed") else after
        return torch.log_softmax(values, 0) if self.mode.endswith("logprobs") else values + 20.0

    def _choice(self, ids: list[int], index: int, body: dict[str, Any]) -> dict[str, Any]:
        generated: list[int] = []
        rows: list[Tensor] = []
        for _ in range(body["max_tokens"]):
            after = self.model.logprobs(ids + generated)
            rows.append(self._listed(ids + generated, body))
            generated.append(int(_penalized(after, ids + generated, body).argmax()))
        k = body.get("logprobs")
        scored = body.get("prompt_logprobs")
        whole = {
            "index": index,
            "text": said(generated),
            "logprobs": None if k is None else _generated_logprobs(rows, generated, self._ids_of(rows, k, body)),
            "finish_reason": "length",
            "stop_reason": None,
            "token_ids": generated,
            "prompt_logprobs": None if scored is None else self._prompt_logprobs(ids, scored),
            "prompt_token_ids": ids,
        }
        return {name: value for name, value in whole.items() if name not in self.drops}

    def _ids_of(self, rows: list[Tensor], k: int, body: dict[str, Any]) -> list[list[int]]:
        """The top k of each position, or the tokens that were asked for where this version knows how."""
        named = body.get("logprob_token_ids") if self.lists_ids else None
        return [named or after.topk(max(k, 1)).indices.tolist() for after in rows]

    def _prompt_logprobs(self, ids: list[int], k: int) -> list[dict[str, Any] | None]:
        rows: list[dict[str, Any] | None] = [None]
        for i in range(1, len(ids)):
            after = (self.scored_by or self.model).logprobs(ids[:i])
            own = ids[i]
            top = [own, *(t for t in after.topk(k).indices.tolist() if t != own)]
            top = top if own in after.topk(k).indices.tolist() else top[: k + 1]
            rows.append({str(t): _entry(after, t) for t in top})
        return rows


def _penalized(after: Tensor, before: list[int], body: dict[str, Any]) -> Tensor:
    """Log-probabilities from which the next token is taken, with vLLM's repetition penalty on all that went before."""
    penalty = body.get("repetition_penalty", 1)
    if penalty == 1:
        return after
    lowered = after.clone()
    lowered[before] *= penalty
    return lowered


def said(ids: Sequence[int]) -> str:
    """The model's words: a letter a token, since bytes drawn at random are no text."""
    return "".join(chr(ord("a") + token % 26) for token in ids)


def _entry(after: Tensor, token: int) -> dict[str, Any]:
    value = after[token]
    rank = int((after >= value).sum())
    return {"logprob": _float32(float(value)), "rank": rank, "decoded_token": chr(token % 256)}


def _generated_logprobs(rows: list[Tensor], generated: list[int], listed: list[list[int]]) -> dict[str, Any]:
    """The generated token first, then what is listed at each position."""
    top = [
        {f"token_id:{t}": _float32(float(after[t])) for t in dict.fromkeys([own, *ids])}
        for after, own, ids in zip(rows, generated, listed, strict=True)
    ]
    return {
        "text_offset": list(range(len(rows))),
        "token_logprobs": [_float32(float(after[t])) for after, t in zip(rows, generated, strict=True)],
        "tokens": [f"token_id:{t}" for t in generated],
        "top_logprobs": top,
    }


def _float32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _error(status: int, message: str, param: str | None, kind: str = "BadRequestError") -> Response:
    return _json({"error": {"message": message, "type": kind, "param": param, "code": status}}, status)


def _json(content: Any, status: int = 200) -> Response:
    return Response(json.dumps(content), status, media_type="application/json")


def true_kl(baseline: TinyModel, node: TinyModel, ids: list[int]) -> float:
    """KL(baseline || node) after ids over the whole vocabulary, in nats."""
    p, q = baseline.logprobs(ids), node.logprobs(ids)
    return float((p.exp() * (p - q)).sum())


def true_perplexity(model: TinyModel, ids: tuple[int, ...], start: int) -> float:
    """Perplexity of ids[start:] given what stands before."""
    total = sum(float(model.logprobs(list(ids[:i]))[ids[i]]) for i in range(start, len(ids)))
    return math.exp(-total / (len(ids) - start))


class Network(httpx.AsyncBaseTransport):
    """Several nodes under their host names, without sockets; an unknown host refuses the connection."""

    def __init__(self, **nodes: TinyNode) -> None:
        self._hosts = {name: httpx.ASGITransport(app=node.app()) for name, node in nodes.items()}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass the request to the node that its host names."""
        host = self._hosts.get(request.url.host)
        if host is None:
            raise httpx.ConnectError("Connection refused", request=request)
        return await host.handle_async_request(request)
