"""A report as tables and sentences for a terminal."""

import math

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from quantwatch.flow.divergence import Divergence, Estimate, Evidence
from quantwatch.flow.report import Report, SetReport, TargetReport
from quantwatch.flow.verdict import Finding, Quality
from quantwatch.judge.threshold import name_of, percent

STYLE = {
    Quality.OK: "green",
    Quality.WARN: "yellow",
    Quality.DEGRADED: "bold red",
    Quality.CORRUPTED: "bold white on red",
    Quality.INCONCLUSIVE: "magenta",
    Quality.INVALID: "magenta",
    Quality.UNKNOWN: "magenta",
    Quality.SKIPPED: "dim",
}


def show(report: Report, console: Console) -> None:
    """Print every target: a table a task set, an overview, and one sentence of conclusion."""
    for target in report.targets:
        for one in target.task_sets:
            console.print(_task_set(one, target))
        if len(target.task_sets) > 1:
            console.print(_overview(target))
    for line in conclusions(report):
        console.print(line, soft_wrap=True)


def conclusions(report: Report) -> list[Text]:
    """One sentence for each target, and one for the baseline where it was the trouble."""
    lines = []
    if report.trouble is not None:
        lines.append(Text.assemble(("The baseline stopped answering", "bold magenta"), f": {report.trouble}"))
    for target in report.targets:
        quality = (str(target.quality), STYLE[target.quality])
        more = f" (and {len(target.reasons) - 1} more task sets)" if len(target.reasons) > 1 else ""
        lines.append(Text.assemble((target.target, "bold"), " is ", quality, f": {_first(target)}{more}"))
        lines += [Text(f"{target.target}: {note}", style="yellow") for note in target.notes]
    if not report.complete:
        lines.append(Text("Interrupted: this is what was known so far.", style="magenta"))
    return lines


def _first(target: TargetReport) -> str:
    return target.reasons[0] if target.reasons else "nothing was measured"


def _task_set(one: SetReport, target: TargetReport) -> RenderableType:
    title = Text.assemble(
        (f"{one.name}", "bold"), f" on {target.target}: ", (str(one.verdict.quality), STYLE[one.verdict.quality])
    )
    if one.divergence is None:
        return Group(title, *_lines(one))
    caption = _caption(one, one.divergence)
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left", box=SIMPLE_HEAD)
    table.pad_edge, table.padding = False, (0, 1, 0, 0)  # the longest words then fit 80 columns
    for name in ("", "value", "interval", "warn", "critical", "verdict"):
        table.add_column(name, justify="left" if name in ("", "verdict") else "right", no_wrap=True)
    for finding in one.verdict.findings:
        table.add_row(*_row(finding))
    return Group(table, *_lines(one), Text(""))


def _lines(one: SetReport) -> list[RenderableType]:
    """The reasons, and dimly what was odd but decided nothing."""
    told = " ".join(one.verdict.reasons)
    odd = [seen.said for seen in one.observation.canary.seen if seen.said not in told]
    lines = [Text(reason) for reason in one.verdict.reasons] + [Text(f"noted: {said}", style="dim") for said in odd]
    return [Padding(line, (0, 0, 0, 2)) for line in lines]


def _row(finding: Finding) -> tuple[RenderableType, ...]:
    return (
        name_of(finding),
        number(finding.value),
        interval(Estimate(finding.value, finding.interval)),
        number(finding.limit.warn),
        number(finding.limit.critical),
        Text(str(finding.quality), style=STYLE[finding.quality]),
    )


def _level(d: Divergence) -> str:
    interval = d.kl_mean.interval
    return "" if interval is None else f"; intervals at {percent(interval.level)}, two-sided"


def _caption(one: SetReport, d: Divergence) -> str:
    drawn = "all given" if d.evidence is Evidence.CENSUS else f"drawn with seed {one.seed}"
    broken = f", {d.corrupted_positions} corrupted positions" if d.corrupted_positions else ""
    return (
        f"{d.prompts} sequences {drawn}, {d.positions} positions, k = {d.k}, {d.mode}, {d.estimator} bound in nats; "
        f"perplexity {number(d.perplexity_baseline)} -> {number(d.perplexity_node)}, p99 KL {number(d.kl_p99.value)}, "
        f"max KL {number(d.kl_max)}, tail mass {number(d.tail_mass_baseline)}, "
        f"{d.uninformative_positions} uninformative positions{broken}{_level(d)}"
    )


def _overview(target: TargetReport) -> Table:
    """One line a task set, narrow enough for 80 columns."""
    table = Table(
        title=Text(f"{target.target} over all task sets"), title_justify="left", box=SIMPLE_HEAD, pad_edge=False
    )
    for name in ("task set", "mean KL", "interval", "PPL ratio", "top-1", "verdict"):
        table.add_column(name, justify="left" if name in ("task set", "verdict") else "right", no_wrap=True)
    for one in target.task_sets:
        d = one.divergence
        numbers = ("-", "-", "-", "-") if d is None else _numbers(d)
        table.add_row(one.name, *numbers, Text(str(one.verdict.quality), style=STYLE[one.verdict.quality]))
    return table


def _numbers(d: Divergence) -> tuple[str, ...]:
    estimates = (d.perplexity_ratio, d.top1_agreement)
    return (number(d.kl_mean.value), interval(d.kl_mean), *(number(estimate.value) for estimate in estimates))


def number(value: float | None) -> str:
    """Four significant digits; a dash for what is not there."""
    return "-" if value is None or math.isnan(value) else f"{value:.4g}"


def interval(estimate: Estimate) -> str:
    """Low and high end, or a dash."""
    if estimate.interval is None:
        return "-"
    return f"{number(estimate.interval.low)} .. {number(estimate.interval.high)}"
