"""How far a changed model is from its full-precision self: the estimator, k and positions of `quantwatch compare`."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from quantwatch.errors import InputError
from quantwatch.flow.distribution import NO_ID, Distribution
from quantwatch.flow.divergence import Divergence, Evidence
from quantwatch.flow.prompt import GoldenSequence, ProbeMode, Prompt
from quantwatch.measure.compare import Pair, Scope, measure
from quantwatch.measure.corruption import one_id_to_the_limit
from quantwatch.prompts.draw import distinct
from quantwatch.toolkit.answers import Answers
from quantwatch.toolkit.capture import Heard
from quantwatch.toolkit.kv_cache import new_cache
from quantwatch.toolkit.model import Loaded, logits
from quantwatch.toolkit.subject import refuse_foreign, texts

K = 20
CONTINUATION = 96


@dataclass(frozen=True, slots=True)
class Exam:
    """What every variant of a model is asked: drawn sequences, and the full-precision model's own distributions.

    drawn: prompt ids in the order of the draw; one that was drawn twice counts twice.
    """

    sequences: tuple[GoldenSequence, ...]
    baseline: dict[str, Distribution]
    drawn: tuple[str, ...]
    k: int


@torch.inference_mode()
def exam(
    loaded: Loaded,
    drawn: Sequence[Prompt],
    *,
    limit: int = CONTINUATION,
    k: int = K,
    kept: Answers | None = None,
    heard: Heard = lambda _done, _all: None,
) -> Exam:
    """Let the full-precision model answer each prompt greedily, at most `limit` tokens, and keep what it thinks of it.

    kept: its answers to earlier exams. Raises InputError for prompts that it has no answer to: nothing could be
    measured on them.
    """
    asked, known = distinct(drawn), kept or Answers(None)
    if len(asked) < 2:
        raise InputError("two different prompts at least are wanted: one leaves no interval")
    sequences = []
    for number, (prompt, ids) in enumerate(zip(asked, texts(loaded, asked, most=None), strict=True), 1):
        given = _given(loaded, prompt, limit) or _answer(loaded, ids, limit, known)
        if not given or one_id_to_the_limit(tuple(given), limit):
            raise InputError(f"prompt {prompt.id}: the full-precision model has no real answer to it")
        sequences.append(GoldenSequence(prompt.id, (*ids[0].tolist(), *given), ids.shape[1]))
        heard(number, len(asked))
    baseline = {one.prompt_id: distribution(loaded.model, one, k=k) for one in sequences}
    return Exam(tuple(sequences), baseline, tuple(prompt.id for prompt in drawn), k)


def _given(loaded: Loaded, prompt: Prompt, limit: int) -> list[int]:
    if prompt.continuation is None:
        return []
    given = list(loaded.tokenizer(prompt.continuation, add_special_tokens=False).input_ids)[:limit]
    refuse_foreign(loaded, prompt, max(given, default=0))
    return given


def _answer(loaded: Loaded, ids: Tensor, limit: int, known: Answers) -> list[int]:
    asked = ids[0].tolist()
    answer = known.get(asked, limit)
    if answer is None:
        answer = _greedy(loaded, ids, limit)
        known.put(asked, limit, answer)
    return answer


def _greedy(loaded: Loaded, ids: Tensor, limit: int) -> list[int]:
    """The most probable token again and again, to the end of the answer or the limit."""
    ends, cache = _ends(loaded), new_cache(loaded.model.config, None)
    answer: list[int] = []
    while len(answer) < limit:
        last = torch.tensor([ids.shape[1] - 1])
        token = int(logits(loaded.model, ids, cache, kept=last)[0, -1].argmax())
        answer.append(token)
        if token in ends:
            break
        ids = ids.new_tensor([[token]])
    return answer


def _ends(loaded: Loaded) -> set[int]:
    config: Any = loaded.model.config
    given = [config.eos_token_id, loaded.tokenizer.eos_token_id]
    return {one for value in given for one in (value if isinstance(value, list) else [value]) if one is not None}


@torch.inference_mode()
def distribution(model: nn.Module, sequence: GoldenSequence, *, k: int) -> Distribution:
    """The k most probable tokens at every position of the continuation, and the sequence's own."""
    device = next(model.parameters()).device
    first, ids = sequence.prompt_length, torch.tensor([sequence.ids], device=device)
    places = torch.arange(first, len(sequence.ids))
    scores = logits(model, ids, kept=(places - 1).to(device))[0].float().log_softmax(-1).cpu()
    top = scores.topk(k, dim=-1)
    own = ids[0, first:].cpu().unsqueeze(1)
    actual = scores.gather(1, own)
    listed = (top.indices == own).any(1, keepdim=True)
    return Distribution(
        prompt_id=sequence.prompt_id,
        mode=ProbeMode.PROMPT_SCORING,
        k=k,
        prompt_length=first,
        positions=array("q", places.tolist()),
        ids=array("q", torch.cat([top.indices, own.masked_fill(listed, NO_ID)], 1).flatten().tolist()),
        logprobs=array("d", torch.cat([top.values, actual.masked_fill(listed, 0.0)], 1).double().flatten().tolist()),
        actual=array("d", actual.double().flatten().tolist()),
        floor=array("d", top.values[:, -1].double().tolist()),
    )


def divergence(asked: Exam, model: nn.Module, *, heard: Heard = lambda _done, _all: None) -> Divergence:
    """KL lower bound, perplexities and agreement of a model on an exam.

    Raises InputError where it computes numbers that are not finite.
    """
    return compared(paired(asked, model, heard=heard))


def paired(asked: Exam, model: nn.Module, *, heard: Heard = lambda _done, _all: None) -> list[Pair]:
    """What full precision and a model think of every draw of an exam, a draw that came twice twice.

    Raises InputError where the model computes numbers that are not finite.
    """
    found = {}
    for number, sequence in enumerate(asked.sequences, 1):
        found[sequence.prompt_id] = one = distribution(model, sequence, k=asked.k)
        if not torch.tensor(one.actual).isfinite().all():
            raise InputError(f"prompt {sequence.prompt_id}: the model computes numbers that are not finite")
        heard(number, len(asked.sequences))
    return [Pair(asked.baseline[name], found[name]) for name in asked.drawn]


def compared(pairs: Sequence[Pair]) -> Divergence:
    """Divergence over the continuation positions of draws. Raises ValueError where there is none."""
    return measure(pairs, scope=Scope.CONTINUATION, evidence=Evidence.DRAW)
