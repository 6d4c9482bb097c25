"""Runs, decisions and differences of the store for a terminal and for programs. Times are UTC."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from quantwatch.cli.tables import STYLE, number
from quantwatch.flow.decision import Ruling
from quantwatch.flow.load import Load
from quantwatch.flow.proposal import Proposal
from quantwatch.flow.state import Transition
from quantwatch.flow.verdict import Metric, Quality
from quantwatch.judge.threshold import LABELS, percent
from quantwatch.record.decisions import StoredDecision
from quantwatch.record.differences import Difference, explained
from quantwatch.record.documents import StoredRun

WIDE = 130
"""From this many columns on, whole ids and reasons are shown."""

LIMITED = (
    ("kl_mean", "mean KL", "kl_interval"),
    ("kl_p99", "p99 KL", "kl_p99_interval"),
    ("perplexity_ratio", "PPL ratio", "perplexity_ratio_interval"),
    ("top1_agreement", "top-1 agreement", "top1_interval"),
)
PLAIN = (
    ("kl_median", "median KL"),
    ("kl_max", "max KL"),
    ("perplexity_baseline", "baseline PPL"),
    ("perplexity_node", "node PPL"),
    ("tail_mass", "baseline tail mass"),
    ("tail_mass_node", "node tail mass"),
    ("coverage", "coverage"),
)


SHORT_NAME = 8
"""Columns that a name always gets: most fit, and only longer ones are folded."""


def runs_table(runs: Sequence[StoredRun], width: int) -> Table:
    """One line a run; narrow terminals get the end of the id, which `show` understands, and no reason."""
    wide = width >= WIDE
    table = _table("when (UTC)", "id", "target", "task set", "quality", "mean KL", "PPL", "top-1")
    for column in table.columns[5:]:
        column.justify = "right"
    _folding(table, 2, 3)
    if wide:
        table.add_column("reason", overflow="fold")
    for run in runs:
        values = (number(run.numbers.get(name)) for name in ("kl_mean", "perplexity_ratio", "top1_agreement"))
        start = (_when(run.started, wide=wide), _id(run.id, wide=wide), Text(run.target), Text(run.task_set))
        table.add_row(*start, _quality(run.quality), *values, *((Text(run.reason),) if wide else ()))
    return table


def decisions_table(decisions: Sequence[StoredDecision], width: int) -> Table:
    """One line a decision, with what came of it."""
    wide = width >= WIDE
    table = _table("when (UTC)", "id", "target", "action", "ruling", "outcome")
    _folding(table, 2)
    table.add_column("why" if wide else "stopped by", overflow="fold")
    for one in decisions:
        brakes = ", ".join(objection["brake"] for objection in one.objections)
        why = Text("; ".join([one.reason, *(objection["reason"] for objection in one.objections)]) if wide else brakes)
        start = (_when(one.at, wide=wide), _id(one.id, wide=wide), Text(one.target), one.action.value)
        table.add_row(*start, one.ruling.value, _outcome(one), why)
    return table


def shown_end(rows: int, limit: int) -> str:
    """What stands under a list."""
    if rows == 0:
        return "Nothing is recorded yet."
    return f"The newest {rows}; --limit shows more." if rows == limit else "That is all."


def show_run(run: StoredRun, out: Console, *, changes: Sequence[Transition], based: Sequence[StoredDecision]) -> None:
    """Everything about a run."""
    whole, report = run.document, run.numbers
    title = Text.assemble(("run ", ""), (run.id, "bold"), f": {run.task_set} on {run.target}: ", _quality(run.quality))
    out.print(title)
    _say(out, run.reason)
    _say(out, f"started {_when(run.started)}, {run.seconds:.1f} s, trigger {whole.get('trigger')}")
    for place in ("baseline", "node"):
        _say(out, f"{place}: {_identity(whole.get(place))}")
    for when, load in zip(("before", "after"), run.loads, strict=True):
        if load is not None:
            _say(out, f"load {when}: {load_said(load)}")
    _say(out, f"limits {whole.get('limits') or '-'}, basis {whole.get('basis') or '-'}")
    if report:
        asked = ("k", "mode", "seed", "estimator", "evidence")
        said = ", ".join(f"{name} {report[name]}" for name in asked if report.get(name) is not None)
        _say(out, f"{report['prompts']} of {report['drawn']} draws, {said}, prompts digest {report['pool'][:12]}")
        out.print(_numbers_table(report), soft_wrap=False)
    for missing in report.get("missing", ()):
        _say(
            out,
            f"missing: {missing['prompt'] or 'all'} ({missing['draws']}x, {missing['quality']}): {missing['reason']}",
        )
    _tell_changes(out, changes)
    for one in based:
        _say(out, f"decision {one.id}: {one.action} was ruled {one.ruling}; `quantwatch show {one.id}`")


def load_said(load: Load) -> str:
    """How busy a server was, in one line."""
    running = "" if load.running is None else f"{load.running:g} running, "
    return f"{running}{load.waiting:g} waiting, KV cache {load.kv_usage:.0%} full"


def _numbers_table(report: Mapping[str, Any]) -> Table:
    found = report.get("findings", ())
    held = {finding["metric"]: finding for finding in found if finding.get("part") is None}
    table = _table("", "value", "interval", "warn", "critical", "verdict")
    level = report.get("interval_level")
    table.caption = None if level is None else f"intervals at {percent(level)}, two-sided"
    for column in table.columns[1:5]:
        column.justify = "right"
    for name, label, interval in LIMITED:
        finding = held.get(name, {})
        ends = report.get(interval)
        shown = f"{number(ends[0])} .. {number(ends[1])}" if ends else "-"
        limits = (number(finding.get("warn")), number(finding.get("critical")))
        verdict = _quality(Quality(finding["verdict"])) if finding else Text("-")
        table.add_row(label, number(report.get(name)), shown, *limits, verdict)
    for one in (finding for finding in found if finding.get("part") is not None):
        label = f"{LABELS[Metric(one['metric'])]} of {one['part']}"
        limits = (number(one.get("warn")), number(one.get("critical")))
        table.add_row(label, number(one["value"]), "", *limits, _quality(Quality(one["verdict"])))
    for name, label in PLAIN:
        table.add_row(label, number(report.get(name)), "", "", "", "")
    return table


def show_decision(one: StoredDecision, out: Console) -> None:
    """Everything about a decision: what was wanted, what objected, what was sent, what came of it."""
    out.print(
        Text.assemble("decision ", (one.id, "bold"), f": {one.action} {one.target} was ruled ", (one.ruling, "bold"))
    )
    for line in _decision_lines(one):
        _say(out, line)
    _tell_changes(out, one.transitions)


def _decision_lines(one: StoredDecision) -> Iterator[str]:
    yield one.reason
    yield f"{_when(one.at)}, pool {one.pool} in mode {one.mode}, lane {one.lane or '-'}, by {one.author}"
    yield f"evidence: run {one.run or '-'} of task set {one.task_set or '-'}"
    yield from (f"found: {finding['reason']}" for finding in one.findings)
    overridden = "overridden " if one.ruling is Ruling.ACT else ""
    yield from (f"{overridden}objection {each['brake']}: {each['reason']}" for each in one.objections)
    if one.proposal is not None:
        yield _fate(one.proposal)
    if one.intent is None:
        yield "nothing was sent"
        return
    order, outcome = one.intent.order, one.intent.outcome
    rung = "" if order.rung is None else f", traffic on rung {order.rung}"
    yield f"order: {order.action} {order.node} through {order.driver}, fallback {order.fallback or '-'}{rung}"
    yield f"opened {_when(one.intent.opened)}, calls begun {one.intent.attempts}"
    if outcome is None:
        yield "outcome: open"
        return
    doubt = "; it may have taken effect nevertheless" if outcome.doubt else ""
    yield f"outcome {outcome.result} at {_when(outcome.at)}: {outcome.detail}{doubt}"


def _fate(one: Proposal) -> str:
    if one.closed is None:
        return f"proposal: waits until {_when(one.expires)}"
    return f"proposal: {one.fate} at {_when(one.closed)} by {one.author}: {one.said}"


def changes_table(changes: Sequence[Transition], width: int) -> Table:
    """One line a change of state on any axis."""
    wide = width >= WIDE
    table = _table("when (UTC)", "target", "axis", "from", "to", "by")
    _folding(table, 1, 5)
    table.add_column("why", overflow="fold")
    for one in changes:
        axis = one.axis.value if one.task_set is None else f"{one.axis.value} {one.task_set}"
        names = (Text(one.target), Text(axis), one.old, one.new, Text(one.author), Text(one.reason))
        table.add_row(_when(one.at, wide=wide), *names)
    return table


def show_differences(
    runs: tuple[StoredRun, StoredRun], out: Console, *, found: list[Difference], values: list[Difference]
) -> None:
    """One factor a line, then the numbers."""
    for name, run in zip(("before", "after "), runs, strict=True):
        out.print(
            Text.assemble(
                f"{name} {_when(run.started)} ",
                (run.id, "bold"),
                f" {run.target} {run.task_set}: ",
                _quality(run.quality),
            )
        )
    for one in found:
        out.print(f"  {one.place} {one.label}: {_value(one, one.before)} -> {_value(one, one.after)}", markup=False)
    if not explained(found):
        out.print("  nothing but the draw", markup=False)
    if values:
        table = _table("", "before", "after", "change")
        for column in table.columns[1:]:
            column.justify = "right"
        for one in values:
            table.add_row(one.label, _value(one, one.before), _value(one, one.after), _change(one))
        out.print(table, soft_wrap=False)


def _tell_changes(out: Console, changes: Sequence[Transition]) -> None:
    for one in changes:
        what = f"{one.axis} of {one.target}" + (f" on {one.task_set}" if one.task_set else "")
        _say(out, f"{_when(one.at)} {what}: {one.old} -> {one.new}, by {one.author}: {one.reason}")


def _table(*names: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))  # 80 columns have no room for more
    for name in names:
        table.add_column(name, no_wrap=True)
    return table


def _folding(table: Table, *columns: int) -> None:
    """Columns of names, which may be long, take more lines where the terminal is narrow."""
    for column in columns:
        table.columns[column].no_wrap = False
        table.columns[column].overflow = "fold"
        table.columns[column].min_width = SHORT_NAME


def _say(out: Console, line: str) -> None:
    out.print(f"  {line}", markup=False)


def _quality(quality: Quality) -> Text:
    return Text(str(quality), style=STYLE[quality])


def _when(moment: datetime, *, wide: bool = True) -> str:
    return f"{moment.astimezone(UTC):{'%Y-%m-%d %H:%M:%S' if wide else '%m-%d %H:%M'}}"


def _id(whole: str, *, wide: bool) -> Text:
    return Text(whole if wide else whole.rpartition("-")[2])


def _outcome(one: StoredDecision) -> str:
    if one.intent is None:
        return "-"
    return "open" if one.intent.outcome is None else one.intent.outcome.result.value


def _identity(identity: Mapping[str, Any] | None) -> str:
    """A server in one line."""
    if identity is None:
        return "did not say who it is"
    parts = [str(identity.get("model")), f"at {identity.get('url')}"]
    if identity.get("version"):
        parts.append(f"version {identity['version']}")
    if identity.get("started"):
        parts.append(f"started {_when(datetime.fromtimestamp(identity['started'], UTC))}")
    return ", ".join(parts)


def _value(one: Difference, value: Any) -> str:
    if value is None:
        return "-"
    if one.factor == "started":
        return _when(datetime.fromtimestamp(value, UTC))
    if one.factor in ("pool", "limits", "tokenizer"):
        return str(value)[:12]
    return number(value) if isinstance(value, float) else str(value)


def _change(one: Difference) -> str:
    if one.change is None:
        return "-"
    share = f" ({one.change / one.before:+.1%})" if one.before else ""
    return "none" if one.change == 0 else f"{one.change:+.4g}{share}"
