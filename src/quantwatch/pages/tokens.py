"""The golden tokens of a run as people see them: how far apart the servers are at each, and what each listed there."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from quantwatch.flow.tokens import Candidate, PromptSeen, TokenSeen, TokensSeen

STEPS = (0.01, 0.05, 0.2, 1.0)
"""Where a colour ends and the next begins, in nats: five steps. They are the same on every page, so that two runs can
be compared at a glance; the limits of a task set are about means, not about single tokens."""

BROKEN = "broken"
"""In place of a step where the node's numbers are no numbers."""

WORST = 8
"""Positions that a list of the worst holds."""

_BREAK = re.compile(r"\r\n?|\n")
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
"""Control characters and those that turn or hide text: shown by their code, so that a token looks like what it is."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A token that a server listed at a position, as both saw it.

    text: what is shown. golden: it is the token of the golden sequence. baseline, node: its probability, 0 to 1, None
    where that server's kept list lacks it. *_rank: its place there, from 1. at_most: what a server that lacks it can
    have given it. moved: node minus baseline, a missing one taken as 0.
    """

    id: int
    text: str
    golden: bool
    baseline: float | None
    node: float | None
    baseline_rank: int | None
    node_rank: int | None
    at_most: float
    moved: float


@dataclass(frozen=True, slots=True)
class Place:
    """One position. text: of the golden token, None where only its id is known. step: 0 to 4, or `broken`.

    gap: positions that were not asked between the one before and this. elsewhere_*: probability outside the kept lists.
    shifted: half the sum of all moves, the least mass that has moved between the tokens that are shown.
    """

    position: int
    id: int
    text: str | None
    kl: float | None
    step: int | str
    gap: int
    choices: tuple[Choice, ...]
    elsewhere_baseline: float
    elsewhere_node: float
    shifted: float
    mark: str | None

    def first(self, most: int) -> tuple[Choice, ...]:
        """The most probable tokens, so many at most; the golden one is always among them."""
        top = self.choices[:most]
        return top if any(one.golden for one in top) else (*top[:-1], *(one for one in self.choices if one.golden))

    @property
    def label(self) -> str:
        """The token's text, or its id."""
        return f"#{self.id}" if self.text is None else self.text


@dataclass(frozen=True, slots=True)
class Prompt:
    """One golden sequence. worst: its positions with the largest KL first, broken ones before them."""

    id: str
    mode: str
    prompt_length: int
    kl_mean: float | None
    kl_max: float | None
    places: tuple[Place, ...]
    worst: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class TokenView:
    """What is kept of a run's tokens. measured: of how many prompts. texts: whether words of any are known."""

    prompts: tuple[Prompt, ...]
    measured: int
    texts: bool


def token_view(seen: TokensSeen, *, most: int | None = None, only: int | None = None) -> TokenView:
    """The view of what a run keeps. most: how many prompts at most, the worst first.

    only: the place of the one prompt whose positions are wanted; the others come without theirs.
    """
    shown = seen.prompts if most is None else seen.prompts[:most]
    told = (one if only in (None, place) else replace(one, tokens=()) for place, one in enumerate(shown))
    return TokenView(tuple(_prompt(one, seen.texts) for one in told), seen.measured, texts=bool(seen.texts))


def step_of(kl: float | None) -> int | str:
    """The step of a KL in nats."""
    if kl is None or not math.isfinite(kl):
        return BROKEN
    return sum(kl >= edge for edge in STEPS)


def shown(text: str, *, breaks: bool = False) -> str:
    """A token's text with everything that cannot be seen made visible. breaks: a line ends where the text says so."""
    whole = _BREAK.sub("\u21b5\n" if breaks else "\u21b5", text).replace("\t", "\u21e5")
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", whole)


def _prompt(one: PromptSeen, texts: Mapping[int, str]) -> Prompt:
    places = tuple(_places(one, texts))
    kl_mean, kl_max = (value if math.isfinite(value) else None for value in (one.kl_mean, one.kl_max))
    worst = sorted(places, key=lambda place: (place.step != BROKEN, -(place.kl or 0.0)))
    return Prompt(one.prompt_id, one.mode.value, one.prompt_length, kl_mean, kl_max, places, tuple(worst[:WORST]))


def _places(one: PromptSeen, texts: Mapping[int, str]) -> Iterator[Place]:
    expected = None
    for token in one.tokens:
        gap = 0 if expected is None else max(token.position - expected, 0)
        expected = token.position + 1
        yield _place(token, texts, gap)


def _place(token: TokenSeen, texts: Mapping[int, str], gap: int) -> Place:
    choices = tuple(_choices(token, texts))
    text = texts.get(token.id)
    return Place(
        position=token.position,
        id=token.id,
        text=None if text is None else shown(text, breaks=True),
        kl=token.kl if token.kl is not None and math.isfinite(token.kl) else None,
        step=BROKEN if token.mark is not None else step_of(token.kl),
        gap=gap,
        choices=choices,
        elsewhere_baseline=_rest(token.baseline),
        elsewhere_node=_rest(token.node),
        shifted=sum(abs(one.moved) for one in choices) / 2,
        mark=token.mark,
    )


def _choices(token: TokenSeen, texts: Mapping[int, str]) -> Iterator[Choice]:
    """Every token of either list, and the golden one, the most probable by either server first."""
    theirs, ours = _by_id(token.baseline), _by_id(token.node)
    theirs.setdefault(token.id, (_probability(token.logprob_baseline), None))
    ours.setdefault(token.id, (_probability(token.logprob_node), None))
    floors = (_floor(token.baseline), _floor(token.node))
    nothing = (None, None)

    def weight(key: int) -> tuple[float, int]:
        return -max(theirs.get(key, nothing)[0] or 0.0, ours.get(key, nothing)[0] or 0.0), key

    for key in sorted({*theirs, *ours}, key=weight):
        (baseline, baseline_rank), (node, node_rank) = theirs.get(key, nothing), ours.get(key, nothing)
        yield Choice(
            id=key,
            text=shown(texts[key]) if key in texts else f"#{key}",
            golden=key == token.id,
            baseline=baseline,
            node=node,
            baseline_rank=baseline_rank,
            node_rank=node_rank,
            at_most=floors[0] if baseline is None else floors[1],
            moved=(node or 0.0) - (baseline or 0.0),
        )


def _by_id(listed: tuple[Candidate, ...]) -> dict[int, tuple[float | None, int | None]]:
    return {one.id: (_probability(one.logprob), rank) for rank, one in enumerate(listed, 1)}


def _probability(logprob: float | None) -> float | None:
    """0 to 1; rounding of a server can lift a logarithm a hair over 0."""
    return None if logprob is None or math.isnan(logprob) else math.exp(min(logprob, 0.0))


def _floor(listed: tuple[Candidate, ...]) -> float:
    """What a token that is not listed can have at most."""
    return min((_probability(one.logprob) or 0.0 for one in listed), default=1.0)


def _rest(listed: tuple[Candidate, ...]) -> float:
    return max(0.0, 1.0 - sum(_probability(one.logprob) or 0.0 for one in listed))
