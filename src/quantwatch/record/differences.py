"""What changed between two runs, one factor a line."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

IDENTITY = ("url", "model", "root", "max_model_len", "version", "started", "tokenizer")
ASKED = ("pool", "mode", "k", "seed", "drawn", "prompts", "estimator", "evidence")
NUMBERS = (
    "kl_mean",
    "kl_median",
    "kl_p99",
    "kl_max",
    "perplexity_baseline",
    "perplexity_node",
    "perplexity_ratio",
    "top1_agreement",
    "tail_mass",
    "tail_mass_node",
    "coverage",
    "positions",
    "uninformative_positions",
    "corrupted_positions",
    "probe_seconds_baseline",
    "probe_seconds_node",
)
LABELS = {
    "max_model_len": "longest context",
    "started": "process start",
    "tokenizer": "tokenizer digest",
    "root": "model root",
    "pool": "prompts digest",
    "drawn": "draws planned",
    "prompts": "draws answered",
    "limits": "limits digest",
}
OF_THE_DRAW = frozenset({"seed", "prompts"})
"""Factors that differ between any two runs, and tell nothing of the servers."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One factor: where it belongs, its name, and both values; change: after - before, for numbers."""

    place: str
    factor: str
    before: Any
    after: Any

    @property
    def label(self) -> str:
        """For people."""
        return LABELS.get(self.factor, self.factor.replace("_", " "))

    @property
    def change(self) -> float | None:
        """After minus before, None where either is no number."""
        values = (self.before, self.after)
        if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
            return None
        return float(self.after - self.before)


def factors(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """What could explain other numbers, where it differs. before, after: documents of two runs."""
    return [one for one in _factors(before, after) if one.before != one.after]


def _factors(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    for name in ("target", "task_set"):
        yield Difference("run", name, before.get(name), after.get(name))
    for place in ("baseline", "node"):
        one, other = before.get(place) or {}, after.get(place) or {}
        yield from (Difference(place, name, one.get(name), other.get(name)) for name in IDENTITY)
    one, other = before.get("report") or {}, after.get("report") or {}
    yield from (Difference("measurement", name, one.get(name), other.get(name)) for name in ASKED)
    yield Difference("limits", "limits", before.get("limits"), after.get("limits"))


def numbers(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """Every number that either run has, changed or not."""
    one, other = before.get("report") or {}, after.get("report") or {}
    found = (Difference("numbers", name, one.get(name), other.get(name)) for name in NUMBERS)
    return [number for number in found if (number.before, number.after) != (None, None)]


def explained(found: list[Difference]) -> bool:
    """Whether anything but the draw differs."""
    return any(one.factor not in OF_THE_DRAW for one in found)
