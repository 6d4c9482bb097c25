"""Every word of the pages, in English and Chinese. Each part of the pages has its own file here.

What the daemon says of single nodes (reasons, objections, details) is written in English where it arises. It is shown
as it stands in both languages, below what its code says in the language of the page.
"""

from collections.abc import Mapping, Sequence
from types import ModuleType

from quantwatch.pages.incident import Phrase
from quantwatch.pages.manner import Language
from quantwatch.pages.words import actions, decision, evidence, fleet, frame, node, report, sets, states, tokens

PARTS = (frame, states, fleet, node, sets, actions, evidence, tokens, decision, report)
"""The files of words. A page that has words of its own adds its file here."""

ENGLISH, CHINESE = 0, 1
_COLUMN: dict[Language, int] = {"en": ENGLISH, "zh": CHINESE}


def merged(parts: Sequence[ModuleType]) -> dict[str, tuple[str, str]]:
    """The words of several files. Raises ValueError for a key that two of them have."""
    words: dict[str, tuple[str, str]] = {}
    for part in parts:
        twice = words.keys() & part.WORDS.keys()
        if twice:
            raise ValueError(f"{part.__name__} says again: {', '.join(sorted(twice))}")
        words |= part.WORDS
    return words


WORDS: Mapping[str, tuple[str, str]] = merged(PARTS)
"""By key: English, Chinese. Values stand in braces, as str.format takes them."""


def said(key: str, language: Language, **values: object) -> str:
    """A sentence in a language. Raises KeyError for a key or a value that is missing."""
    return WORDS[key][_COLUMN[language]].format(**values)


def term(begin: str, code: str, language: Language) -> str:
    """The word for a code; the code itself where there is none, as of a newer version."""
    return said(begin + code, language) if begin + code in WORDS else code


def phrased(one: Phrase, language: Language) -> str:
    """A phrase in a language, without its detail."""
    terms = {name: term(begin, code, language) for name, (begin, code) in one.terms.items()}
    return said(one.key, language, **one.values, **terms)
