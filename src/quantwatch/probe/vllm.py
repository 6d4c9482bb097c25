"""vLLM's dialect: which fields are sent, which paths are asked. Verified against vLLM 0.32 (tests/data, lab)."""

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from quantwatch.errors import Misconfigured, OverBudget, ProbeError, ReplyCorrupted, ReplyInvalid
from quantwatch.flow.distribution import Distribution
from quantwatch.flow.identity import Identity
from quantwatch.flow.load import Load
from quantwatch.flow.prompt import GoldenSequence, ProbeMode, Prompt
from quantwatch.net import Answer, Link
from quantwatch.probe import reply
from quantwatch.probe.budget import GLANCE_SECONDS, Budget, Gate
from quantwatch.probe.contract import Ask, Generation
from quantwatch.probe.node_metrics import read_load
from quantwatch.probe.past import Past
from quantwatch.probe.refusal import refuse
from quantwatch.probe.rows import MAX_VOCABULARY
from quantwatch.probe.tokenize_reply import ids_and_strings, json_of, text_of

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

LONGEST_NAME = 1000
"""Characters of a name that a server may give itself or its model."""

RANK_HEADER = "X-data-parallel-rank"
"""vLLM's own: which data-parallel rank is to answer."""

BEYOND = 2**31 - 1
"""An id that no vocabulary has."""

CHECKS_BIAS = (0, 10)
"""The version of vLLM from which a bias for such an id is known to be refused before it reaches the engine."""

SIZE = re.compile(rb"Vocabulary size: (\d{1,9})")


class VllmProber:
    """Asks one vLLM server about golden sequences."""

    def __init__(self, link: Link, *, budget: Budget, gate: Gate, model: str | None = None, ranks: int = 1) -> None:
        self._link = link
        self._budget = budget
        self._gate = gate
        self._model = model
        self._identity: Identity | None = None
        self.ranks = ranks
        self._insists = False
        self.raw_proven = False
        self.past = Past()

    @property
    def name(self) -> str:
        """How messages call the server."""
        return self._link.name

    @property
    def blind(self) -> bool:
        """Whether probes went out without knowing the node's load."""
        return self._gate.blind

    @property
    def restarts(self) -> int:
        """How often another process was met at this address, of any cause."""
        return self._gate.account.restarts

    @property
    def resting(self) -> str | None:
        """Why the server is to be left alone for now; None when it may be asked."""
        return self._gate.resting

    def passed(self) -> None:
        """Note that a whole window of probes has passed without a restart."""
        self._gate.account.passed()

    def insisting(self) -> "VllmProber":
        """The same server, asked also while it is busy; within the budget all the same."""
        other = copy.copy(self)
        other._insists = True  # noqa: SLF001, its own kind
        return other

    async def identify(self) -> Identity:
        """Ask for model card, version and process start; settles the model name for all later requests."""
        card = self._chosen(json_of(await self._get("/v1/models"), self.name))
        self._model = str(card["id"])
        length = card.get("max_model_len")
        version, load = await self._version(), await self.glimpse()
        self._identity = Identity(
            name=self.name,
            url=self._link.url,
            model=self._model,
            root=_name(card.get("root")),
            max_model_len=length if type(length) is int and 0 < length < MAX_VOCABULARY else None,
            version=version,
            started=load.started if load is not None else None,
            engine=_name(card.get("owned_by")),
            born=load.born if load is not None else None,
        )
        return self._identity

    async def tokenize(self, prompt: Prompt) -> tuple[int, ...]:
        """Token ids of a golden prompt; a conversation goes through the server's chat template."""
        if prompt.text is not None:
            return await self.tokenize_text(prompt.text, special=True)
        messages = [{"role": m.role, "content": m.content} for m in prompt.messages]
        return await self._tokenize({"messages": messages, "add_generation_prompt": True})

    async def tokenize_text(self, text: str, *, special: bool) -> tuple[int, ...]:
        """Token ids of bare text."""
        return await self._tokenize({"prompt": text, "add_special_tokens": special})

    async def token_strings(self, text: str) -> tuple[tuple[int, str], ...]:
        """Id and text of each token of bare text."""
        body = {"prompt": text, "add_special_tokens": False, "return_token_strs": True}
        tokens, strings = await self._tokenized(body)
        if not isinstance(strings, list) or len(strings) != len(tokens) or not all(type(s) is str for s in strings):
            raise ReplyInvalid("/tokenize gave no text for its ids", node=self.name)
        return tuple(zip(tokens, strings, strict=True))

    async def token_text(self, token: int) -> str:
        """What one id means by itself; the model is not asked."""
        answer = await self._link.post("/detokenize", {"model": self._model, "tokens": [token]})
        if answer.status != 200:
            refuse(answer, node=self.name)
        return text_of(answer, node=self.name)

    async def generate(self, ids: Sequence[int], *, limit: int, rank: int | None = None) -> Generation:
        """Continue greedily by at most `limit` tokens; corrupted when an id cannot exist."""
        self._budget.check_prompt(len(ids) + limit, node=self.name)
        self._check_length(len(ids) + limit - 1)
        answer = await self._complete({"prompt": list(ids), "max_tokens": limit}, rank)
        asked = self._asked(0, rank)
        choice = reply.read(answer.body, asked, choices=1)[0]
        if choice.token_ids is None:
            raise asked.invalid("the reply does not name the generated token ids")
        if len(choice.token_ids) > limit:
            raise asked.invalid(f"{len(choice.token_ids)} tokens generated where {limit} were asked for")
        if min(choice.token_ids, default=0) < 0:
            raise ReplyCorrupted("a generated token id is negative", node=asked.node, advice="Check the node's kernels")
        if max(choice.token_ids, default=0) >= MAX_VOCABULARY:
            said = "a generated token id is larger than any vocabulary"
            raise ReplyCorrupted(said, node=asked.node, advice="Check the node's kernels")
        return Generation(tuple(choice.token_ids), choice.text, choice.finish_reason, answer.seconds)

    async def distribution(self, sequence: GoldenSequence, ask: Ask) -> Distribution:
        """Top-k log-probabilities at the sequence's positions, in the mode asked for."""
        self._check_length(len(sequence.ids) if ask.mode is ProbeMode.PROMPT_SCORING else max(ask.positions))
        scores = ask.mode is ProbeMode.PROMPT_SCORING
        found = await (self._score(sequence, ask) if scores else self._first_tokens(sequence, ask))
        return replace(found, rank=ask.rank)

    async def listed(
        self, ids: Sequence[int], *, k: int, temperature: float, rank: int | None = None
    ) -> dict[int, float]:
        """The first token's list after a prompt, as it stands: it may hold logits, or numbers that are none."""
        asked = {"max_tokens": 1, "logprobs": k, "return_tokens_as_token_ids": True, "temperature": temperature}
        answer = await self._complete({"prompt": list(ids), **asked}, rank)
        return reply.first_list(answer.body, tuple(ids), self._asked(k, rank))

    async def vocabulary(self) -> int | None:
        """The size that vLLM tells when it refuses a bias for an id beyond it; nothing goes through the model then.

        Asked only of versions that check: an older one would let such an id through to its kernels.
        """
        who = self._identity
        if who is None or who.engine != "vllm" or not _at_least(who.version, CHECKS_BIAS):
            return None
        body = {"prompt": [0], "max_tokens": 1, "logit_bias": {str(BEYOND): 0}}
        try:
            async with self._gate.turn(_tokens(body)):
                answer = await self._link.post("/v1/completions", {"model": self._model, **NEUTRAL, **body})
        except ProbeError:
            return None
        said = SIZE.search(answer.body) if answer.status == 400 else None
        return int(said[1]) if said else None

    async def glimpse(self) -> Load | None:
        """Load and process over a connection that is closed afterwards, so that a balancer chooses anew."""
        try:
            answer = await self._link.glance("/metrics", seconds=GLANCE_SECONDS, last=True)
        except ProbeError:
            return None
        return read_load(answer.body) if answer.status == 200 else None

    async def load(self) -> Load | None:
        """How busy the server is right now; None when it does not tell."""
        return await self._gate.look()

    async def _score(self, sequence: GoldenSequence, ask: Ask) -> Distribution:
        self._budget.check_scoring(len(sequence.ids), ask.k, node=self.name)
        body = {"prompt": list(sequence.ids), "max_tokens": 1, "prompt_logprobs": ask.k, **_salted(ask)}
        answer = await self._complete(body, ask.rank)
        asked = self._asked(ask.k, ask.rank)
        choice = reply.read(answer.body, asked, choices=1)[0]
        return reply.prompt_scoring(choice, sequence, asked, seconds=answer.seconds)

    async def _first_tokens(self, sequence: GoldenSequence, ask: Ask) -> Distribution:
        self._budget.check_prompt(max(ask.positions), node=self.name)
        asked = self._asked(len(ask.ids[0]) if ask.ids else ask.k, ask.rank)
        choices, seconds = [], 0.0
        # A request has one list of ids for all its prompts, so with ids each prefix goes alone.
        alone = [[i] for i in range(len(ask.positions))]
        for batch in alone if ask.ids else self._budget.batches(list(ask.positions)):
            prefixes = [list(sequence.ids[: ask.positions[i]]) for i in batch]
            listing = {"logprobs": 1, "logprob_token_ids": list(ask.ids[batch[0]])} if ask.ids else {"logprobs": ask.k}
            body = {"prompt": prefixes, "max_tokens": 1, "return_tokens_as_token_ids": True, **listing}
            answer = await self._complete({**body, **_salted(ask)}, ask.rank)
            choices += reply.read(answer.body, asked, choices=len(prefixes))
            seconds += answer.seconds
        return reply.one_token(choices, sequence, ask, asked, seconds=seconds)

    def _check_length(self, tokens: int) -> None:
        """Raise OverBudget, before anything is sent, for what the model's context cannot hold with one token more."""
        longest = self._identity.max_model_len if self._identity is not None else None
        if longest is not None and tokens + 1 > longest:
            raise OverBudget(
                f"a sequence of {tokens} tokens and one more does not fit max_model_len {longest}",
                node=self.name,
                advice="Use shorter prompts for this server, or start it with a larger --max-model-len",
            )

    async def _complete(self, body: Mapping[str, Any], rank: int | None = None) -> Answer:
        headers = None if rank is None else {RANK_HEADER: str(rank)}
        whole = {"model": self._model, **NEUTRAL, **body}
        async with self._gate.turn(_tokens(body), insist=self._insists):
            answer = await self._link.post("/v1/completions", whole, headers=headers)
            if answer.status != 200:
                refuse(answer, node=self._named(rank))
        return answer

    async def _tokenize(self, body: Mapping[str, Any]) -> tuple[int, ...]:
        return (await self._tokenized(body))[0]

    async def _tokenized(self, body: Mapping[str, Any]) -> tuple[tuple[int, ...], Any]:
        """The ids, and what the server says of their text."""
        answer = await self._link.post("/tokenize", {"model": self._model, **body})
        if answer.status != 200:
            refuse(answer, node=self.name)
        return ids_and_strings(answer, node=self.name)

    async def _get(self, path: str) -> Answer:
        answer = await self._link.get(path)
        if answer.status != 200:
            refuse(answer, node=self.name)
        return answer

    async def _version(self) -> str | None:
        """The server's version; None where it does not say, which is no reason to stop."""
        try:
            version = json_of(await self._get("/version"), self.name).get("version")
        except ProbeError:
            return None
        return _name(version)

    def _chosen(self, models: dict[str, Any]) -> dict[str, Any]:
        listed = models.get("data")
        rows = listed if isinstance(listed, list) else []
        cards = [card for card in rows if isinstance(card, dict) and _name(card.get("id"))]
        names = [card["id"] for card in cards]
        if self._model is not None:
            found = next((card for card in cards if card["id"] == self._model), None)
        else:
            bases = [card for card in cards if card.get("parent") is None]
            found = bases[0] if len(bases) == 1 else None
        if found is None:
            wanted = f"does not serve {self._model!r}" if self._model else "serves several models or none"
            more = f" and {len(names) - 10} more" if len(names) > 10 else ""
            raise Misconfigured(
                f"{wanted}; it serves {', '.join(names[:10]) or 'nothing'}{more}",
                node=self.name,
                advice="Name one of them as the model",
            )
        return found

    def _asked(self, k: int, rank: int | None = None) -> reply.Asked:
        return reply.Asked(node=self._named(rank), k=k, raw_proven=self.raw_proven)

    def _named(self, rank: int | None) -> str:
        """How messages call the server, or one rank of it."""
        return self.name if rank is None else f"{self.name} (rank {rank})"


def _at_least(version: str | None, wanted: tuple[int, int]) -> bool:
    """Whether a version is so new; one that cannot be read is not."""
    found = re.match(r"v?(\d{1,6})\.(\d{1,6})", version or "")
    return found is not None and (int(found[1]), int(found[2])) >= wanted


def _name(value: Any) -> str | None:
    """A name as it stands; None for what is none, or could not be written down, shown or sent back."""
    return value if isinstance(value, str) and value.isprintable() and len(value) <= LONGEST_NAME else None


def _salted(ask: Ask) -> dict[str, str]:
    """The field is left out where it is not wanted: some versions refuse it."""
    return {} if ask.cache_salt is None else {"cache_salt": ask.cache_salt}


def _tokens(body: Mapping[str, Any]) -> int:
    """What a request asks of the engine: tokens of its prompts as they are sent, and tokens to generate."""
    prompt = body["prompt"]
    prompts = prompt if prompt and isinstance(prompt[0], list) else [prompt]
    return sum(len(ids) + int(body["max_tokens"]) for ids in prompts)
