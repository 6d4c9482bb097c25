"""A Hugging Face folder -> a model in float32 that only infers, and its tokenizer."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from quantwatch.errors import InputError
from quantwatch.toolkit.library import UNREADABLE, transformers


@dataclass(frozen=True, slots=True)
class Loaded:
    """A causal language model of transformers in float32 and evaluation mode, without gradients; its tokenizer.

    name: tells it from every other on this machine, empty where nobody asks.
    """

    model: nn.Module
    tokenizer: Any
    name: str = ""


def load(folder: Path) -> Loaded:
    """Read a folder as save_pretrained writes it; nothing is fetched from anywhere.

    Raises InputError for a folder that holds no causal language model, or not all of its weights.
    """
    if not (folder / "config.json").is_file():
        raise InputError(f"{folder}: no model here, config.json is missing")
    try:
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, local_files_only=True, output_loading_info=True
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except UNREADABLE as exc:
        raise InputError(f"{folder}: no causal language model that transformers can load: {_first_line(exc)}") from exc
    if missing := sorted(info["missing_keys"]):
        raise InputError(f"{folder}: {len(missing)} weights are missing, such as {missing[0]}")
    return Loaded(frozen(model), tokenizer)


def frozen(model: nn.Module) -> nn.Module:
    """Evaluation mode, and no parameter asks for a gradient."""
    return model.eval().requires_grad_(requires_grad=False)


def hidden_states(model: nn.Module, ids: Tensor, cache: Any = None) -> Tensor:
    """What the decoder layers make: (batch, n, hidden) for ids (batch, n), which follow on what the cache holds.

    cache: a Cache of transformers, which then holds these ids too; None for ids that start a text and keep nothing.
    """
    body = model.get_submodule(str(model.base_model_prefix))
    states: Tensor = body(input_ids=ids, **_caching(body, cache)).last_hidden_state
    return states


def logits(model: nn.Module, ids: Tensor, cache: Any = None, *, kept: Tensor | None = None) -> Tensor:
    """Raw next-token scores by the model's own forward, which in some families scales or caps them.

    Other arguments as for hidden_states. kept: (m,) positions among the ids, None for all of them. Returns
    (batch, m, vocabulary). A model that cannot leave out the others computes n positions all the same.
    """
    arguments = _caching(model, cache)
    if kept is None:
        scores: Tensor = model(input_ids=ids, **arguments).logits
    elif "logits_to_keep" in _parameters(model):
        scores = model(input_ids=ids, logits_to_keep=kept, **arguments).logits
    else:
        scores = model(input_ids=ids, **arguments).logits[:, kept]
    return scores


def _caching(module: nn.Module, cache: Any) -> dict[str, Any]:
    """The arguments that hand a cache on. Transformers 5 renamed one of them on its way."""
    if cache is None:
        return {"use_cache": False}
    return {"use_cache": True, ("cache" if "cache" in _parameters(module) else "past_key_values"): cache}


def _parameters(module: nn.Module) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(module.forward).parameters


def _first_line(exc: Exception) -> str:
    return (str(exc).strip() or type(exc).__name__).splitlines()[0]
