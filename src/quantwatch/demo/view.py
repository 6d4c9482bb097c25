"""The stage on a terminal: scenes on the left, what is measured on the right, the client's requests below."""

import math
from datetime import datetime
from typing import Any

from rich.box import ROUNDED, SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from quantwatch.demo.client import Client, Reply
from quantwatch.demo.plan import BASELINE, NODE
from quantwatch.demo.stage import Mark, Scene, Stage
from quantwatch.flow.verdict import BREACHES, Quality

QUALITY_STYLE = {
    Quality.OK: "green",
    Quality.WARN: "yellow",
    Quality.DEGRADED: "bold red",
    Quality.CORRUPTED: "bold white on red",
}
"""Everything else is magenta: it cannot be told."""

ANSWER_STYLE = {NODE: "blue", BASELINE: "green"}
STRIP = 30
"""Answers of the client that are shown, one block each."""

LAST_LINES = 5
FIXED_LINES = 20
"""Everything else but the task sets, with the frame and the line under it where the cursor stands."""


class View:
    """Draws the stage anew each time it is asked."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._spinner = Spinner("dots")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Panel(
            Group(*self._parts(console.height)),
            title=f"quantwatch demo · {self._stage.seconds:.0f} s",
            title_align="left",
            box=ROUNDED,
            width=min(console.width, 118),
        )

    def _parts(self, height: int) -> list[RenderableType]:
        stage = self._stage
        behind = Text.assemble("behind the node's address: ", (stage.behind, "bold"))
        parts: list[RenderableType] = [self._scenes(), behind, numbers(stage), routing(stage.board)]
        if stage.client is not None and stage.client.replies:
            parts += [strip(stage.client), latest(stage.client.replies[-1])]
        lines = self._lines(height - FIXED_LINES - len(stage.task_sets))
        return [*parts, *(Text(line, style="dim", overflow="ellipsis", no_wrap=True) for line in lines)]

    def _scenes(self) -> Table:
        table = Table(box=None, show_header=False, padding=(0, 1, 0, 0), pad_edge=False)
        table.add_column(min_width=1)
        table.add_column(no_wrap=True, min_width=max(len(one.title) for one in self._stage.scenes.values()))
        table.add_column(style="dim")
        for scene in self._stage.scenes.values():
            # On the cell, not the column: among columns that may not wrap, the table shrinks the first to nothing.
            said = Text(_said(scene), overflow="ellipsis", no_wrap=True)
            table.add_row(self._sign(scene), scene.title, said)
        return table

    def _sign(self, scene: Scene) -> RenderableType:
        match scene.mark:
            case Mark.NOW:
                return self._spinner
            case Mark.DONE:
                return Text("✔", style="green")
            case Mark.FAILED:
                return Text("✘", style="bold red")
        return Text("·", style="dim")

    def _lines(self, free: int) -> list[str]:
        """The latest sentences, as many as the terminal has room for."""
        count = max(1, min(LAST_LINES, free))
        return [f"{at:5.0f} s  {line}" for at, line in self._stage.lines[-count:]]


def _said(scene: Scene) -> str:
    took = "" if scene.seconds is None else f"{scene.seconds:.0f} s  "
    return f"{took}{scene.said}"


def numbers(stage: Stage) -> Table:
    """What the daemon measured last on each task set, with the critical limit beside it."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("task set", "mean KL (limit)", "PPL (limit)", "top-1 (limit)", "counts as"):
        left = name in ("task set", "counts as")
        table.add_column(name, justify="left" if left else "right", no_wrap=True, min_width=8 if left else 13)
    known = {one["task_set"]: one for one in (stage.board or {}).get("task_sets", [])}
    for name in stage.task_sets:
        one = known.get(name)
        table.add_row(name, *_row(one, stage.changed) if one is not None else ("-", "-", "-", "not yet"))
    return table


def _row(one: dict[str, Any], changed: datetime | None) -> tuple[RenderableType, ...]:
    """Three numbers and what they count as; dim where they are of the node that stood here before."""
    measured = None if one["at"] is None else datetime.fromisoformat(one["at"])
    old = changed is not None and measured is not None and measured < changed
    cells = (_with_limit(one, metric, old=old) for metric in ("kl_mean", "perplexity_ratio", "top1_agreement"))
    return (*cells, Text("node before", style="dim") if old else _counts_as(one))


def _with_limit(one: dict[str, Any], metric: str, *, old: bool) -> Text:
    value, limit = one["numbers"].get(metric), one["limits"].get(metric, {}).get("critical")
    beyond = (
        value is not None and limit is not None and (value < limit if metric == "top1_agreement" else value > limit)
    )
    return Text.assemble(
        (_number(value), "dim" if old else "bold red" if beyond else ""), (f" ({_number(limit)})", "dim")
    )


def _counts_as(one: dict[str, Any]) -> Text:
    """The quality, or how far a row has come that will change it."""
    style = QUALITY_STYLE.get(Quality(one["quality"]), "magenta")
    if one["breaches"] and one["quality"] not in BREACHES:
        return Text(f"breach {one['breaches']}", style="red")
    if one["clean"]:
        return Text.assemble((one["quality"], style), (f", {one['clean']} clean", "dim"))
    return Text(one["quality"], style=style)


def routing(board: dict[str, Any] | None) -> Text:
    """Where the node stands at the gateway by the daemon's record."""
    if board is None:
        return Text("routing: not watched yet", style="dim")
    style = "green" if board["routing"] == "in" else "bold red"
    by = f" by decision {board['decision']}" if board["decision"] and board["routing"] != "in" else ""
    return Text.assemble(
        f"{NODE} is ",
        (board["quality"], QUALITY_STYLE.get(Quality(board["quality"]), "magenta")),
        ", routing ",
        (board["routing"], style),
        by,
    )


def strip(client: Client) -> Text:
    """Who answered how often, and the last answers, one block each in the colour of who gave it."""
    text = Text("answered by", no_wrap=True, overflow="crop")
    for name, count in sorted(client.by.items(), reverse=True):
        text.append(f"  {name} {count}", style=ANSWER_STYLE.get(name, "white"))
    failed = len(client.failed)
    text.append(f"  failed {failed}  ", style="bold red" if failed else "dim")
    for one in client.replies[-STRIP:]:
        text.append("✘" if one.error else "■", style="bold red" if one.error else ANSWER_STYLE.get(one.by, "white"))
    return text


def latest(reply: Reply) -> Text:
    """The client's latest request."""
    said = " ".join(reply.text.split()) if reply.error is None else reply.error
    return Text.assemble(
        f"“{reply.question}” ",
        (said, "italic"),
        (f"  ({reply.by}, {reply.seconds:.1f} s)", "dim"),
        overflow="ellipsis",
        no_wrap=True,
    )


def _number(value: float | None) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:.3g}"
