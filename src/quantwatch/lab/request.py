"""Completion requests: which fields are understood, and which are refused because a lab node cannot fulfil them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quantwatch.lab.fields import Fields, is_ids
from quantwatch.lab.refused import Refused

DEFAULT_MAX_TOKENS = 16
MOST_PROMPTS = 1024
"""As many as vLLM takes in one request."""

ALL = -1
"""logprobs of -1 ask for the whole vocabulary."""

MOST_NAMED = 128
"""As many tokens may be listed by name."""

NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "stream": (False,),
    "stream_options": (),
    "repetition_penalty": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "length_penalty": (1,),
    "use_beam_search": (False,),
    "logit_bias": ({},),
    "bad_words": ([],),
    "allowed_token_ids": (),
    "suffix": ("",),
    "prompt_embeds": (),
    "truncate_prompt_tokens": (),
    "response_format": ({"type": "text"},),
    "structured_outputs": (),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "include_stop_str_in_output": (False,),
    "kv_transfer_params": (),
}
"""Fields of vLLM that change an answer and are not understood here, with the values that change nothing."""

Given = str | tuple[int, ...]
"""A prompt as it came: text, or token ids."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen and when to stop. temperature 0 is greedy; top_k 0 and top_p 1 keep every token."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """What /v1/completions was asked. Fields as vLLM's; logprobs, prompt_logprobs: None without.

    named: ids that are listed at each generated token in place of the top logprobs.
    """

    prompts: tuple[Given, ...]
    sampling: Sampling
    max_tokens: int
    logprobs: int | None
    prompt_logprobs: int | None
    echo: bool
    names_ids: bool
    tokens_as_ids: bool
    special_tokens: bool
    named: tuple[int, ...] = ()

    @property
    def only_echo(self) -> bool:
        """Whether the answer is the prompt alone; one token is generated all the same, as vLLM does."""
        return self.echo and self.max_tokens == 0

    @property
    def scored(self) -> int | None:
        """How many log-probabilities each prompt position gets; an echo with logprobs scores the prompt too."""
        return self.logprobs if self.echo and self.prompt_logprobs is None else self.prompt_logprobs


def completion_request(raw: Mapping[str, Any]) -> CompletionRequest:
    """Read a request. Raises Refused, naming the field."""
    fields = Fields(raw)
    refuse_unsupported(raw)
    echo = fields.flag("echo")
    max_tokens = fields.integer("max_tokens", DEFAULT_MAX_TOKENS, least=0 if echo else 1)
    return CompletionRequest(
        prompts=_prompts(raw.get("prompt")),
        sampling=_sampling(fields, max_tokens=max_tokens),
        max_tokens=max_tokens,
        logprobs=fields.integer("logprobs", 0, least=ALL) if fields.given("logprobs") else None,
        prompt_logprobs=fields.integer("prompt_logprobs", 0, least=ALL) if fields.given("prompt_logprobs") else None,
        echo=echo,
        names_ids=fields.flag("return_token_ids"),
        tokens_as_ids=fields.flag("return_tokens_as_token_ids"),
        special_tokens=fields.flag("add_special_tokens", default=True),
        named=_named(fields),
    )


def _named(fields: Fields) -> tuple[int, ...]:
    named = fields.ids("logprob_token_ids")
    if len(named) > MOST_NAMED:
        said = f"logprob_token_ids may name {MOST_NAMED} tokens at most, got {len(named)}."
        raise Refused(said, param="logprob_token_ids")
    if named and not fields.given("logprobs"):
        raise Refused("logprob_token_ids needs logprobs to be set.", param="logprob_token_ids")
    return named


def refuse_unsupported(raw: Mapping[str, Any]) -> None:
    """Refuse fields that would change the answer and are not understood here."""
    for name, neutral in NEUTRAL.items():
        value = raw.get(name)
        if value is not None and value not in neutral:
            instead = f"leave it out or send {neutral[0]!r}" if neutral else "leave it out"
            raise Refused(f"{name} is not supported by this lab node: {instead}", param=name)


def _sampling(fields: Fields, *, max_tokens: int) -> Sampling:
    least = fields.integer("min_tokens", 0, least=0)
    if least > max(max_tokens, 1):
        said = f"min_tokens must be less than or equal to max_tokens={max_tokens}, got {least}."
        raise Refused(said, param="min_tokens")
    return Sampling(
        temperature=fields.number("temperature", 1.0, least=0.0),
        top_p=fields.number("top_p", 1.0, least=1e-9, most=1.0),
        top_k=max(fields.integer("top_k", 0, least=-1), 0),
        min_p=fields.number("min_p", 0.0, least=0.0, most=1.0),
        seed=fields.integer("seed", 0, least=-(2**63), most=2**63 - 1) if fields.given("seed") else None,
        stop=fields.texts("stop"),
        stop_ids=fields.ids("stop_token_ids"),
        ignore_eos=fields.flag("ignore_eos"),
        min_tokens=least,
    )


def _prompts(value: object) -> tuple[Given, ...]:
    """One prompt or a list of prompts, each text or token ids."""
    if isinstance(value, str):
        return (value,)
    if value == [] or not isinstance(value, list):
        raise Refused("Either prompt or prompt_embeds must be provided and non-empty", param="prompt")
    if is_ids(value):
        return (tuple(value),)
    if len(value) > MOST_PROMPTS:
        raise Refused(f"prompt must hold at most {MOST_PROMPTS} prompts, got {len(value)}", param="prompt")
    return tuple(_prompt(one) for one in value)


def _prompt(value: object) -> Given:
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not is_ids(value):
        raise Refused("prompt must be text, token ids, or a list of either", param="prompt")
    return tuple(value)
