"""vLLM's dialect: which fields are sent, which paths are asked. Verified against vLLM 0.32 (tests/data, lab)."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from quantwatch.errors import Misconfigured, ProbeError, ReplyCorrupted, ReplyInvalid
from quantwatch.flow.distribution import Distribution
from quantwatch.flow.identity import Identity
from quantwatch.flow.prompt import GoldenSequence, ProbeMode, Prompt
from quantwatch.net import Answer, Link
from quantwatch.probe import reply
from quantwatch.probe.budget import Budget, Gate
from quantwatch.probe.contract import Ask
from quantwatch.probe.node_metrics import read_load
from quantwatch.probe.refusal import refuse

NEUTRAL: Mapping[str, Any] = {
    "n": 1,
    "temperature": 0,
    "top_p": 1,
    "top_k": 0,
    "min_p": 0,
    "repetition_penalty": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "min_tokens": 0,
    "ignore_eos": False,
    "echo": False,
    "stream": False,
    "return_token_ids": True,
}
"""Every sampling field, explicit: what is unset comes from the model's generation_config.json."""


class VllmProber:
    """Asks one vLLM server about golden sequences."""

    def __init__(self, link: Link, *, budget: Budget, gate: Gate, model: str | None = None) -> None:
        self._link = link
        self._budget = budget
        self._gate = gate
        self._model = model
        self.raw_proven = False

    @property
    def name(self) -> str:
        """How messages call the server."""
        return self._link.name

    @property
    def blind(self) -> bool:
        """Whether probes went out without knowing the node's load."""
        return self._gate.blind

    async def identify(self) -> Identity:
        """Ask for model card, version and process start; settles the model name for all later requests."""
        card = self._chosen(_json(await self._get("/v1/models"), self.name))
        self._model = str(card["id"])
        length = card.get("max_model_len")
        return Identity(
            name=self.name,
            url=self._link.url,
            model=self._model,
            root=card["root"] if isinstance(card.get("root"), str) else None,
            max_model_len=length if isinstance(length, int) else None,
            version=await self._version(),
            started=await self._started(),
        )

    async def tokenize(self, prompt: Prompt) -> tuple[int, ...]:
        """Token ids of a golden prompt; a conversation goes through the server's chat template."""
        if prompt.text is not None:
            return await self.tokenize_text(prompt.text, special=True)
        messages = [{"role": m.role, "content": m.content} for m in prompt.messages]
        return await self._tokenize({"messages": messages, "add_generation_prompt": True})

    async def tokenize_text(self, text: str, *, special: bool) -> tuple[int, ...]:
        """Token ids of bare text."""
        return await self._tokenize({"prompt": text, "add_special_tokens": special})

    async def generate(self, ids: Sequence[int], *, limit: int) -> tuple[int, ...]:
        """Continue greedily by at most `limit` tokens; corrupted when an id cannot exist."""
        self._budget.check_prompt(len(ids) + limit, node=self.name)
        answer = await self._complete({"prompt": list(ids), "max_tokens": limit})
        choice = reply.read(answer.body, self._asked(0), choices=1)[0]
        if choice.token_ids is None:
            raise self._asked(0).invalid("the reply does not name the generated token ids")
        if min(choice.token_ids, default=0) < 0:
            raise ReplyCorrupted("a generated token id is negative", node=self.name, advice="Check the node's kernels")
        return tuple(choice.token_ids)

    async def distribution(self, sequence: GoldenSequence, ask: Ask) -> Distribution:
        """Top-k log-probabilities at the sequence's positions, in the mode asked for."""
        if ask.mode is ProbeMode.PROMPT_SCORING:
            return await self._score(sequence, ask)
        return await self._first_tokens(sequence, ask)

    async def _score(self, sequence: GoldenSequence, ask: Ask) -> Distribution:
        self._budget.check_scoring(len(sequence.ids), ask.k, node=self.name)
        body = {"prompt": list(sequence.ids), "max_tokens": 1, "prompt_logprobs": ask.k}
        answer = await self._complete(body)
        asked = self._asked(ask.k)
        choice = reply.read(answer.body, asked, choices=1)[0]
        return reply.prompt_scoring(choice, sequence, asked, seconds=answer.seconds)

    async def _first_tokens(self, sequence: GoldenSequence, ask: Ask) -> Distribution:
        lengths = list(ask.positions)
        self._budget.check_prompt(max(lengths), node=self.name)
        asked, choices, seconds = self._asked(ask.k), [], 0.0
        for batch in self._budget.batches(lengths):
            prefixes = [list(sequence.ids[: lengths[i]]) for i in batch]
            body = {"prompt": prefixes, "max_tokens": 1, "logprobs": ask.k, "return_tokens_as_token_ids": True}
            answer = await self._complete(body)
            choices += reply.read(answer.body, asked, choices=len(prefixes))
            seconds += answer.seconds
        return reply.one_token(choices, sequence, lengths, asked, mode=ask.mode, seconds=seconds)

    async def _complete(self, body: Mapping[str, Any]) -> Answer:
        async with self._gate.turn():
            answer = await self._link.post("/v1/completions", {"model": self._model, **NEUTRAL, **body})
        if answer.status != 200:
            refuse(answer, node=self.name)
        return answer

    async def _tokenize(self, body: Mapping[str, Any]) -> tuple[int, ...]:
        answer = await self._link.post("/tokenize", {"model": self._model, **body})
        if answer.status != 200:
            refuse(answer, node=self.name)
        tokens = _json(answer, self.name).get("tokens")
        if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
            raise ReplyInvalid("/tokenize gave no list of ids", node=self.name)
        return tuple(tokens)

    async def _get(self, path: str) -> Answer:
        answer = await self._link.get(path)
        if answer.status != 200:
            refuse(answer, node=self.name)
        return answer

    async def _version(self) -> str | None:
        """The server's version; None where it does not say, which is no reason to stop."""
        try:
            version = _json(await self._get("/version"), self.name).get("version")
        except ProbeError:
            return None
        return version if isinstance(version, str) else None

    async def _started(self) -> float | None:
        try:
            load = read_load((await self._get("/metrics")).body)
        except ProbeError:
            return None
        return load.started if load is not None else None

    def _chosen(self, models: dict[str, Any]) -> dict[str, Any]:
        listed = models.get("data")
        rows = listed if isinstance(listed, list) else []
        cards = [card for card in rows if isinstance(card, dict) and isinstance(card.get("id"), str)]
        names = [card["id"] for card in cards]
        if self._model is not None:
            found = next((card for card in cards if card["id"] == self._model), None)
        else:
            bases = [card for card in cards if card.get("parent") is None]
            found = bases[0] if len(bases) == 1 else None
        if found is None:
            wanted = f"does not serve {self._model!r}" if self._model else "serves several models or none"
            raise Misconfigured(
                f"{wanted}; it serves {', '.join(names) or 'nothing'}",
                node=self.name,
                advice="Name one of them as the model",
            )
        return found

    def _asked(self, k: int) -> reply.Asked:
        return reply.Asked(node=self.name, k=k, raw_proven=self.raw_proven)


def _json(answer: Answer, node: str) -> dict[str, Any]:
    try:
        raw = json.loads(answer.body)
    except (ValueError, RecursionError) as exc:
        page = "a web page" if answer.body.lstrip()[:1] == b"<" else "no JSON"
        raise ReplyInvalid(
            f"{page} came back where JSON was expected", node=node, advice=reply.SAME_SERVER_KIND
        ) from exc
    if not isinstance(raw, dict):
        raise ReplyInvalid("the reply is no JSON object", node=node, advice=reply.SAME_SERVER_KIND)
    return raw
