"""An incident, or a period, as Markdown: for a ticket or a chat. Nothing in it acts, whatever servers have sent."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from quantwatch.pages.advice import Advice
from quantwatch.pages.advice_zh import in_language
from quantwatch.pages.incident import Event, Exchange, Incident, Number, Period
from quantwatch.pages.manner import Language
from quantwatch.pages.quoted import quoted
from quantwatch.pages.shown import moment, number
from quantwatch.pages.tokens import Place, Prompt, TokenView, token_view
from quantwatch.pages.view import RUNBOOK, became, chance, factor_value, grounds, heading
from quantwatch.pages.words import phrased, said, term
from quantwatch.record.decisions import StoredDecision

PROMPTS = 4
"""Golden texts whose worst positions are listed."""

EARLIER = 12
"""Runs before and after that are listed."""


def incident_markdown(one: Incident, language: Language = "en", *, runbook: str | None = None) -> str:
    """The report of a run or a decision. runbook: where it lies, None for the path in the project."""
    page = _Page(language, runbook or RUNBOOK)
    lines = [f"# {quoted(heading(one, language))}", "", quoted(one.headline), ""]
    lines += [page.made(one.version, moment(one.made)), ""]
    for title, body in page.sections(one):
        lines += [f"## {page.t(title)}", "", *body, ""]
    return "\n".join(lines).rstrip() + "\n"


def period_markdown(one: Period, language: Language = "en", *, runbook: str | None = None) -> str:
    """The report of a period."""
    page = _Page(language, runbook or RUNBOOK)
    title = f"{page.t('period.title')} {moment(one.since)} – {moment(one.until)}"
    lines = [f"# {title}", "", page.made(one.version, moment(one.made)), ""]
    if one.left_out:
        left = {name: getattr(one.left_out, name) for name in ("breaches", "decisions", "changes")}
        lines += [page.t("period.cut", **left), ""]
    for key, body in page.period(one):
        lines += [f"## {page.t(key)}", "", *body, ""]
    return "\n".join(lines).rstrip() + "\n"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table. Cells are text of Markdown already."""
    return [_row(head), _row(["---"] * len(head)), *map(_row, rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


class _Page:
    """Sections in one language."""

    def __init__(self, language: Language, runbook: str) -> None:
        self.language = language
        self.runbook = runbook

    def t(self, key: str, **values: object) -> str:
        return said(key, self.language, **values)

    def made(self, version: str, at: str) -> str:
        return f"{self.t('report.made', version=version)} {at}."

    def sections(self, one: Incident) -> Iterator[tuple[str, list[str]]]:
        yield "evidence.numbers", self._numbers(one.numbers) or [self.t("run.no_numbers")]
        if one.decisions:
            yield "period.made", self._decisions(one.decisions)
        yield "advice.title", [line for each in one.advice for line in self._advice(each)] or [self.t("advice.nothing")]
        yield "changed.title", list(self._changed(one))
        yield "tokens.title", self._tokens(one)
        if one.parts:
            yield "evidence.parts", self._parts(one)
        yield "timeline.title", [*self._left_out(one), *(self._event(each) for each in one.timeline)]
        yield "gateway.title", self._gateway(one.exchanges)
        yield "yardstick.title", list(self._yardstick(one))
        if one.course:
            yield "report.earlier", self._course(one)

    def period(self, one: Period) -> Iterator[tuple[str, list[str]]]:
        yield "period.summary", self._pairs(one) or [self.t("period.nothing")]
        yield "period.made", self._decisions(one.decisions) or [self.t("period.no_decisions")]
        yield "period.breaches", self._breaches(one) or [self.t("period.no_breaches")]
        yield "timeline.title", [self._event(each) for each in one.timeline]

    def _numbers(self, numbers: Sequence[Number]) -> list[str]:
        known = [one for one in numbers if one.value is not None or one.verdict is not None]
        keys = ("evidence.number", "evidence.value", "evidence.interval", "level.warn", "level.critical")
        head = [*map(self.t, keys), self.t("evidence.verdict")]
        rows = [self._number(one) for one in known]
        return table(head, rows) if rows else []

    def _number(self, one: Number) -> list[str]:
        part = "" if one.part is None else f" · {quoted(one.part)}"
        ends = "–" if one.low is None or one.high is None else f"{number(one.low)} – {number(one.high)}"
        verdict = "–" if one.verdict is None else f"**{self.t(f'quality.{one.verdict}')}**"
        values = (one.value, one.warn, one.critical)
        value, warn, critical = map(number, values)
        return [self.t(f"number.{one.metric}") + part, value, ends, warn, critical, verdict]

    def _advice(self, one: Advice) -> Iterator[str]:
        said_ = partial(in_language, self.language)
        yield f"- **{said_(one.remedy.title)}**: {quoted(one.seen)}"
        for step in one.remedy.steps:
            command = "" if step.command is None else f" `{step.command}`"
            yield f"  - {said_(step.said)}{command}"
        yield f"  - {self.t('advice.runbook')} {self.runbook}#{one.runbook}"

    def _changed(self, one: Incident) -> Iterator[str]:
        if one.sound is None:
            yield self.t("changed.no_sound")
            return
        yield f"{self.t('changed.since')} `{one.sound.id}` ({moment(one.sound.started)}):"
        yield ""
        for each in one.changed:
            values = (quoted(factor_value(each, value)) for value in (each.before, each.after))
            yield f"- {self.t(f'changed.{each.place}')} {self.t(f'factor.{each.factor}')}: {' → '.join(values)}"
        if not one.changed:
            yield self.t("changed.nothing")

    def _tokens(self, one: Incident) -> list[str]:
        if one.tokens is None:
            return [quoted(self.t("tokens.off" if one.shown.value == "off" else "tokens.none"))]
        seen = token_view(one.tokens, most=PROMPTS)
        lines = [self.t("tokens.lead", shown=len(seen.prompts), measured=seen.measured), ""]
        for prompt in seen.prompts:
            lines += self._prompt(prompt, seen)
        return lines

    def _prompt(self, prompt: Prompt, seen: TokenView) -> list[str]:
        told = self.t("tokens.prompt_short", mean=number(prompt.kl_mean), largest=number(prompt.kl_max))
        lines = [f"### {quoted(prompt.id)} ({told})", ""]
        if seen.texts:
            lines += [f"> {''.join(map(_marked, prompt.places))}", ""]
        keys = ("token", "place", "baseline_first", "node_first", "golden_share")
        head = [self.t(f"tokens.{key}") for key in keys]
        rows = [self._place(one) for one in prompt.worst]
        return [*lines, *table([*head[:2], "KL", *head[2:]], rows), ""]

    def _place(self, one: Place) -> list[str]:
        kl = quoted(one.mark or self.t("tokens.broken")) if one.kl is None else number(one.kl, 2)
        golden = next((each for each in one.choices if each.golden), None)
        sides = [] if golden is None else [chance(golden.baseline, golden.at_most), chance(golden.node, golden.at_most)]
        first = [_first(one, side) for side in ("baseline", "node")]
        return [_word(one.label), str(one.position), kl, *first, " → ".join(sides)]

    def _parts(self, one: Incident) -> list[str]:
        keys = ("evidence.part", "metric.kl_mean", "evidence.interval", "metric.top1_agreement", "evidence.positions")
        rows = []
        for each in one.parts:
            ends = "–" if each.low is None or each.high is None else f"{number(each.low)} – {number(each.high)}"
            top1 = number(each.top1)
            rows.append([quoted(each.name), number(each.kl), ends, top1, str(each.positions)])
        return table([self.t(key) for key in keys], rows)

    def _left_out(self, one: Incident) -> list[str]:
        left = one.left_out
        told = self.t("timeline.cut", runs=left.runs, decisions=left.decisions, changes=left.changes)
        return [told, ""] if left else []

    def _event(self, one: Event) -> str:
        by = "" if one.by == "quantwatch" else f" {quoted(one.by)}:"
        about = one.decision or one.run
        link = "" if about is None else f" (`{about}`)"
        return f"- {moment(one.at)} **{self.t(f'event.{one.kind}')}**{by} {quoted(self._said(one))}{link}"

    def _said(self, one: Event) -> str:
        if self.language == "en" or not one.phrases:
            return one.said
        told = ((phrased(each, self.language), each.detail) for each in one.phrases)
        return "；".join("：".join(filter(None, each)) for each in told)

    def _gateway(self, exchanges: Sequence[Exchange]) -> list[str]:
        if not exchanges:
            return [self.t("gateway.nothing")]
        return [line for one in exchanges for line in self._exchange(one)]

    def _exchange(self, one: Exchange) -> Iterator[str]:
        sent = "; ".join(f"{name}: {quoted(value)}" for name, value in one.sent if name != "decision")
        calls = self.t("gateway.calls", n=one.attempts)
        yield f"- {self.t('gateway.sent', decision=one.decision)} {moment(one.opened)} ({calls}): {sent}"
        if one.result is None or one.settled is None:
            yield f"  - {self.t('gateway.answer')}: {self.t('gateway.open')}"
            return
        doubt = f" {self.t('gateway.doubt')}" if one.doubt else ""
        answer = f"**{self.t(f'result.{one.result}')}** {quoted(one.detail or '')} ({moment(one.settled)})"
        yield f"  - {self.t('gateway.answer')}: {answer}{doubt}"

    def _yardstick(self, one: Incident) -> Iterator[str]:
        kept = one.yardstick
        if kept.answers and kept.first is not None:
            yield f"- {self.t('yardstick.kept', n=kept.answers)} {moment(kept.first)}"
        else:
            yield f"- {self.t('yardstick.none')}"
        for doubt in kept.doubts:
            yield f"- **{self.t('yardstick.doubt')}** {quoted(doubt)}"
        if not kept.doubts:
            yield f"- {self.t('yardstick.no_doubt')}"

    def _course(self, one: Incident) -> list[str]:
        subject = next((i for i, each in enumerate(one.course) if one.run is not None and each.id == one.run.id), 0)
        near = one.course[max(0, subject - EARLIER) : subject + EARLIER + 1]
        head = [self.t(key) for key in ("report.when", "run.run", "axis.quality", "metric.kl_mean", "missing.reason")]
        rows = [self._point(each) for each in near]
        more = len(one.course) - len(near)
        return [*table(head, rows), *(["", self.t("report.more_runs", n=more)] if more else [])]

    def _point(self, each: Any) -> list[str]:
        quality = self.t(f"quality.{each.quality}")
        return [moment(each.started), f"`{each.id}`", quality, number(each.kl), quoted(each.reason)]

    def _pairs(self, one: Period) -> list[str]:
        keys = ("period.target", "period.task_set", "period.all", "period.breached", "period.worst")
        rows = [
            [
                quoted(each.target),
                quoted(each.task_set),
                str(each.total),
                str(each.breaches),
                "–" if each.worst is None else number(each.worst.kl),
            ]
            for each in one.pairs
        ]
        return table([self.t(key) for key in keys], rows) if rows else []

    def _decisions(self, decisions: Sequence[StoredDecision]) -> list[str]:
        keys = ("report.when", "decision.decision", "period.target", "period.action", "period.ruling", "missing.reason")
        rows = []
        for each in decisions:
            what, came = self.t(f"action.{each.action}"), became(self.language, each)
            rows.append([moment(each.at), f"`{each.id}`", quoted(each.target), what, came, quoted(self._why(each))])
        return table([self.t(key) for key in keys], rows) if rows else []

    def _why(self, one: StoredDecision) -> str:
        """Its sentence and what objected; where these are in another language than the report, after their codes."""
        if self.language == "en":
            return "; ".join([one.reason, *(f"{held['brake']}: {held['reason']}" for held in one.objections)])
        held = (f"{term('brake.', each['brake'], self.language)}：{each['reason']}" for each in one.objections)
        return "；".join([f"{grounds(self.language, one)}：{one.reason}", *held])

    def _breaches(self, one: Period) -> list[str]:
        keys = ("report.when", "run.run", "axis.quality", "metric.kl_mean", "missing.reason")
        head = [self.t("period.target"), self.t("period.task_set"), *(self.t(key) for key in keys)]
        rows = [[quoted(each.target), quoted(each.task_set), *self._point(each)] for each in one.breaches]
        return table(head, rows) if rows else []


def _marked(one: Place) -> str:
    """A token of a golden text; bold from the fourth step on, with its KL behind it."""
    before = " … " if one.gap else ""
    text = "".join(quoted(part) if part.strip() else " " for part in _pieces(one.label))
    far = one.step in (3, 4) or one.kl is None
    if not far:
        return before + text
    space = " " if text.startswith(" ") else ""
    kl = "!" if one.kl is None else number(one.kl, 2)
    return f"{before}{space}**{text.strip() or '␣'}**&#91;{kl}&#93;"


def _pieces(text: str) -> list[str]:
    """Blanks around a token are parts of the text, and `quoted` drops them."""
    core = text.strip()
    if not core:
        return [" "]
    return [part for part in (" " if text[0].isspace() else "", core, " " if text[-1].isspace() else "") if part]


def _word(text: str) -> str:
    return quoted(text.strip()) or "␣"


def _first(one: Place, side: str) -> str:
    """What a server thought most likely."""
    found = next((each for each in one.choices if getattr(each, f"{side}_rank") == 1), None)
    return "–" if found is None else f"{_word(found.text)} {chance(getattr(found, side), 0.0)}"
