"""Scoring and generation against the model itself."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from quantwatch.lab import engine as engines
from quantwatch.lab.app import Node
from quantwatch.lab.engine import Engine, Job
from quantwatch.lab.request import Sampling
from quantwatch.lab.rows import rows_of
from quantwatch.lab.sampling import generator_for, next_token
from quantwatch.lab.sharing import shared
from quantwatch.lab.words import Words
from quantwatch.toolkit.prepare import Prepared, prepare
from quantwatch.toolkit.recipe import KvBits, Recipe, Scheme
from support.lab_nodes import ask, complete, lab_node

IDS = [(7 * i) % 397 + 3 for i in range(300)]
"""More than a chunk of positions."""

GREEDY = Sampling(temperature=0)


@pytest.fixture(scope="module")
def lab(tiny: Path) -> Node:
    return lab_node(tiny)


@pytest.fixture(scope="module")
def prepared(tiny: Path) -> Prepared:
    return prepare(tiny, Recipe(), tell=lambda _: None)


def full(prepared: Prepared, ids: list[int]) -> torch.Tensor:
    """Log-probabilities after every position, by one plain forward pass."""
    with torch.inference_mode():
        out: torch.Tensor = prepared.logits(torch.tensor([ids]))[0].log_softmax(-1)
    return out


async def test_chunks_give_the_numbers_of_one_forward_pass(lab: Node, prepared: Prepared) -> None:
    assert len(IDS) > engines.CHUNK + 1
    expected = full(prepared, IDS)

    rows = (await complete(lab, prompt=IDS, max_tokens=1, prompt_logprobs=3))["prompt_logprobs"]

    for place, row in enumerate(rows[1:], 1):
        top = expected[place - 1].topk(3)
        for token, value in zip(top.indices.tolist(), top.values.tolist(), strict=True):
            assert row[str(token)]["logprob"] == pytest.approx(value, abs=1e-4)
        own = row[str(IDS[place])]
        assert own["logprob"] == pytest.approx(float(expected[place - 1, IDS[place]]), abs=1e-4)


@pytest.mark.parametrize("length", [1, 255, 256, 257])
async def test_lengths_around_a_chunk_are_scored_whole(lab: Node, prepared: Prepared, length: int) -> None:
    choice = await complete(lab, prompt=IDS[:length], max_tokens=1, prompt_logprobs=1)

    assert len(choice["prompt_logprobs"]) == length
    assert choice["token_ids"] == [int(full(prepared, IDS[:length])[-1].argmax())]


async def test_greedy_generation_is_the_models_own(lab: Node, prepared: Prepared) -> None:
    expected = IDS[:5]
    for _ in range(6):
        expected.append(int(full(prepared, expected)[-1].argmax()))

    choice = await complete(lab, prompt=IDS[:5], max_tokens=6, ignore_eos=True)

    assert IDS[:5] + choice["token_ids"] == expected


@pytest.mark.parametrize("recipe", [Recipe(), Recipe(scheme=Scheme.W8A8), Recipe(kv=KvBits.INT8)])
async def test_a_shared_forward_pass_changes_no_number(tiny: Path, recipe: Recipe) -> None:
    lab = lab_node(tiny, recipe=recipe)
    prefixes = [IDS[:290], IDS[:3], IDS[:257], [9, 9], IDS[:256]]
    body = {"max_tokens": 1, "logprobs": 4, "temperature": 0, "return_tokens_as_token_ids": True}

    together = (await ask(lab, "/v1/completions", {"prompt": prefixes, **body})).json()["choices"]

    for prefix, choice in zip(prefixes, together, strict=True):
        alone = await complete(lab, prompt=prefix, **body)
        assert choice["logprobs"]["top_logprobs"][0] == pytest.approx(alone["logprobs"]["top_logprobs"][0], abs=1e-4)


async def test_logprobs_are_raw_whatever_the_temperature(lab: Node) -> None:
    rows = [
        (await complete(lab, prompt=IDS[:9], max_tokens=1, prompt_logprobs=5, temperature=t))["prompt_logprobs"]
        for t in (0, 2)
    ]
    tops = [
        (await complete(lab, prompt=IDS[:9], max_tokens=1, logprobs=5, temperature=t, top_k=1))["logprobs"]
        for t in (0, 2)
    ]

    assert rows[0] == rows[1]
    assert tops[0] == tops[1]


async def test_a_seed_repeats_a_draw(lab: Node) -> None:
    body = {"prompt": IDS[:9], "max_tokens": 20, "temperature": 1.5}
    first, again, other = [(await complete(lab, **body, seed=seed))["token_ids"] for seed in (1, 1, 2)]

    assert first == again
    assert first != other


async def test_a_stop_text_ends_the_answer_before_itself(lab: Node) -> None:
    free = await complete(lab, prompt=IDS[:9], max_tokens=12, ignore_eos=True)
    stop = free["text"][3:5]

    got = await complete(lab, prompt=IDS[:9], max_tokens=12, ignore_eos=True, stop=[stop])

    assert (got["finish_reason"], got["stop_reason"]) == ("stop", stop)
    assert got["text"] == free["text"][: free["text"].find(stop)]


async def test_a_stop_token_ends_the_answer(lab: Node) -> None:
    free = (await complete(lab, prompt=IDS[:9], max_tokens=6, ignore_eos=True))["token_ids"]
    stop = free[2]

    got = await complete(lab, prompt=IDS[:9], max_tokens=6, ignore_eos=True, stop_token_ids=[stop])

    assert got["token_ids"] == free[: free.index(stop) + 1]
    assert (got["finish_reason"], got["stop_reason"]) == ("stop", stop)


def test_an_end_token_ends_the_answer_unless_it_is_ignored_or_too_early(prepared: Prepared) -> None:
    words = Words(prepared.tokenizer)
    end = prepared.tokenizer.eos_token_id

    def always_end(logits: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(torch.full((len(logits),), end), logits.shape[1]).float()

    def finished(**sampling: object) -> tuple[int, str, bool]:
        wanted = Sampling(temperature=0, **sampling)  # type: ignore[arg-type]  # the test names real fields
        job = Job([(5, 6)], [4], wanted, change=always_end)
        (answer,) = run(Engine(prepared, words), job)
        return len(answer.ids), answer.finish, end in answer.ids

    assert finished() == (1, "stop", True)
    assert finished(ignore_eos=True) == (4, "length", True)
    assert finished(min_tokens=2) == (3, "stop", True)


def run(engine: Engine, job: Job) -> list[engines.Answer]:
    steps: Iterator[None] = engine.answer(job)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answers: list[engines.Answer] = end.value
            return answers


async def test_requests_take_turns(lab: Node) -> None:
    """A short one that comes second is answered before a long one is."""
    done: list[str] = []

    async def one(name: str, tokens: int) -> None:
        await complete(lab, prompt=IDS[:9], max_tokens=tokens, ignore_eos=True)
        done.append(name)

    await asyncio.gather(one("long", 300), one("short", 1))

    assert done == ["short", "long"]


def test_prefixes_find_their_longest_prompt() -> None:
    prompts = [(1,), (1, 2, 3), (2,), (1, 2), (2, 3), (1, 2, 3), (1, 1, 9, 9)]

    groups = shared(prompts)

    assert sorted(sorted(group) for group in groups) == [[0, 6], [1, 3, 5], [2, 4]]
    assert all(len(prompts[group[0]]) == max(len(prompts[i]) for i in group) for group in groups)


def test_what_prompts_share_is_held_once() -> None:
    prompts = [(1,), (1, 2, 3), (2,), (1, 2), (2, 3)]

    assert Job(prompts, [1] * 5, GREEDY).tokens() == 3 + 1 + 2 + 1
    assert Job(prompts, [4] * 5, GREEDY).tokens() == sum(map(len, prompts)) + 5 * 4


def test_a_rank_counts_the_tokens_that_are_at_least_as_likely() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0, 3.0, 0.0]])

    assert [rows_of(logits, [token], k=2)[0].rank for token in range(5)] == [4, 2, 3, 2, 5]
    assert rows_of(logits, [0], k=2)[0].ids == [0, 1, 3]


@pytest.mark.parametrize(
    ("sampling", "possible"),
    [
        (Sampling(temperature=0), {1}),
        (Sampling(top_k=2), {1, 2}),
        (Sampling(top_k=99), {0, 1, 2, 3}),
        (Sampling(top_p=0.5), {1}),
        (Sampling(top_p=0.7), {1, 2}),
        (Sampling(min_p=0.3), {1, 2}),
        (Sampling(temperature=0.01), {1}),
        (Sampling(), {0, 1, 2, 3}),
    ],
)
def test_filters_keep_what_they_should(sampling: Sampling, possible: set[int]) -> None:
    logits = torch.tensor([0.1, 0.6, 0.2, 0.1]).log()
    generator = generator_for(Sampling(seed=5))

    drawn = {next_token(logits, sampling, generator) for _ in range(400)}

    assert drawn == possible


def test_draws_follow_the_probabilities() -> None:
    logits, generator = torch.tensor([0.1, 0.6, 0.3]).log(), generator_for(Sampling(seed=5))

    drawn = torch.tensor([next_token(logits, Sampling(), generator) for _ in range(4000)]).bincount(minlength=3) / 4000

    assert drawn.tolist() == pytest.approx([0.1, 0.6, 0.3], abs=0.03)


@pytest.mark.parametrize("temperature", [1e-320, 1e-60, 1e-45, 1e-38, 1e-6, 1e-4])
def test_a_temperature_that_is_almost_nothing_is_greedy(temperature: float) -> None:
    logits = torch.tensor([0.1, -30.0, 60.0, 2.0])

    assert next_token(logits, Sampling(temperature=temperature), generator_for(GREEDY)) == 2


def test_a_temperature_counts_as_a_hundredth_at_least() -> None:
    logits, generator = torch.tensor([0.0, 0.003]), generator_for(Sampling(seed=5))

    drawn = {next_token(logits, Sampling(temperature=1e-4), generator) for _ in range(100)}

    assert drawn == {0, 1}


@pytest.mark.parametrize("temperature", [0, 1])
def test_of_nan_logits_the_first_wins(temperature: float) -> None:
    logits = torch.full((5,), torch.nan)

    assert next_token(logits, Sampling(temperature=temperature), generator_for(GREEDY)) == 0
