"""Do two servers cut texts into the same ids? Held against each other by counts and digests, text by text."""

import hashlib
import json
from collections.abc import Mapping, Sequence

AWKWARD: Mapping[str, str] = {
    "accents": "Crème brûlée, naïve façade, Ærøskøbing, Straße",
    "Chinese": "请写出 C++ 实现：∫₀¹ x² dx = 1/3，谢谢！",
    "Japanese and Korean": "東京タワーは333メートル。カタカナとひらがな、한국어 띄어쓰기",
    "emoji": "👩‍🔬 measured 3.14159e-07 mol 🇩🇰 at 23:59:60 👨‍👩‍👧‍👦🏽",
    "spaces": "  two  leading spaces,\ttabs\n\n\n  and blank lines  ",
    "digits": "1234567890 12,345.678 0x7fffffff -0.0 007 ٣٤٥ ①②",
    "special tokens": "<|im_start|>user <s>[INST] </s> {{template}} <|endoftext|><think></think>",
    "other scripts": "ᠮᠣᠩᠭᠣᠯ ไทย עברית العربية हिन्दी",
    "code": "def f(x):\n\treturn {'a': [1, 2, *x]}  # \\u2028 ok;\r\n",
    "odd characters": "\ufeffnon\u00a0breaking\u200bzero\u202e width e\u0301 é ﬁ Å \u2028",
    "a long text": "The same sentence over and over shows whether a tokenizer cuts long texts. " * 160,
}
"""Texts on which tokenizers differ first; the last is over 2,048 tokens, where a saved truncation setting bites."""


def piece(ids: Sequence[int]) -> str:
    """What stands for the ids of one text: how many they are, and eight hex digits that change with any of them."""
    return f"{len(ids)}:{hashlib.sha256(json.dumps(list(ids)).encode()).hexdigest()[:8]}"


def fingerprint(texts: Sequence[Sequence[int]]) -> str:
    """What stands for the ids of all awkward texts, in their order."""
    return " ".join(map(piece, texts))


def differs_at(one: str, other: str, index: int) -> bool:
    """Whether two fingerprints, or a fingerprint and a single piece of that text, differ at a text."""
    return one.split()[index] != other


def first_difference(baseline: str, node: str) -> str:
    """Where two unlike fingerprints differ first, in words."""
    ours, theirs = baseline.split(), node.split()
    if len(ours) != len(AWKWARD) or len(theirs) != len(AWKWARD):
        return "one fingerprint was made from other texts"
    name, mine, other = next(
        (name, mine, other) for name, mine, other in zip(AWKWARD, ours, theirs, strict=True) if mine != other
    )
    here, there = mine.partition(":")[0], other.partition(":")[0]
    counts = f"{here} ids each, and others" if here == there else f"{here} ids at the baseline, {there} at the node"
    unlike = sum(mine != other for mine, other in zip(ours, theirs, strict=True))
    return f"first on {name} ({counts}), in all on {unlike} of {len(AWKWARD)} texts"
