"""Signs of broken numbers in generated text: replacement characters, foreign scripts; and how a text is quoted."""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

CUT_CHARACTER = 3
"""A limit may cut a character of up to four bytes, whose up to three first bytes each become U+FFFD."""

QUOTE = 80
"""Characters of an answer that a message quotes."""

SAME_SCRIPT = {"HIRAGANA": "CJK", "KATAKANA": "CJK", "BOPOMOFO": "CJK"}
"""Scripts that one text mixes anyway; Japanese is written in three."""


def replacements(text: str) -> tuple[int, float]:
    """Replacement characters within a text and their share of its visible characters; not those of a cut character."""
    visible = "".join(text.split())
    tail = len(visible) - len(visible.rstrip(REPLACEMENT))
    if tail <= CUT_CHARACTER:
        visible = visible[: len(visible) - tail]
    count = visible.count(REPLACEMENT)
    return count, count / len(visible) if visible else 0.0


def scripts(text: str) -> Counter[str]:
    """How many letters of each script a text holds, by the first word of their Unicode names, as `LATIN`.

    Compatibility forms count as the letters they stand for (NFKC), so styled and full-width letters are no script of
    their own. Digits, marks, symbols and letters without a name count for none.
    """
    found = Counter(map(_script, unicodedata.normalize("NFKC", text)))
    found.pop("", None)
    return found


@lru_cache(maxsize=8192)
def _script(letter: str) -> str:
    if unicodedata.category(letter) not in ("Lu", "Ll", "Lt", "Lo"):
        return ""
    word = unicodedata.name(letter, "").partition(" ")[0]
    return SAME_SCRIPT.get(word, word)


def foreign(text: str, known: Iterable[str]) -> tuple[float, tuple[str, ...]]:
    """Share of a text's letters in scripts that no known text uses, and those scripts, the commonest first."""
    used = set().union(*(scripts(one) for one in known))
    found = scripts(text)
    others = Counter({script: count for script, count in found.items() if script not in used})
    return (others.total() / found.total() if found else 0.0), tuple(script for script, _ in others.most_common())


def quote(text: str) -> str:
    """A text for a message: one line, at most QUOTE characters, each of them printable."""
    line = " ".join(text.split())
    line = "".join(one if one.isprintable() else "·" for one in line[: QUOTE + 1])
    return f"'{line}'" if len(line) <= QUOTE else f"'{line[: QUOTE - 1]}…'"
