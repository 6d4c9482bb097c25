"""Families that scale or cap their scores, or cannot leave positions out: served in full precision as they are."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from quantwatch.errors import InputError
from quantwatch.toolkit.library import transformers
from quantwatch.toolkit.model import logits
from quantwatch.toolkit.prepare import prepare
from quantwatch.toolkit.recipe import KvBits, Recipe, Scheme
from support.lab_nodes import complete, lab_node
from support.tiny_llama import tiny_tokenizer
from support.toolkit import SIZES, some_ids

KINDS: dict[str, dict[str, Any]] = {
    "gemma2": {"final_logit_softcapping": 2.0},
    "granite": {"logits_scaling": 8.0},
    "cohere": {"logit_scale": 0.0625},
    "gpt_neox": {},
    "mistral": {"sliding_window": 32},
}


@pytest.fixture(params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A random model of a family, with a tokenizer."""
    kind = request.param
    tokenizer = tiny_tokenizer()
    sizes = SIZES | {"vocab_size": len(tokenizer)} | KINDS[kind]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(kind, **sizes))
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


def reference(folder: Path, ids: list[int]) -> torch.Tensor:
    """Log-probabilities of transformers itself: (n, vocabulary)."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        scores: torch.Tensor = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    return scores


async def test_a_node_gives_the_numbers_of_the_models_own_forward(folder: Path) -> None:
    ids = [(7 * i) % 290 + 3 for i in range(200)]
    expected = reference(folder, ids)

    choice = await complete(lab_node(folder), prompt=ids, max_tokens=1, prompt_logprobs=0, logprobs=0)

    got = [row[str(ids[i])]["logprob"] for i, row in enumerate(choice["prompt_logprobs"]) if row is not None]
    assert got == pytest.approx([float(expected[i, token]) for i, token in enumerate(ids[1:])], abs=1e-4)
    assert choice["logprobs"]["token_logprobs"] == pytest.approx([float(expected[-1].max())], abs=1e-4)


@pytest.mark.parametrize("kv", [None, KvBits.INT8])
def test_kept_positions_are_those_of_all(folder: Path, kv: KvBits | None) -> None:
    prepared, ids, kept = prepare(folder, Recipe(kv=kv), tell=print), some_ids(20), torch.tensor([0, 7, 19])

    few = prepared.logits(ids, kept=kept)

    torch.testing.assert_close(few, prepared.logits(ids)[:, kept])


@pytest.mark.parametrize("folder", ["gemma2"], indirect=True)
def test_other_families_are_not_quantized(folder: Path) -> None:
    with pytest.raises(InputError, match="known types: llama"):
        prepare(folder, Recipe(Scheme.W8A8), tell=print)


class Whole(nn.Module):
    """A model that computes all positions whatever it is asked."""

    def forward(self, input_ids: torch.Tensor, **_: Any) -> SimpleNamespace:
        """Scores that tell the position."""
        return SimpleNamespace(logits=torch.arange(input_ids.shape[1]).view(1, -1, 1).float())


def test_positions_are_picked_for_a_model_that_cannot_leave_any_out() -> None:
    assert logits(Whole(), some_ids(20), kept=torch.tensor([3, 19])).flatten().tolist() == [3, 19]
