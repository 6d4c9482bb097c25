"""A model held against its full-precision self, in process: the very numbers that the product measures over HTTP."""

import dataclasses
import math
from functools import cache
from pathlib import Path

import pytest
import torch

from quantwatch.errors import InputError
from quantwatch.flow.distribution import NO_ID
from quantwatch.flow.divergence import Estimator
from quantwatch.flow.prompt import GoldenSequence
from quantwatch.toolkit.answers import Answers, fingerprint
from quantwatch.toolkit.capture import MAX_TOKENS
from quantwatch.toolkit.model import Loaded
from quantwatch.toolkit.score import distribution, divergence, exam
from support.tiny_llama import tiny_tokenizer
from support.toolkit import a_model, a_prompt

PROMPTS = [a_prompt("The quick brown fox"), a_prompt("SELECT name FROM users", 1), a_prompt("def add(a, b):", 2)]


@cache
def loaded(seed: int = 0) -> Loaded:
    return Loaded(a_model(seed=seed, vocab_size=400), tiny_tokenizer())


def test_a_continuation_is_the_greedy_answer() -> None:
    """The same without a cache: each token is the most probable one behind all before it."""
    one = exam(loaded(), PROMPTS, limit=8).sequences[0]
    ids = list(one.ids[: one.prompt_length])
    for token in one.continuation:
        assert int(loaded().model(torch.tensor([ids])).logits[0, -1].argmax()) == token
        ids.append(token)
    assert 1 <= len(one.continuation) <= 8


def test_a_long_prompt_is_measured_whole() -> None:
    """Calibration cuts prompts; what is measured is what a server would be asked."""
    long = a_prompt("0 1 2 3 4 5 6 7 8 9" * 40, 3)
    whole = loaded().tokenizer(long.content).input_ids
    asked = exam(loaded(), [long, PROMPTS[0]], limit=2)
    assert len(whole) > MAX_TOKENS
    assert list(asked.sequences[0].ids[: asked.sequences[0].prompt_length]) == whole


def test_a_given_continuation_is_taken() -> None:
    given = dataclasses.replace(PROMPTS[0], continuation=" jumps over the lazy dog")
    one = exam(loaded(), [given, *PROMPTS[1:]], limit=5).sequences[0]
    assert loaded().tokenizer.decode(one.ids).startswith("The quick brown fox jumps")
    assert len(one.continuation) <= 5


def test_a_distribution_lists_the_top_and_the_own_token() -> None:
    sequence = GoldenSequence("p", tuple(range(5, 25)), 12)
    one = distribution(loaded().model, sequence, k=3)
    scores = loaded().model(torch.tensor([sequence.ids])).logits[0].log_softmax(-1)
    assert list(one.positions) == list(range(12, 20))
    for row, position in enumerate(one.positions):
        ids, values = one.ids[row * 4 : row * 4 + 4], one.logprobs[row * 4 : row * 4 + 4]
        top = scores[position - 1].topk(3)
        assert list(ids[:3]) == top.indices.tolist()
        own = sequence.ids[position]
        assert one.actual[row] == pytest.approx(float(scores[position - 1, own]), abs=1e-5)
        assert one.floor[row] == pytest.approx(float(top.values[-1]), abs=1e-5)
        assert ids[3] == (NO_ID if own in ids[:3] else own)
        assert own in ids[:3] or values[3] == one.actual[row]


def test_a_model_is_no_distance_from_itself() -> None:
    found = divergence(exam(loaded(), PROMPTS, limit=8), loaded().model)
    assert found.kl_mean.value == pytest.approx(0.0, abs=1e-6)
    assert found.top1_agreement.value == 1.0
    assert found.perplexity_node == pytest.approx(found.perplexity_baseline)


def test_the_bound_is_near_and_never_over_the_whole_divergence() -> None:
    asked = exam(loaded(), PROMPTS, limit=16)
    other = a_model(seed=0, vocab_size=400)
    other.get_parameter("model.layers.1.mlp.down_proj.weight").mul_(0.9)
    found, truths, logs = divergence(asked, other), [], []
    for one in asked.sequences:
        ids, first = torch.tensor([one.ids]), one.prompt_length - 1
        p, q = (model(ids).logits[0, first:-1].double().log_softmax(-1) for model in (loaded().model, other))
        truths.append((p.exp() * (p - q)).sum(-1))
        logs.append(q.gather(1, ids[0, first + 1 :].unsqueeze(1)))
    truth = float(torch.cat(truths).mean())
    assert found.estimator is Estimator.SHARP
    assert 0.3 * truth < found.kl_mean.value <= truth + 1e-6
    assert found.positions == sum(len(one) for one in truths)
    assert found.perplexity_node == pytest.approx(float(torch.cat(logs).mean().neg().exp()), rel=1e-5)


def test_a_prompt_drawn_twice_counts_twice() -> None:
    twice = exam(loaded(), [*PROMPTS, PROMPTS[0]], limit=8)
    assert len(twice.sequences) == 3
    assert divergence(twice, loaded().model).prompts == 4


def test_a_broken_model_gets_no_number() -> None:
    asked, broken = exam(loaded(), PROMPTS, limit=8), a_model(vocab_size=400)
    broken.get_parameter("model.layers.0.mlp.down_proj.weight")[0, 0] = math.nan
    with pytest.raises(InputError, match="not finite"):
        divergence(asked, broken)


def test_one_prompt_and_no_real_answer_are_refused() -> None:
    with pytest.raises(InputError, match="two different prompts"):
        exam(loaded(), [PROMPTS[0], PROMPTS[0]])
    dull = Loaded(a_model(vocab_size=400), tiny_tokenizer())
    dull.model.get_parameter("lm_head.weight").zero_()
    with pytest.raises(InputError, match="no real answer"):
        exam(dull, PROMPTS)


def test_answers_are_kept_and_a_damaged_file_is_asked_again(tmp_path: Path) -> None:
    file = tmp_path / "new" / "answers.json"
    first = exam(loaded(), PROMPTS, limit=8, kept=Answers(file))
    other = Loaded(a_model(seed=9, vocab_size=400), tiny_tokenizer())
    assert exam(other, PROMPTS, limit=8, kept=Answers(file)).sequences == first.sequences
    assert exam(other, PROMPTS, limit=8).sequences != first.sequences
    for damaged in ("", "[1]", '{"a": 3}'):
        file.write_text(damaged, encoding="utf-8")
        assert Answers(file).get([1, 2], 8) is None


def test_a_disk_that_is_in_the_way_forgets_alone(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    kept = Answers(tmp_path / "file" / "answers.json")
    kept.put([1], 4, [2])
    assert kept.get([1], 4) == [2]


def test_a_model_is_told_from_another_by_its_files(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"one")
    before = fingerprint(tmp_path)
    assert before == fingerprint(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"other")
    assert before != fingerprint(tmp_path)
