"""A notice in words: the one place where they are chosen. Every channel shows this message in its own form."""

from collections.abc import Iterator
from dataclasses import dataclass

from quantwatch.flow.notice import Matter, Notice, Topic
from quantwatch.flow.verdict import Finding, Metric, Quality

MOST_FINDINGS = 6
"""Findings of one message, the worst first."""

PAGE = "docs/runbook.md"
"""What a link to the runbook begins with where the configuration does not say where it lies."""

RUNBOOK = {
    Topic.QUALITY: "alert-target-bad",
    Topic.ROUTING: "orders-to-the-gateway",
    Topic.CONTRADICTED: "alert-routing-contradicted",
    Topic.HELD_BACK: "alert-action-held-back",
    Topic.WOULD_HAVE: "brake-dry_run",
    Topic.STORM: "alert-storm",
    Topic.PAUSED: "alert-paused",
    Topic.ORDER: "alert-order-came-to-nothing",
    Topic.PROPOSAL: "alert-proposal-waits",
    Topic.WORD: "brake-human",
    Topic.BASELINE_MOVED: "alert-baseline-moved",
    Topic.BASELINE_UNPROVEN: "alert-baseline-unproven",
    Topic.REFERENCE: "quality-invalid",
    Topic.TEST: "notices",
}
"""The runbook's section about each topic."""

SECTIONS = {(Topic.STORM, "fleet_degraded"): "alert-fleet-degraded"}
"""Where a state of a topic has a section of its own."""

METRICS = {
    Metric.KL_MEAN: "mean KL",
    Metric.KL_P99: "KL P99",
    Metric.PERPLEXITY_RATIO: "perplexity ratio",
    Metric.TOP1_AGREEMENT: "top-1 agreement",
}
_TITLES = {
    Topic.QUALITY: ("{target}: {task_set} is {state}", "{target}: {task_set} no longer breaches"),
    Topic.ROUTING: ("{target}: {state}", "{target}: in traffic again"),
    Topic.CONTRADICTED: ("{target}: record and gateway differ", "{target}: record and gateway agree again"),
    Topic.HELD_BACK: ("{target}: its isolation is held back ({state})", "{target}: its isolation is not held back now"),
    Topic.WOULD_HAVE: ("{target}: would be isolated", "{target}: would not be isolated any more"),
    Topic.STORM: ("pool {pool}: {state}, many targets breach at once", "pool {pool}: the storm is over"),
    Topic.PAUSED: ("{scope}: quantwatch has paused itself", "{scope}: the pause is over"),
    Topic.ORDER: ("{target}: an order to the gateway came to nothing ({state})", "{target}: its order is settled"),
    Topic.PROPOSAL: ("{target}: {state} waits for approval", "{target}: nothing waits for approval any more"),
    Topic.WORD: ("{target}: a person has set it to {state}", "{target}: it is free of a person's word"),
    Topic.BASELINE_MOVED: ("baseline: it no longer gives its own answers", "baseline: it gives its own answers again"),
    Topic.BASELINE_UNPROVEN: ("baseline: not proven, so nothing acts", "baseline: proven"),
    Topic.REFERENCE: ("{task_set}: enrolled answers are {state}", "{task_set}: enrolled answers can be used again"),
    Topic.TEST: ("a test of this channel; nothing is wrong", "a test of this channel; nothing is wrong"),
}
"""Of a matter that stands, and of one that is over."""

_ROUTED = {
    "leaving": "on its way out of traffic",
    "out": "out of traffic",
    "returning": "on its way back into traffic",
}
_WORST = (Quality.CORRUPTED, Quality.DEGRADED, Quality.WARN)


@dataclass(frozen=True, slots=True)
class Message:
    """Words for people. title: one line. facts: a name and a text each. runbook: where to read on."""

    title: str
    facts: tuple[tuple[str, str], ...]
    runbook: str

    @property
    def plain(self) -> str:
        """All of it, a fact a line."""
        return "\n".join([self.title, *(f"{name}: {text}" for name, text in self.facts), f"Runbook: {self.runbook}"])


def message(notice: Notice, *, runbook_url: str | None = None) -> Message:
    """The message of a notice. runbook_url: where the runbook lies; the path in the project if left out."""
    head = notice.matter.severity.upper() if notice.matter.standing else "RESOLVED"
    topic = notice.matter.topic
    link = f"{runbook_url or PAGE}#{SECTIONS.get((topic, notice.matter.state), RUNBOOK[topic])}"
    return Message(f"[{head}] {_title(notice.matter)}", tuple(_facts(notice)), link)


def _title(matter: Matter) -> str:
    standing, over = _TITLES[matter.topic]
    scope = matter.subject.partition(" ")[2]  # of a pause; its id stands before it
    said = standing if matter.standing else over
    state = _ROUTED.get(matter.state, matter.state) if matter.topic is Topic.ROUTING else matter.state
    about = matter.target or f"pool {matter.pool}"  # a proposal may be about a whole pool
    return said.format(target=about, pool=matter.pool, task_set=matter.task_set, state=state, scope=scope)


def _facts(notice: Notice) -> Iterator[tuple[str, str]]:
    matter = notice.matter
    yield "Why", matter.reason
    if matter.evidence:
        yield "Values", "; ".join(_finding(one) for one in _worst_first(matter.evidence)[:MOST_FINDINGS])
    if matter.done:
        yield "Done", matter.done
    for name, value in (("Target", matter.target), ("Pool", matter.pool), ("Task set", matter.task_set)):
        if value is not None:
            yield name, value
    for name, value in (("Run", matter.run), ("Decision", matter.decision)):
        if value is not None:
            yield name, value
    yield "Severity", matter.severity.value
    since = f"{notice.since:%Y-%m-%d %H:%M:%S} UTC"
    yield ("Since", since) if matter.standing else ("Stood", f"{since} to {notice.at:%Y-%m-%d %H:%M:%S} UTC")


def _worst_first(findings: tuple[Finding, ...]) -> list[Finding]:
    ranks = {quality: i for i, quality in enumerate(_WORST)}
    return sorted(findings, key=lambda one: ranks.get(one.quality, len(ranks)))


def _finding(one: Finding) -> str:
    """`mean KL 0.097 (0.093 to 0.101), warns at 0.01, critical at 0.05`."""
    name = METRICS[one.metric] if one.part is None else f"{METRICS[one.metric]} of {one.part}"
    interval = "" if one.interval is None else f" ({one.interval.low:.4g} to {one.interval.high:.4g})"
    limits = (("warns at", one.limit.warn), ("critical at", one.limit.critical))
    return ", ".join(
        [f"{name} {one.value:.4g}{interval}", *(f"{said} {at:g}" for said, at in limits if at is not None)]
    )
