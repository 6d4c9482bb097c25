"""A calibration for a terminal: what was measured, what is proposed, how it spreads, what has changed since."""

import math
from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from quantwatch.cli.text_plot import limit_marks, text_plot
from quantwatch.flow.calibration import Calibrated, Drift, PartProposals, Proposal, SetCalibration, at_distance, drift
from quantwatch.flow.calibration_json import Kept
from quantwatch.flow.divergence import Estimate
from quantwatch.flow.verdict import Metric
from quantwatch.judge.propose import noise_floor
from quantwatch.judge.threshold import LABELS


def show(whole: Calibrated, console: Console, *, against: Kept | None) -> None:
    """Print every target and task set, and how to adopt what is proposed."""
    for one in whole.sets:
        console.print(_table(one) if one.proposals else Text(f"{one.name}: nothing was measured", style="bold"))
        for line in _remarks(one):
            console.print(line, soft_wrap=True)
        for drawn in text_plot(one.spreads, limit_marks(one)) if one.spreads else ():
            console.print(Text(drawn), no_wrap=True, crop=False)
        console.print()
        for part in one.parts:
            console.print(_part(part), soft_wrap=True)
        if against is not None:
            _show_drift(one, against, console)
    if not whole.complete:
        console.print(Text(_early(whole), style="magenta"), soft_wrap=True)


def number(metric: Metric, value: float | None) -> str:
    """Three significant digits, of a ratio near 1 four; a dash for what is not there."""
    digits = 4 if metric is Metric.PERPLEXITY_RATIO else 3
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}g}"


def interval(metric: Metric, estimate: Estimate) -> str:
    """Low and high end, or a dash."""
    ends = estimate.interval
    return "-" if ends is None else f"{number(metric, ends.low)} .. {number(metric, ends.high)}"


def _early(whole: Calibrated) -> str:
    if whole.trouble is not None:
        return f"Stopped early: {whole.trouble}"
    return "Interrupted: this is what the cycles so far say."


def _table(one: SetCalibration) -> Table:
    told = f"{one.cycles} cycles of {one.draw} prompts, {one.prompts} different, {one.positions} positions, k = {one.k}"
    bound = one.estimator.value if one.estimator is not None else "no"
    table = Table(
        title=Text(one.name, style="bold"),
        title_justify="left",
        caption=f"{told}, {one.mode}, {bound} bound, fingerprint {one.basis or 'unknown'}",
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for name in ("", "level", "95 % interval", "noise", "warn", "critical"):
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    for proposal in one.proposals:
        table.add_row(*_row(proposal))
    return table


def _part(found: PartProposals) -> Text:
    """A part in a line: level, warn and critical of each metric."""
    told = []
    for proposal in found.proposals:
        metric, limit = proposal.level.metric, proposal.limit
        ends = "none" if limit is None else f"{number(metric, limit.warn)} / {number(metric, limit.critical)}"
        told.append(f"{LABELS[metric]} {number(metric, proposal.level.pooled.value)} ({ends})")
    return Text(f"  {found.name}, {found.part.prompts} prompts: {'; '.join(told)}")


def _row(proposal: Proposal) -> tuple[str, ...]:
    level, limit = proposal.level, proposal.limit
    metric = level.metric
    return (
        LABELS[metric],
        number(metric, level.pooled.value),
        interval(metric, level.pooled),
        number(metric, at_distance(metric, noise_floor(level))) if level.noise else "-",
        number(metric, limit.warn) if limit is not None else "none",
        number(metric, limit.critical) if limit is not None else "none",
    )


def _remarks(one: SetCalibration) -> Iterator[Text]:
    """What a reader must know besides the numbers."""
    for held, reason in dict.fromkeys((proposal.limit is not None, proposal.reason) for proposal in one.proposals):
        names = ", ".join(LABELS[p.level.metric] for p in one.proposals if p.reason == reason)
        said = f"critical is {reason}" if held else f"none proposed: {reason}"
        yield Text(f"  {names}: {said}", style="dim" if held else "magenta")
    if one.fault is not None and not one.proposals:
        yield Text(f"  none proposed: {one.fault}", style="magenta")
    yield from (Text(f"  {line}", style="yellow") for line in one.left_out)
    if one.noise_trouble is not None:
        yield Text(f"  a second answer was missing: {one.noise_trouble}", style="yellow")
    if one.proposals and not one.told_apart:
        yield Text("  cold and warm prefix: not told apart by the node's own counters", style="dim")
    now = [f"{LABELS[on]} {number(on, at.warn)} / {number(on, at.critical)}" for on, at in one.in_force.items()]
    yield Text(f"  in force now, warn / critical: {'; '.join(now)}", style="dim")


def _show_drift(one: SetCalibration, kept: Kept, console: Console) -> None:
    why_not = kept.incomparable(one)
    if why_not is not None:
        console.print(Text(f"  against {kept.at:%Y-%m-%d}: {why_not}, so the levels are not compared", style="yellow"))
        return
    if kept.moved(one):
        console.print(Text(f"  since {kept.at:%Y-%m-%d} baseline or node has another model or version", style="yellow"))
    for found in drifts(one, kept):
        console.print(Text(f"  {_drift(found, kept)}", style="yellow" if found.apart else "dim"), soft_wrap=True)
    console.print()


def drifts(one: SetCalibration, kept: Kept) -> Iterator[Drift]:
    """Every metric that was measured then and now; nothing where the two cannot be compared."""
    if kept.incomparable(one) is not None:
        return
    for proposal in one.proposals:
        then = kept.level(one, proposal.level.metric)
        if then is not None:
            yield drift(then, proposal.level)


def _drift(found: Drift, kept: Kept) -> str:
    metric = found.metric
    times = f", {found.beyond:.2f} x as far from the baseline" if found.beyond is not None else ""
    said = "more than the draw of the prompts" if found.apart else "within what the draw of the prompts explains"
    values = f"{number(metric, found.then.value)} on {kept.at:%Y-%m-%d}, {number(metric, found.now.value)} now"
    return f"{LABELS[metric]}: {values}{times}: {said}"
