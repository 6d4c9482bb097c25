"""Checks that keep a pool diverse: near-duplicates, templates, filler, wrong length buckets."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import combinations

from quantwatch.flow.prompt import LengthBucket, ProbeMode, Prompt, PromptSet
from quantwatch.prompts.estimate import bucket_of, estimated_tokens

MAX_SHARED = 0.4
"""Largest share of the smaller prompt's 5-grams that two prompts of a set may have in common."""

MAX_PATTERN = 3
"""How many prompts of a set may open or close with the same words."""

_WORD = re.compile(r"[\u3400-\u9fff\uf900-\ufaff\u3040-\u30ff\uac00-\ud7af]|[A-Za-z_]+(?:'[a-z]+)?|\d+|[^\s\w]")


def words(text: str) -> list[str]:
    """Lower-case words, numbers, single CJK characters and punctuation marks."""
    return [word.lower() for word in _WORD.findall(text)]


def grams(text: str, n: int) -> list[tuple[str, ...]]:
    """All runs of n words, in order."""
    ws = words(text)
    return [tuple(ws[i : i + n]) for i in range(len(ws) - n + 1)]


def faults(pool: PromptSet) -> list[str]:
    """Everything about a pool that would make it a worse instrument; empty when it is fine."""
    return [
        *_near_duplicates(pool),
        *_patterns(pool, "open", lambda ws: tuple(ws[:3])),
        *_patterns(pool, "close", lambda ws: tuple(ws[-4:])),
        *(fault for prompt in pool.prompts for fault in _single(prompt)),
        *_too_long_to_score(pool),
    ]


def _near_duplicates(pool: PromptSet) -> Iterator[str]:
    sets = {prompt.id: set(grams(prompt.content, 5)) for prompt in pool.prompts}
    for a, b in combinations(pool.prompts, 2):
        smaller = min(len(sets[a.id]), len(sets[b.id]))
        if a.content == b.content:
            yield f"{a.id} and {b.id} have the same text"
        elif smaller and len(sets[a.id] & sets[b.id]) > MAX_SHARED * smaller:
            yield f"{a.id} and {b.id} share {len(sets[a.id] & sets[b.id]) / smaller:.0%} of their 5-grams"


def _patterns(pool: PromptSet, verb: str, part: Callable[[list[str]], tuple[str, ...]]) -> Iterator[str]:
    groups = defaultdict(list)
    for prompt in pool.prompts:
        groups[part(["0" if word.isdigit() else word for word in words(prompt.question)])].append(prompt.id)
    for pattern, ids in groups.items():
        if len(ids) > MAX_PATTERN:
            yield f"{len(ids)} prompts {verb} with {' '.join(pattern)!r}: {', '.join(ids)}"


def _too_long_to_score(pool: PromptSet) -> Iterator[str]:
    """Scoring a long prompt in one request is over the default probe budget, so it would always be skipped."""
    if pool.mode is ProbeMode.PROMPT_SCORING:
        for prompt in pool.prompts:
            if prompt.length is LengthBucket.LONG:
                yield f"{prompt.id}: long prompts need a set with mode: one_token"


def _single(prompt: Prompt) -> Iterator[str]:
    bucket = bucket_of(prompt.content)
    if prompt.length is not bucket:
        tokens = estimated_tokens(prompt.content)
        yield f"{prompt.id}: length is {prompt.length}, but about {tokens} tokens are {bucket}"
    if bucket is LengthBucket.LONG and max(Counter(grams(prompt.content, 50)).values(), default=0) > 1:
        yield f"{prompt.id}: a run of 50 words stands twice"
