"""One picture of a daemon for a terminal, the worst target first, cut to the height that there is."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.text import Text

from quantwatch.cli.status import LONGEST_NAME, age, local, notices
from quantwatch.cli.tables import STYLE
from quantwatch.cli.watch_marks import Room, cell, room, worst_share
from quantwatch.cli.watch_past import SHOWN, Event, Past
from quantwatch.flow.state import Human, Routing
from quantwatch.flow.verdict import GOOD, Quality, severity

SET_NAME = 12
FEWEST_EVENTS = 3
MOST_EVENTS = 10
MOST_FOLDS = 3
"""Lines of one sentence on a page with an end."""


@dataclass(frozen=True, slots=True)
class Page:
    """Where a picture is drawn. height: lines there are; None for as many as it takes. where: the daemon's address.

    top: how many targets are passed over, the worst of them first.
    """

    width: int
    height: int | None
    where: str
    interval: float
    top: int = 0
    plain: bool = False


def frame(past: Past, page: Page, *, now: datetime) -> list[Text]:
    """The lines of one picture, each at most as wide as the page."""
    head = list(_head(past, page, now))
    board = past.board
    if board is None:
        return [_fitted(one, page) for one in head]
    said = [line for text, style in notices(board, now) for line in _folded(text, style, page)]
    told = [_event(one) for one in list(past.events)[-MOST_EVENTS:]]
    names = min(LONGEST_NAME, max((len(one["target"]) for one in board["targets"]), default=0))
    blocks = [list(_target(one, past, page, now=now, names=names)) for one in worst_first(board["targets"])]
    if page.height is not None:
        free = page.height - len(head) - 2
        told = told[-max(FEWEST_EVENTS, free // 5) :]
        said = said[: max(2, free // 3)]
        lines = _that_fit(blocks, free - len(told) - len(said), top=page.top)
    else:
        lines = [line for block in blocks for line in block]
    between = [Text("")]
    whole = [*head, *lines, *between, *said, *between, *told]
    return [_fitted(one, page) for one in (whole if page.height is None else whole[: page.height])]


def worst_first(targets: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """By quality, then who is away or bound by a person's word, then who is nearest to a limit."""

    def place(one: Mapping[str, Any]) -> tuple[int, bool, bool, float, str]:
        near = max((worst_share(each) for each in one["task_sets"]), default=0.0)
        away = one["routing"] == Routing.IN
        return -severity(Quality(one["quality"])), away, one["human"] == Human.NONE, -near, one["target"]

    return sorted(targets, key=place)


def printable(text: str) -> str:
    """A text that cannot steer a terminal; parts of it come from servers."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def _folded(said: str, style: str, page: Page, *, indent: int = 0) -> Iterator[Text]:
    """A sentence over as many lines as it needs, or as there may be."""
    most = None if page.height is None else MOST_FOLDS
    margin = " " * indent
    for line in textwrap.wrap(
        printable(said),
        page.width,
        initial_indent=margin,
        subsequent_indent=margin,
        max_lines=most,
        placeholder=" …",
        drop_whitespace=True,
    ):
        yield Text(line, style=style)


def _fitted(line: Text, page: Page) -> Text:
    if not line.plain.isprintable():
        line = Text(printable(line.plain), style=line.style)
    line.truncate(page.width, overflow="ellipsis")
    line.no_wrap = True
    return line


def _head(past: Past, page: Page, now: datetime) -> Iterator[Text]:
    board = past.board
    clock = f"{now.astimezone():%H:%M:%S}"
    if board is None:
        yield Text.assemble(("quantwatch watch", "bold"), f"  {page.where}  {clock}")
    else:
        busy = sum(1 for one in board["targets"] if one["running"])
        queued = sum(one["queued"] for one in board["targets"])
        ready = ("ready", "green") if board["ready"] else ("not ready", "bold red")
        runs = f"{busy} under way" + (f", {queued} due" if queued else "")
        start = (f"quantwatch {board['quantwatch']}", "bold")
        yield Text.assemble(
            start, f"  {page.where}  {clock}  ", ready, f"  {runs}", ("" if page.height is None else "  q quits", "dim")
        )
    if past.lost is not None:
        since = f"{past.lost.astimezone():%H:%M:%S}, {age((now - past.lost).total_seconds())}"
        yield from _folded(f"NO DAEMON ANSWERS since {since}: {past.why}", "bold white on red", page)
        if past.seen is not None:
            yield Text(f"below is what was seen last, at {past.seen.astimezone():%H:%M:%S}", style="red")
    yield Text("")


def _target(one: Mapping[str, Any], past: Past, page: Page, *, now: datetime, names: int) -> Iterator[Text]:
    quality = Quality(one["quality"])
    name = one["target"]
    if len(name) > names:
        yield Text(name, style="bold")
        name = ""
    line = Text.assemble((f"{name:<{names}}", "bold"), "  ", (f"{quality:<12}", STYLE[quality]), "  ")
    line.append(f"{one['routing']:<12}", "" if one["routing"] == Routing.IN else "bold yellow").append("  ")
    line.append(_word(one, now), "dim" if one["human"] == Human.NONE else "yellow")
    line.append(f"  {one['pool']}", "dim")
    yield line
    yield from _folded(one["reason"], "" if quality in GOOD else STYLE[quality].removesuffix(" on red"), page, indent=2)
    if one["running"]:
        more = f", {one['queued']} more due" if one["queued"] else ""
        yield Text(f"  running: {one['running']}{more}", style="cyan")
    at = room(page.width - 2 - SET_NAME - 1, plain=page.plain)
    for each in sorted(one["task_sets"], key=_by_worst):
        yield _set(one["target"], each, past, at)


def _word(one: Mapping[str, Any], now: datetime) -> str:
    if one["human"] == Human.NONE:
        return "no word"
    until = f" until {local(one['human_until'], now)}" if one["human_until"] else ""
    return f"{one['human']}{until} by {one['human_author']}"


def _by_worst(task_set: Mapping[str, Any]) -> tuple[int, float, str]:
    return -severity(Quality(task_set["quality"])), -worst_share(task_set), task_set["task_set"]


def _set(target: str, one: Mapping[str, Any], past: Past, at: Room) -> Text:
    name = one["task_set"]
    short = name if len(name) <= SET_NAME else f"{name[: SET_NAME - 1]}…"
    line = Text("  ").append(f"{short:<{SET_NAME}}", STYLE[Quality(one["quality"])] if one["fresh"] else "dim strike")
    for i, metric in enumerate(SHOWN):
        line.append("  " if i else " ").append_text(cell(one, metric, past.series(target, name, metric), at))
    return line


def _event(one: Event) -> Text:
    return Text.assemble((f"{one.at.astimezone():%H:%M:%S}  ", "dim"), (one.said, one.style))


def _that_fit(blocks: Sequence[Sequence[Text]], free: int, *, top: int) -> list[Text]:
    """Targets from `top` on, whole ones as long as there is room; what is left out is counted, never silent."""
    first = max(0, min(top, len(blocks) - 1))
    lines = [Text(f"({first} above)", style="dim")] if first else []
    for i, block in enumerate(blocks[first:], start=first):
        last = i == len(blocks) - 1
        room_left = free - len(lines) - (0 if last else 1)
        if len(block) > room_left:
            shown = list(block[: max(0, room_left)]) if i == first else []
            left = len(blocks) - i - bool(shown)
            more = [Text(f"({left} more below: j and k move, a higher window shows more)", style="dim")] if left else []
            return [*lines, *shown, *more]
        lines += block
    return lines
