"""What a daemon sees, on 80 columns: a line a target, its reason below, then whatever stands in the way."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from quantwatch.cli.tables import STYLE, number
from quantwatch.flow.reference import ReferenceState
from quantwatch.flow.state import ROLLOUT, Human, Routing
from quantwatch.flow.verdict import GOOD, Quality

LONGEST_NAME = 24
"""Columns for a target; a longer name has a line of its own."""

LONGEST_POOL = 12
"""Columns for a pool; a longer name is cut, and stands whole further down."""

UNITS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"))


def show_status(board: dict[str, Any], console: Console, *, now: datetime) -> None:
    """Print a board in the form of expose/as_json. now: for ages; times are shown in the zone of this machine."""
    head = ("target", "pool", "quality", "routing")
    rows = [(one["target"], _cut(one["pool"]), one["quality"], one["routing"]) for one in board["targets"]]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    widths[0] = min(widths[0], LONGEST_NAME)
    if rows:
        console.print(_line((*head, "since"), widths), style="bold", markup=False, soft_wrap=True)
    for one, row in zip(board["targets"], rows, strict=True):
        console.print(_line((*row, local(one["since"], now)), widths, STYLE[Quality(row[2])]), soft_wrap=True)
        for reason, style in _below(one, now):
            console.print(Padding(Text(reason, style=style), (0, 0, 0, 2)))
    if rows:
        console.print()
    for said, style in notices(board, now):
        console.print(Text(said, style=style))


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST_POOL else name[: LONGEST_POOL - 1] + "…"


def _line(cells: tuple[str, ...], widths: list[int], style: str = "") -> Text:
    text = Text()
    if len(cells[0]) > widths[0]:
        text.append(f"{cells[0]}\n")
        cells = ("", *cells[1:])
    for i, cell in enumerate(cells):
        width = widths[i] if i < len(widths) else 0
        text.append(cell, style if i == 2 else "").append(" " * (max(0, width - len(cell)) + 2))
    text.rstrip()
    return text


def _below(target: dict[str, Any], now: datetime) -> Iterator[tuple[str, str]]:
    """What stands below a target's line, each with its style."""
    yield target["reason"], ""
    if target["routing"] == Routing.IN and (target.get("weight") or 1) < 1:
        yield f"{target['weight']:.0%} of its weight", "yellow"
    if target["routing"] != Routing.IN and target["decision"]:
        yield f"by decision {target['decision']}", "dim"
    if target.get("hold_until"):
        yield f"stays out until {local(target['hold_until'], now)} at least, isolation {target['ejections']}", "dim"
    if target.get("probation_until"):
        yield (
            f"on probation until {local(target['probation_until'], now)}, isolated {target['ejections']} times",
            "yellow",
        )
    if target["human"] != Human.NONE:
        until = f"until {local(target['human_until'], now)}" if target["human_until"] else "until released"
        yield f"a person has said: {target['human']} {until}, by {target['human_author']}", "yellow"
        yield f"because: {target['human_reason']}", "yellow"
    for one in target["task_sets"]:
        if one["quality"] not in GOOD or not one["fresh"]:
            yield _bad_set(one, now), "dim"
    if target["running"]:
        yield f"running: {target['running']}" + (f", {target['queued']} more due" if target["queued"] else ""), "dim"


def _bad_set(one: dict[str, Any], now: datetime) -> str:
    period = f"due every {age(one['period_seconds'] or 0)}"
    if one["at"] is None:
        return f"{one['task_set']}: no run yet, {period}"
    ran = f"last run {age((now - datetime.fromisoformat(one['at'])).total_seconds())} ago"
    row = f", breaches in a row: {one['breaches']}" if one["breaches"] else ""
    stale = "" if one["fresh"] else ", too old to count"
    return f"{one['task_set']}: {one['quality']}{row}, {ran}{stale}, {period} ({one['run']})"


def notices(board: dict[str, Any], now: datetime) -> Iterator[tuple[str, str]]:
    """Sentences about everything but the targets, the worst first within each kind."""
    yield from ((f"not ready: {one}", "bold red") for one in board["not_ready"])
    yield from _own(board["own"])
    yield _baseline(board["baseline"], now)
    yield from _references(board["baseline"], now)
    for pool in board["pools"]:
        kept = f"{pool['isolated']} of {pool['targets']} out of traffic, at most {pool['max_isolated']}"
        yield f"pool {pool['pool']}: mode {pool['mode']}, {kept}", ""
        if pool.get("rungs"):
            yield f"pool {pool['pool']}: traffic on rung {pool['rung'] or '-'} of {' -> '.join(pool['rungs'])}", ""
        if pool["storm"]:
            yield from _storm(pool, now)
        if pool.get("missing"):
            named = ", ".join(pool["missing"])
            yield f"pool {pool['pool']}: by the gateway's own list no traffic goes to {named}", "yellow"
    for one in board["pauses"]:
        until = f"until {local(one['until'], now)}" if one["until"] else _unending(one, now)
        whose = f"{until}, by {one['author']}: {one['reason']} ({one['id']})"
        scope = one["scope"].removeprefix(ROLLOUT)
        yield f"{'paused' if scope == one['scope'] else 'rollout expected:'} {scope} {whose}", "yellow"
    for one in board["proposals"]:
        waits = f"waits for approval until {local(one['expires'], now)}: {one['action']} {one['target']}"
        yield f"{waits}: {one['reason']} ({one['decision']})", "bold yellow"
        if one["objections"]:
            yield f"  objections then: {one['objections']}", "yellow"
        yield f"  quantwatch approve {one['decision']}, or quantwatch reject {one['decision']} --reason ...", "yellow"


def _unending(pause: dict[str, Any], now: datetime) -> str:
    review = pause.get("review")
    return "until resumed" if review is None else f"until resumed (review {local(review, now)})"


def _storm(pool: dict[str, Any], now: datetime) -> Iterator[tuple[str, str]]:
    since = f" since {local(pool['since'], now)}" if pool["since"] else ""
    yield f"pool {pool['pool']}: {pool['state']}{since}; {pool['reason']}", "bold red"
    if pool["cooldown_until"]:
        yield f"  it has calmed; its cooldown ends at {local(pool['cooldown_until'], now)}", "yellow"


def _own(own: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if not own["reload_ok"]:
        yield "the configuration on disk was refused; an older one runs, and the log says why", "bold red"
    if own["unwritten_runs"]:
        yield f"runs that wait for the store: {own['unwritten_runs']}; nothing acts meanwhile", "bold red"
    if own["gateway_trouble"]:
        yield f"gateway: {own['gateway_trouble']}", "bold red"
    for channel, count in (own.get("notices_waiting") or {}).items():
        if count:
            yield f"notices that wait for the channel {channel}: {count}", "yellow"
    if own["open_intents"]:
        yield f"orders to the gateway that are still open: {own['open_intents']}", "yellow"


def _baseline(baseline: dict[str, Any], now: datetime) -> tuple[str, str]:
    if baseline["trouble"]:
        return f"baseline: not sound, so nothing acts: {baseline['trouble']}", "bold red"
    if baseline["checked"] is None:
        return "baseline: not checked yet, so nothing acts", "yellow"
    if baseline["sound"] is None:
        return (
            "baseline: not proven by a clean run yet, so nothing acts",
            "yellow",
        )
    drift = f", drift {number(baseline['drift_nats'])} nats" if baseline["drift_nats"] is not None else ""
    return f"baseline: sound, checked {local(baseline['checked'], now)}{drift}", ""


def _references(baseline: dict[str, Any], now: datetime) -> Iterator[tuple[str, str]]:
    """Enrolled answers that cannot be used, each with its cure; the others in one sentence."""
    listed = baseline.get("references", ())
    yield from ((f"reference of {one['task_set']}: {one['trouble']}", "bold red") for one in listed if one["trouble"])
    used = [one for one in listed if one["state"] == ReferenceState.STORED]
    if used:
        oldest = local(min(one["made"] for one in used), now)
        away = "" if baseline.get("answers") is not False else "; the baseline does not answer, and need not"
        yield f"references: enrolled answers for {len(used)} task sets, the oldest made {oldest}{away}", ""


def local(at: str | None, now: datetime) -> str:
    """A time of ISO 8601, short, in the zone of this machine: 14:02, 3 Nov 14:02, 2025-11-03."""
    if at is None:
        return "-"
    there, here = datetime.fromisoformat(at).astimezone(), now.astimezone()
    if there.date() == here.date():
        return f"{there:%H:%M}"
    return f"{there.day} {there:%b %H:%M}" if there.year == here.year else f"{there:%Y-%m-%d}"


def age(seconds: float) -> str:
    """A time span in its largest fitting unit: 40 s, 3 min, 26 h, 4 d."""
    for size, unit in UNITS:
        if seconds >= 2 * size or seconds == size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
