"""Which causes fit an incident. Each is a guess that its numbers support, and the sentence says by which.

A part of a run counts as worse than the rest when its mean KL is at least FACTOR times that of its siblings and the
number itself would warn somebody: with tiny numbers a factor is chance.
"""

from collections.abc import Callable, Iterator

from quantwatch.flow.canary import PROOFS, STRUCTURE
from quantwatch.flow.decision import DONE, Action, Brake, Ruling
from quantwatch.flow.load import Load
from quantwatch.flow.verdict import BREACHES, CANNOT_TELL, Quality
from quantwatch.pages.advice import Advice, Cause, advice
from quantwatch.pages.incident import Incident, Part
from quantwatch.record.differences import OF_THE_DRAW

FACTOR = 3.0
"""How many times worse a part must be than its best sibling."""

LEAST_KL = 0.01
"""Mean KL in nats under which no part is called bad."""

FULL_CACHE = 0.9
"""Share of the KV cache from which a server counts as busy."""

EVENLY = 2.0
"""The worst part has at most so many times the KL of the whole where the whole distribution moved."""

MODE_ALONE = frozenset({Brake.DRY_RUN.value, Brake.AWAITING_APPROVAL.value})
"""Brakes that are the configuration's own will, and nothing to mend."""


def advise(incident: Incident) -> tuple[Advice, ...]:
    """What to try next, the most telling cause first."""
    found = [one for look in _LOOKS for one in look(incident)]
    order = list(Cause)
    return tuple(sorted(found, key=lambda one: order.index(one.cause)))


def _baseline(incident: Incident) -> Iterator[Advice]:
    if incident.yardstick.doubts:
        yield advice(Cause.BASELINE, incident.yardstick.doubts[0])


def _corrupted(incident: Incident) -> Iterator[Advice]:
    if incident.run is None:
        return
    report = incident.run.numbers
    broken = report.get("corrupted_positions") or 0
    signs = [one for one in (report.get("canary") or {}).get("signs", ()) if one.get("sign") in PROOFS]
    if broken:
        yield advice(Cause.BROKEN_NUMBERS, f"{broken} positions hold no usable numbers: {incident.run.reason}")
    elif incident.run.quality is Quality.CORRUPTED and not signs:
        yield advice(Cause.BROKEN_NUMBERS, incident.run.reason)
    if signs:
        yield advice(Cause.BROKEN_TEXT, str(signs[0].get("said")))


def _structure(incident: Incident) -> Iterator[Advice]:
    report = {} if incident.run is None else incident.run.numbers
    signs = [one for one in (report.get("canary") or {}).get("signs", ()) if one.get("sign") in STRUCTURE]
    worse = _worse(incident, "protocol", ("yes",))
    if signs:
        yield advice(Cause.STRUCTURE, str(signs[0].get("said")))
    elif worse is not None:
        yield advice(Cause.STRUCTURE, worse)


def _changed(incident: Incident) -> Iterator[Advice]:
    """What differs since the last good run, said by what it is."""
    since = "" if incident.sound is None else f" since {incident.sound.id}"
    factors = [one for one in incident.changed if one.factor not in OF_THE_DRAW]
    node = {one.factor: one for one in factors if one.place == "node"}
    for cause, names in ((Cause.TOKENIZER, ("tokenizer",)), (Cause.VERSION, ("version",)), (Cause.MODEL, _MODEL)):
        told = [f"{one.label}: {one.before} -> {one.after}" for name in names if (one := node.get(name)) is not None]
        if told:
            yield advice(cause, f"{'; '.join(told)}{since}")
    if "started" in node and not {*node} & {"version", "tokenizer", *_MODEL}:
        yield advice(Cause.RESTART, f"another process of the node answers{since}")
    otherwise = [one for one in factors if one.place in _ASKED and one.factor != "started"]
    if otherwise:
        said = "; ".join(f"{one.place} {one.label}: {one.before} -> {one.after}" for one in otherwise[:3])
        yield advice(Cause.YARDSTICK_CHANGED, f"{said}{since}")


_MODEL = ("model", "root", "max_model_len")
_ASKED = ("baseline", "measurement", "limits")


def _parts(incident: Incident) -> Iterator[Advice]:
    for cause, dimension, bad in (
        (Cause.LONG_PROMPTS, "length", ("long",)),
        (Cause.LATE_TOKENS, "depth", ("late",)),
        (Cause.ONE_RANK, "rank", None),
        (Cause.ONE_LANGUAGE, "language", None),
    ):
        said = _worse(incident, dimension, bad)
        if said is not None:
            yield advice(cause, said)


def _worse(incident: Incident, dimension: str, bad: tuple[str, ...] | None) -> str | None:
    """The sentence that says which part is worse than its siblings; bad: the values that may be meant, None for any."""
    parts = [one for one in incident.parts if one.dimension == dimension and one.kl is not None]
    if len(parts) < 2:
        return None
    worst, others = _split(parts)
    if (bad is not None and worst.value not in bad) or (worst.kl or 0.0) < LEAST_KL:
        return None
    best = min(others, key=lambda one: one.kl or 0.0)
    if (worst.kl or 0.0) < FACTOR * (best.kl or 0.0):
        return None
    return f"mean KL of {worst.name} is {worst.kl:.4g}, of {best.name} {best.kl:.4g}"


def _split(parts: list[Part]) -> tuple[Part, list[Part]]:
    worst = max(parts, key=lambda one: one.kl or 0.0)
    return worst, [one for one in parts if one is not worst]


def _load(incident: Incident) -> Iterator[Advice]:
    if incident.run is None or incident.run.quality not in BREACHES:
        return
    busy = [load for load in incident.run.loads if load is not None and _is_busy(load)]
    if busy:
        load = max(busy, key=lambda one: (one.waiting, one.kv_usage))
        yield advice(Cause.UNDER_LOAD, f"{load.waiting:g} requests waited, KV cache {load.kv_usage:.0%} full")


def _is_busy(load: Load) -> bool:
    return load.waiting > 0 or load.kv_usage >= FULL_CACHE


def _everywhere(incident: Incident) -> Iterator[Advice]:
    run = incident.run
    if run is None or run.quality is not Quality.DEGRADED:
        return
    if incident.sound is None:
        yield advice(Cause.NEVER_SOUND, f"{run.target} has no good run of {run.task_set} on record")
    elif not [one for one in incident.changed if one.factor not in OF_THE_DRAW]:
        yield advice(Cause.NOTHING_CHANGED, f"nothing but the draw differs since {incident.sound.id}")
    times = [one.times for one in incident.parts if one.times is not None]
    if times and max(times) <= EVENLY and incident.sound is not None:
        yield advice(Cause.OUTLIERS, f"the worst part has {max(times):.2g} times the mean KL of the whole")


def _cannot_tell(incident: Incident) -> Iterator[Advice]:
    if incident.run is not None and incident.run.quality in CANNOT_TELL:
        anchor = f"quality-{incident.run.quality}"
        yield advice(Cause.CANNOT_TELL, incident.run.reason, runbook=anchor)


def _gateway(incident: Incident) -> Iterator[Advice]:
    """Orders that came to nothing, and what held an action back that was not carried out later."""
    acted = {one.action for one in incident.decisions if one.ruling is Ruling.ACT}
    for one in incident.decisions:
        failed, held = _GATEWAY[one.action]
        outcome = None if one.intent is None else one.intent.outcome
        if outcome is not None and outcome.result not in DONE:
            yield advice(failed, f"{one.id}: {outcome.detail}", runbook=f"result-{outcome.result}")
        if one.ruling is Ruling.SUPPRESSED and one.action not in acted:
            for objection in one.objections:
                if objection["brake"] not in MODE_ALONE:
                    yield advice(held, objection["reason"], runbook=f"brake-{objection['brake']}")


_GATEWAY = {
    Action.ISOLATE: (Cause.ORDER, Cause.HELD_BACK),
    Action.RELEASE: (Cause.RELEASE_ORDER, Cause.RELEASE_HELD_BACK),
}
"""What an order that came to nothing means, and a decision that was held back."""

_LOOKS: tuple[Callable[[Incident], Iterator[Advice]], ...] = (
    *(_baseline, _corrupted, _changed, _parts, _structure, _load, _everywhere, _cannot_tell, _gateway),
)
