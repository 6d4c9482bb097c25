"""A plan -> a lab node."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from quantwatch.clock import Clock
from quantwatch.errors import InputError
from quantwatch.flow.prompt import Prompt
from quantwatch.lab.app import Node
from quantwatch.lab.card import Card
from quantwatch.lab.engine import Engine
from quantwatch.lab.faults import Fault, Trouble
from quantwatch.lab.words import Words
from quantwatch.toolkit.prepare import prepare
from quantwatch.toolkit.recipe import Recipe, Scheme

USUAL_MODEL_LEN = 2048


@dataclass(frozen=True, slots=True)
class Plan:
    """What a node is to be.

    folder: of the model; name: under which it is served. prompts: to calibrate with, None for the shipped ones.
    max_model_len: None for what the model allows, at most 2048. max_logprobs: -1 for the whole vocabulary. threads: of
    torch, None for half the cores: a node is seldom alone on its machine.
    """

    folder: Path
    recipe: Recipe
    name: str
    fault: Fault | None = None
    prompts: Sequence[Prompt] | None = None
    max_model_len: int | None = None
    max_logprobs: int = 20
    threads: int | None = None


def node(plan: Plan, *, clock: Clock, tell: Callable[[str], None] = lambda _: None) -> Node:
    """Load, prepare and wrap a model. tell: hears what takes long. Raises InputError when the plan cannot be met."""
    torch.set_num_threads(plan.threads or max(1, torch.get_num_threads() // 2))
    prepared = prepare(plan.folder, plan.recipe, calibration=plan.prompts, tell=tell)
    if plan.recipe.scheme is not Scheme.FP32:
        _let_go(prepared.model)
    words = Words(prepared.tokenizer)
    engine = Engine(prepared, words)
    longest = plan.max_model_len or min(engine.context, USUAL_MODEL_LEN)
    if longest > engine.context:
        raise InputError(f"--max-model-len {longest}: the model was made for {engine.context} tokens at most")
    fault = f", fault {plan.fault.text}" if plan.fault is not None else ""
    root = plan.recipe.describe() + fault
    card = Card(plan.name, root, engine.vocabulary, longest, plan.max_logprobs)
    trouble = Trouble(plan.fault, seed=plan.recipe.seed, poison=engine.poison)
    return Node(card, engine, words, trouble=trouble, clock=clock)


def _let_go(model: nn.Module) -> None:
    """Copy what is still read from the model's file, so that the memory of all its weights is given back."""
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
