"""Which node needs a look first, and what is worst about it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from quantwatch.flow.board import SetBoard, TargetBoard
from quantwatch.flow.state import Human, Routing
from quantwatch.flow.verdict import BREACHES, CANNOT_TELL, Metric, Quality, worst

HIGHER_IS_BETTER = frozenset({Metric.TOP1_AGREEMENT})
STATES = ("attention", "bad", "away", "spoken", "unknown", "warn", "ok")
"""What a list of nodes can be narrowed to; see _FITS."""


@dataclass(frozen=True, slots=True)
class Against:
    """A number of a node held against its limit. level: of the limit. times: how far over it, where that says much."""

    metric: Metric
    value: float
    limit: float
    level: str
    part: str | None = None
    times: float | None = None


def serving(target: TargetBoard) -> bool:
    """Whether it may get traffic: an order that is not settled yet has taken nothing away."""
    return target.state.routing is not Routing.OUT


def bad(target: TargetBoard) -> bool:
    """Whether it is known to answer badly."""
    return target.quality in BREACHES


def unverified(target: TargetBoard) -> bool:
    """Whether it ought to be out and the gateway has not shown it."""
    return target.state.routing is Routing.CONTRADICTED or target.verified is False


def urgency(target: TargetBoard) -> int:
    """0 for what has to be seen first, and more for what can wait."""
    return next((place for place, holds in enumerate(_LADDER) if holds(target)), len(_LADDER))


_LADDER: tuple[Callable[[TargetBoard], bool], ...] = (
    lambda target: bad(target) and serving(target),
    unverified,
    bad,
    lambda target: target.state.routing is not Routing.IN,
    lambda target: target.quality in CANNOT_TELL,
    lambda target: target.state.human is not Human.NONE,
    lambda target: target.quality is Quality.WARN,
)

CALM = 6
"""From this urgency on a node needs no look."""


def ranked(targets: Iterable[TargetBoard]) -> list[TargetBoard]:
    """The worst first; equals by name."""
    return sorted(targets, key=lambda one: (urgency(one), -_excess(one), one.state.target))


def fits(target: TargetBoard, state: str) -> bool:
    """Whether a node is in one of STATES; any other word holds for every node."""
    holds = _FITS.get(state)
    return holds is None or holds(target)


_FITS: dict[str, Callable[[TargetBoard], bool]] = {
    "attention": lambda target: urgency(target) < CALM,
    "bad": bad,
    "away": lambda target: target.state.routing is not Routing.IN,
    "spoken": lambda target: target.state.human is not Human.NONE,
    "unknown": lambda target: target.quality in CANNOT_TELL,
    "warn": lambda target: target.quality is Quality.WARN,
    "ok": lambda target: target.quality is Quality.OK,
}


def lead(target: TargetBoard) -> SetBoard | None:
    """The task set that a node's quality comes from; None where no result counts."""
    counting = [one for one in target.sets if one.fresh]
    quality = worst([one.state.quality for one in counting])
    leading = [one for one in counting if one.state.quality is quality]
    return max(leading, key=lambda one: _times(worst_finding(one)), default=None)


def worst_finding(one: SetBoard) -> Against | None:
    """The number of a task set that is furthest over the limit it has crossed; None where it has crossed none."""
    found = [_against(finding) for finding in one.numbers.get("findings") or ()]
    crossed = [one for one in found if one is not None]
    return max(crossed, key=lambda one: (one.level == "critical", _times(one)), default=None)


def _against(finding: dict[str, Any]) -> Against | None:
    """A finding that crossed a limit, in the form of flow/as_json."""
    value, level = finding.get("value"), "critical" if finding.get("verdict") in BREACHES else "warn"
    limit = finding.get(level)
    if value is None or limit is None or finding.get("verdict") not in (*BREACHES, Quality.WARN):
        return None
    metric = Metric(finding["metric"])
    times = value / limit if metric in (Metric.KL_MEAN, Metric.KL_P99) and limit > 0 else None
    return Against(metric, value, limit, level, finding.get("part"), times)


def _times(one: Against | None) -> float:
    return one.times if one is not None and one.times is not None else 0.0


def _excess(target: TargetBoard) -> float:
    leading = lead(target) if bad(target) else None
    return 0.0 if leading is None else _times(worst_finding(leading))
