"""What calibration sees, and the scales that observers make of it."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from quantwatch.errors import InputError
from quantwatch.flow.prompt import LengthBucket, Message, Prompt
from quantwatch.toolkit.capture import BINS, MAX_TOKENS, Histogram, Inputs, capture, captured_at, token_ids
from quantwatch.toolkit.observers import clip, least_error_clip, percentile_clip
from quantwatch.toolkit.recipe import Observer
from support.tiny_llama import tiny_tokenizer
from support.toolkit import a_model, a_prompt, logits, some_ids


def histogram(*parts: Tensor) -> Histogram:
    made = Histogram()
    for part in parts:
        made.add(part)
    return made


def test_every_channels_largest_size_is_remembered() -> None:
    inputs = Inputs(torch.zeros(3))
    inputs.add(torch.tensor([[[1.0, -2.0, 0.0]]]))
    inputs.add(torch.tensor([[[-0.5, 1.0, 0.0], [-3.0, 0.0, 0.0]]]))
    assert inputs.absmax.tolist() == [3.0, 2.0, 0.0]
    assert inputs.histogram.counts.sum() == 9


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=6), st.integers(0, 100))
def test_no_count_is_lost_however_the_range_grows(sizes: list[float], seed: int) -> None:
    parts = [size * torch.rand(50, generator=torch.Generator().manual_seed(seed + i)) for i, size in enumerate(sizes)]
    made = histogram(*parts)
    values = torch.cat(parts)
    assert made.counts.sum() == len(values)
    assert made.limit >= float(values.max())
    assert float((made.centers() * made.counts).sum()) == pytest.approx(
        float(values.double().sum()), abs=made.limit / BINS * len(values)
    )


def test_growing_merges_pairs_of_bins() -> None:
    """A range of 1 that becomes 4 counts as a range of 4 would have from the start."""
    values = (torch.arange(BINS) + 0.5) / BINS
    grown = histogram(torch.cat([values, torch.ones(1)]), torch.tensor([4.0]))
    assert grown.limit == 4.0
    assert grown.counts[: BINS // 4].tolist() == [4.0] * (BINS // 4 - 1) + [5.0]
    assert grown.counts[-1] == 1
    assert grown.counts.sum() == BINS + 2


@pytest.mark.parametrize(
    "parts", [[torch.zeros(5)], [torch.zeros(5), torch.tensor([2.0])], [torch.empty(0), torch.ones(3)]]
)
def test_zeros_and_nothing_are_counted_sanely(parts: list[Tensor]) -> None:
    made = histogram(*parts)
    assert made.counts.sum() == sum(len(part) for part in parts)
    assert made.limit == max(float(part.max()) for part in parts if len(part))


def error_of(values: Tensor, largest: float) -> float:
    """Mean squared error of the real values under a clip, without any histogram."""
    step = largest / 127
    return float(((values / step).round().clamp(-128, 127) * step - values).square().mean())


@pytest.mark.parametrize("seed", range(3))
def test_the_histogram_finds_the_clip_of_least_error(seed: int) -> None:
    """Laplace-like values have a long tail, so the best clip lies well inside."""
    chance = torch.Generator().manual_seed(seed)
    values = torch.empty(200_000, dtype=torch.float64).exponential_(generator=chance)
    best = min(error_of(values, float(values.max()) * i / 200) for i in range(1, 201))
    found = least_error_clip(histogram(values))
    assert found < 0.95 * float(values.max())
    assert error_of(values, found) <= 1.02 * best


def test_even_values_are_not_clipped() -> None:
    assert least_error_clip(histogram(torch.linspace(0, 1, 100_000))) == pytest.approx(1.0, abs=0.01)


def test_a_histogram_of_zeros_clips_at_zero() -> None:
    assert least_error_clip(histogram(torch.zeros(9))) == 0.0


def test_minmax_takes_the_largest_and_the_histogram_does_not() -> None:
    inputs = Inputs(torch.zeros(64))
    inputs.add(torch.randn(4000, 64, generator=torch.Generator().manual_seed(0)))
    assert clip(inputs, Observer.MINMAX) == float(inputs.absmax.max())
    assert clip(inputs, Observer.HISTOGRAM) < clip(inputs, Observer.MINMAX)


def test_capture_sees_what_the_linears_read_and_leaves_no_hook() -> None:
    model, seen = a_model(), []
    probe = model.get_submodule("model.layers.1.mlp.down_proj")
    handle = probe.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    texts = [some_ids(9, seed=1), some_ids(30, seed=2)]
    found = capture(model, texts)
    handle.remove()
    rows = torch.cat([x.flatten(0, -2) for x in seen])
    inputs = found["model.layers.1.mlp.down_proj"]
    assert torch.equal(inputs.absmax, rows.abs().amax(0))
    assert inputs.histogram.counts.sum() == rows.numel()
    assert found["model.layers.0.self_attn.q_proj"] is found["model.layers.0.self_attn.v_proj"]
    before = inputs.absmax.clone()
    logits(model, some_ids(64, seed=3))
    assert torch.equal(inputs.absmax, before)


def test_calibration_without_prompts_is_refused() -> None:
    with pytest.raises(InputError, match="one prompt at least"):
        capture(a_model(), [])


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_broken_model_is_not_calibrated(broken: float) -> None:
    model = a_model()
    model.get_parameter("model.layers.0.mlp.down_proj.weight")[0, 0] = broken
    with pytest.raises(InputError, match="not finite"):
        capture(model, [some_ids()])


TURNS = (Message("system", "Be brief."), Message("user", "Hi"))
CHAT = Prompt("c", "en", LengthBucket.SHORT, ("t",), messages=TURNS)


def test_a_text_is_read_as_it_is_and_a_chat_by_its_template() -> None:
    tokenizer = tiny_tokenizer()
    assert tokenizer.decode(token_ids(tokenizer, a_prompt("Hello 今天"))[0]) == "Hello 今天"
    assert tokenizer.decode(token_ids(tokenizer, CHAT)[0]) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_chat_without_a_template_is_its_bare_text() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None
    assert tokenizer.decode(token_ids(tokenizer, CHAT)[0]) == "Be brief.\nHi"


def test_a_long_prompt_is_cut() -> None:
    assert token_ids(tiny_tokenizer(), a_prompt("word " * 2000)).shape == (1, MAX_TOKENS)


@pytest.mark.parametrize(
    ("share", "clip_at"), [(0.5, 50.0), (0.98, 98.0), (0.99, 99.0), (0.995, 2048.0), (1.0, 2048.0)]
)
def test_a_percentile_leaves_out_what_is_rarer(share: float, clip_at: float) -> None:
    """Sizes 0.5, 1.5 .. 98.5 and one of 2048: bins of width 1, so the share is a count of a hundred."""
    made = histogram(torch.cat([torch.arange(99) + 0.5, torch.tensor([2048.0])]))
    assert percentile_clip(made, share) == clip_at


def test_a_percentile_of_zeros_is_zero() -> None:
    assert percentile_clip(histogram(torch.zeros(4)), 0.999) == 0.0


def test_one_pass_gives_what_was_seen_after_each_count() -> None:
    model, texts = a_model(), [some_ids(9, seed=seed) for seed in range(4)]
    held = captured_at(model, texts, [1, 3, 4])
    assert sorted(held) == [1, 3, 4]
    for count, found in held.items():
        alone = capture(model, texts[:count])
        for name, inputs in found.items():
            assert torch.equal(inputs.absmax, alone[name].absmax)
            assert torch.equal(inputs.histogram.counts, alone[name].histogram.counts)
            assert inputs.tokens == 9 * count
    names = ["model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.v_proj"]
    assert held[1][names[0]] is held[1][names[1]] is not held[4][names[0]]
