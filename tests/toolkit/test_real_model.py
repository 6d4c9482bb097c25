"""The real SmolLM2: our conversion computes what real vLLM recorded, and recipes do to it what they are known for."""

import json
from functools import cache

import pytest
import torch
from torch import Tensor

from quantwatch.flow.prompt import GoldenSequence
from quantwatch.measure.bounds import sharp
from quantwatch.measure.compare import Scope, position_values
from quantwatch.measure.kl import align
from quantwatch.measure.listed import Listed
from quantwatch.toolkit.prepare import Prepared, prepare
from quantwatch.toolkit.recipe import Recipe, Scheme
from support.real_model import smollm2
from support.recordings import K, pairs, scored

pytestmark = pytest.mark.model

SEQUENCES = [sequence for sequence, _ in scored("fp32")]


def node(recipe: Recipe) -> Prepared:
    return prepare(smollm2(), recipe, tell=print)


@cache
def full_precision() -> Prepared:
    return node(Recipe())


@torch.inference_mode()
def log_probabilities(prepared: Prepared, sequence: GoldenSequence) -> Tensor:
    """(n - 1, vocabulary) float32 at every position that has a next token."""
    return prepared.logits(torch.tensor([sequence.ids]))[0, :-1].log_softmax(-1)


def furthest(recipe: Recipe, recorded: str) -> float:
    """Largest distance in nats from any value that a real vLLM node listed."""
    prepared = node(recipe)
    distances: list[float] = []
    for sequence, body in scored(recorded):
        ours = log_probabilities(prepared, sequence)
        for position, row in enumerate(json.loads(body)["choices"][0]["prompt_logprobs"][1:]):
            distances += [abs(float(ours[position, int(token)]) - entry["logprob"]) for token, entry in row.items()]
    assert len(distances) > 342 * K
    return max(distances)


@pytest.mark.parametrize(("scheme", "recorded"), [(Scheme.FP32, "fp32"), (Scheme.W4_G64, "int4-w4g64")])
def test_a_node_computes_what_real_vllm_recorded(scheme: Scheme, recorded: str) -> None:
    """vLLM served weights of the same file in float32: as they are, and rounded to 4 bits in groups of 64."""
    assert furthest(Recipe(scheme), recorded) < 1e-3


def test_it_knows_the_capital_of_france() -> None:
    prepared = full_precision()
    ids = prepared.tokenizer("The capital of France is").input_ids
    assert prepared.tokenizer.decode(prepared.logits(torch.tensor([ids]))[0, -1].argmax()) == " Paris"


def listed(log_probs: Tensor) -> Listed:
    """What a server would list: the K largest."""
    values, ids = log_probs.double().topk(K, dim=1)
    return Listed(ids, values, values[:, 0], values[:, -1])


def mean_bound(recipe: Recipe) -> float:
    """Mean lower bound on KL(fp32 || recipe) over the continuations, in nats."""
    prepared, bounds = node(recipe), []
    for sequence in SEQUENCES:
        start = sequence.prompt_length - 1
        p, q = (listed(log_probabilities(one, sequence)[start:]) for one in (full_precision(), prepared))
        bounds.append(sharp(p, q, align(p, q)))
    return float(torch.cat(bounds).mean())


def recorded_bound(name: str) -> float:
    """The same of a node that vLLM served."""
    values = position_values(pairs(name), Scope.CONTINUATION)
    return float(values.kl.mean())


def test_w8a8_with_outliers_is_as_far_off_as_vllms_int8_kernels_were() -> None:
    """The same model under real int8 kernels; codes at the edge between two steps fall either way, so means agree."""
    ours, theirs = mean_bound(Recipe(Scheme.W8A8, outliers=100.0)), recorded_bound("int8-w8a8-outlier")
    assert ours == pytest.approx(theirs, rel=0.1)


def test_outliers_wreck_int8_and_smoothing_cures_it() -> None:
    wrecked = mean_bound(Recipe(Scheme.W8A8, outliers=100.0))
    cured = mean_bound(Recipe(Scheme.W8A8, outliers=100.0, smooth=0.5))
    assert wrecked >= 5 * cured


def test_four_bit_weights_cost_more_than_eight_bit_weights() -> None:
    eight, four = mean_bound(Recipe(Scheme.W8)), mean_bound(Recipe(Scheme.W4_G64))
    assert 0 < eight < four / 5
