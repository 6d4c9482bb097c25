"""What the templates of a run, a decision and a report find besides the words: an incident, ready to be shown."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from quantwatch.act.notice_text import PAGE
from quantwatch.flow.decision import DONE, Action, Origin, Result, Ruling
from quantwatch.flow.load import Load
from quantwatch.flow.verdict import BREACHES, Quality
from quantwatch.log import without_secrets
from quantwatch.pages.advice_zh import in_language
from quantwatch.pages.course import Chart, chart_of
from quantwatch.pages.incident import Event, Incident, Kind, Period, Tone, tone_of
from quantwatch.pages.manner import Language
from quantwatch.pages.shown import NOTHING, figure, number
from quantwatch.pages.tokens import STEPS, TokenView
from quantwatch.pages.words import phrased, said, term
from quantwatch.record.decisions import DecisionLine, StoredDecision
from quantwatch.record.differences import Difference
from quantwatch.record.documents import INTERVALS

MOST_CHOICES = 8
"""Tokens that the lists of one position show."""

KNOWN_PARTS = {
    "depth": ("early", "middle", "late"),
    "length": ("short", "medium", "long"),
    "protocol": ("yes", "no"),
}
"""Values of slices that have words of their own."""

TONES = {Tone.GOOD: "good", Tone.WARN: "warn", Tone.BAD: "bad", Tone.PLAIN: "dim"}
RUNBOOK = PAGE
LEAST_SHARE = 0.001
"""A probability under this is told as less."""


def shared(language: Language, *, linked: bool, runbook: str | None) -> dict[str, Any]:
    """What the macros need whatever is shown. linked: other pages can be reached. runbook: where it lies."""
    return {
        "linked": linked,
        "runbook": runbook or RUNBOOK,
        "steps": STEPS,
        "most_choices": MOST_CHOICES,
        "known_parts": KNOWN_PARTS,
        "limited_metrics": frozenset(INTERVALS),
        "chance": chance,
        "moved": moved,
        "factor_value": factor_value,
        "identity_value": identity_value,
        "masked": masked,
        "spoken": partial(in_language, language),
        "phrased": lambda one: phrased(one, language),
        "term": lambda begin, code: term(begin, code, language),
        **of_decisions(language),
    }


def of_decisions(language: Language) -> dict[str, Any]:
    """What the macros need that tell of decisions."""
    return {"became": partial(became, language), "grounds_of": partial(grounds, language)}


def incident_values(one: Incident, language: Language, *, tokens: TokenView | None = None) -> dict[str, Any]:
    """The values of an incident. tokens: as many of them as are shown; to make the view takes long."""
    run = one.run
    return {
        "incident": one,
        "run": run,
        "decision": one.decision,
        "report": {} if run is None else run.numbers,
        "numbers": [each for each in one.numbers if each.value is not None or each.verdict is not None],
        "tokens": tokens,
        "chart": chart(one),
        "tone": _tone(one),
        "heading": heading(one, language),
        "since": None if one.sound is None else one.sound.started,
        "loads": () if run is None else tuple(_loads(run.loads, language)),
        "baseline": None if run is None else run.document.get("baseline"),
        "own_exchanges": [each for each in one.exchanges if each.decision == one.subject],
        "audit": audit(one),
    }


def period_values(one: Period, language: Language) -> dict[str, Any]:
    """The values of a period."""
    key = "period.heading.bad" if one.breached else "period.heading.good"
    return {
        "period": one,
        "tone": "bad" if one.breached else "good",
        "heading": said(key, language, n=one.breached, targets=one.targets),
        "runs": sum(each.total for each in one.pairs),
        "orders": one.orders,
    }


def chart(one: Incident) -> Chart | None:
    """The course of the pair's mean KL, with what was done about the target."""
    if one.run is None:
        return None
    subject = next((each for each in one.course if each.id == one.run.id), None)
    return chart_of(one.course, subject, _actions(one.timeline))


def _actions(timeline: Sequence[Event]) -> list[Event]:
    """What was done, once each: how its order ended, or the decision while that is open."""
    ended = {each.decision for each in timeline if each.kind is Kind.OUTCOME}
    return [each for each in timeline if each.kind is Kind.OUTCOME or (each.acted and each.decision not in ended)]


def audit(one: Incident) -> tuple[Event, ...]:
    """The events that bear the id of the decision that is shown."""
    return tuple(each for each in one.timeline if each.decision == one.subject)


def heading(one: Incident, language: Language) -> str:
    """What it is about, in a few words."""
    if one.decision is not None and one.decision.id == one.subject:
        return decision_heading(one.decision, language)
    assert one.run is not None and one.quality is not None  # noqa: S101, PT018, a subject is a run or a decision
    words = {"task_set": one.task_set, "target": one.target, "quality": said(f"quality.{one.quality}", language)}
    return said("run.heading", language, **words)


def decision_heading(one: StoredDecision, language: Language) -> str:
    """What was wanted and what became of it."""
    action = said(f"action.{one.action}", language).capitalize()
    return said("decision.heading", language, action=action, target=one.target, ruling=became(language, one))


def became(language: Language, one: StoredDecision | DecisionLine) -> str:
    """What became of a decision; of an order, what the gateway answered: without an answer nothing is carried out."""
    if one.ruling is not Ruling.ACT or not one.sent:
        return said(f"ruling.{one.ruling}", language)
    if one.result is None:
        return said("became.open", language)
    result = said(f"result.{one.result}", language)
    return said("became.done", language, result=result) if one.result in DONE else result


def grounds(language: Language, one: StoredDecision | DecisionLine) -> str:
    """Why a decision was made, by its codes: for languages that its own sentence is not in."""
    if one.lane is None or one.origin is Origin.PERSON:
        return said(f"origin.{one.origin}", language)
    found = [each for each in one.findings if each.get("verdict") in BREACHES]
    return "；".join([said(f"lane.{one.lane}", language), *(_breach(language, each) for each in found)])


def _breach(language: Language, one: Mapping[str, Any]) -> str:
    """One number of the findings. Older versions have written no parts, and newer ones may know other metrics."""
    metric, part = one["metric"], one.get("part")
    told = f"{term('number.', metric, language)}{f' ({part})' if part else ''} {figure(metric, one.get('value'))}"
    critical = one.get("critical")
    if critical is None:
        return told
    return f"{told}（{said('evidence.critical_at', language, limit=figure(metric, critical))}）"


def _tone(one: Incident) -> str:
    if one.quality is None or (one.decision is not None and one.decision.id == one.subject):
        return "warn" if one.decision is None else _decision_tone(one.decision, one.quality)
    return TONES[tone_of(one.quality)]


def _decision_tone(one: StoredDecision, quality: Quality | None) -> str:
    """Of what was done and how it ended; an order that is open or withdrawn is no success."""
    result = one.result
    if one.ruling is not Ruling.ACT or result is Result.WITHDRAWN:
        return "warn"
    if result is not None and result not in DONE:
        return "bad"
    if one.action is Action.RELEASE:
        return "warn" if result is None else "good"
    return "bad" if quality in BREACHES else "warn"


def _loads(loads: tuple[Load | None, Load | None], language: Language) -> list[str]:
    told = zip(("load.before", "load.after"), loads, strict=True)
    return [said(key, language, **_load_words(load)) for key, load in told if load is not None]


def _load_words(load: Load) -> dict[str, str]:
    running = NOTHING if load.running is None else f"{load.running:g}"
    return {"running": running, "waiting": f"{load.waiting:g}", "kv": f"{load.kv_usage:.0%}"}


def chance(value: float | None, at_most: float) -> str:
    """A probability for people: `97.2 %`; what a server did not list is told by what it can have at most."""
    if value is None:
        return f"≤ {_percent(at_most)}" if at_most < 1 else NOTHING
    return f"< {LEAST_SHARE:.1%}".replace("%", " %") if 0 < value < LEAST_SHARE else _percent(value)


def _percent(value: float) -> str:
    return f"{value * 100:.1f} %" if value >= LEAST_SHARE or value == 0 else f"{value * 100:.1g} %"


def moved(value: float) -> str:
    """How much probability a token gained or lost, in percentage points."""
    return f"{value * 100:+.1f}".replace("-", "−") if abs(value) >= LEAST_SHARE / 2 else "±0"


def masked(text: str | None) -> str:
    """Text from outside without the secrets that an address can hold."""
    return NOTHING if text is None else without_secrets(text)


def factor_value(one: Difference, value: Any) -> str:
    """A value of a difference; a process start as a moment."""
    return identity_value(one.factor, value)


def identity_value(name: str, value: Any) -> str:
    """A field of an identity for people."""
    if value is None:
        return NOTHING
    if name == "started" and isinstance(value, int | float):
        return f"{datetime.fromtimestamp(value, UTC):%Y-%m-%d %H:%M:%S} UTC"
    return masked(str(value)) if isinstance(value, str) else number(value) if isinstance(value, float) else str(value)
