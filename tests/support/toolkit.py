"""Small random models and prompts for the tests of the toolkit."""

from typing import Any

import torch
from torch import Tensor, nn

from quantwatch.flow.prompt import LengthBucket, Prompt
from quantwatch.toolkit.library import transformers
from quantwatch.toolkit.model import frozen, hidden_states

SIZES = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "initializer_range": 0.15,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
}


def a_model(kind: str = "llama", *, seed: int = 0, **config: Any) -> nn.Module:
    """A random model of a family, frozen. Norm gains differ from 1, and biases from 0, as in trained models."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: nn.Module = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(kind, **(SIZES | config))
        )
        for name, value in model.named_parameters():
            if "norm" in name or name.endswith("bias"):
                nn.init.uniform_(value, 0.5, 1.5)
    return frozen(model)


def logits(model: nn.Module, ids: Tensor) -> Tensor:
    """Raw scores of whole texts: (batch, n, vocabulary)."""
    scores: Tensor = model.get_submodule("lm_head")(hidden_states(model, ids))
    return scores


def some_ids(length: int = 24, *, seed: int = 0, batch: int = 1) -> Tensor:
    """Random token ids: (batch, length)."""
    return torch.randint(3, 300, (batch, length), generator=torch.Generator().manual_seed(seed))


def a_prompt(text: str, number: int = 0) -> Prompt:
    """A raw-text prompt."""
    return Prompt(f"p-{number}", "en", LengthBucket.SHORT, ("t",), text=text)
