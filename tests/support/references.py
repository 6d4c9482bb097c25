"""References that tests put into files."""

import math
from array import array
from dataclasses import replace
from typing import Any

from quantwatch.flow.distribution import NO_ID, Distribution
from quantwatch.flow.prompt import ProbeMode
from quantwatch.record.reference_file import FreeAnswer, Reference
from quantwatch.record.references import StoredAnswer
from support.stored import BASELINE, at

MODES = (ProbeMode.PROMPT_SCORING, ProbeMode.ONE_TOKEN)


def stored_answer(prompt: str, mode: ProbeMode, *, k: int = 3, offset: int = 0) -> StoredAnswer:
    """An answer over a sequence of two prompt tokens and four of a continuation; every second own token is not listed.

    In prompt scoring it is listed beyond rank k then, in the other modes not at all.
    """
    sequence = (5, 6, *range(10 + offset, 14 + offset))
    scoring = mode is ProbeMode.PROMPT_SCORING
    positions = list(range(1, 6)) if scoring else [3, 5]
    ids: list[int] = []
    logprobs: list[float] = []
    actual: list[float] = []
    for row, position in enumerate(positions):
        own = sequence[position]
        listed = row % 2 == 0
        ids += [own if listed else 100, *range(101, 100 + k), own if scoring and not listed else NO_ID]
        logprobs += [-0.5, *(-1.5 - i for i in range(k - 1)), -9.25 if scoring and not listed else 0.0]
        actual.append(-0.5 if listed else -9.25 if scoring else math.nan)
    distribution = Distribution(
        prompt_id=prompt,
        mode=mode,
        k=k,
        prompt_length=2,
        positions=array("q", positions),
        ids=array("q", ids),
        logprobs=array("d", logprobs),
        actual=array("d", actual),
        floor=array("d", [-1.5 - (k - 2)] * len(positions)),
    )
    return StoredAnswer(prompt, k, mode, sequence, 2, at(0), distribution)


def reference(*prompts: str, k: int = 3, **changes: Any) -> Reference:
    """A reference of two prompts in both modes."""
    names = prompts or ("math-01", "math-02")
    answers = {mode: {name: stored_answer(name, mode, k=k, offset=i) for i, name in enumerate(names)} for mode in MODES}
    made = Reference(
        name="math",
        baseline=BASELINE,
        pool="d" * 64,
        k=k,
        asked_k=k,
        modes=MODES,
        continuation_tokens=4,
        positions=2,
        made=at(0),
        prompts=names,
        answers=answers,
        left_out={mode: {} for mode in MODES},
        free={name: (FreeAnswer(32, (10, 11), "ab\ufffd", "stop"),) for name in names},
    )
    return replace(made, **changes)
