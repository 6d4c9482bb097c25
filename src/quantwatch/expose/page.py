"""The landing page: what runs here, how each target stands, and where to look further. Static HTML without scripts."""

import base64
import hashlib
from collections.abc import Iterable
from html import escape
from urllib.parse import quote

from quantwatch import __version__
from quantwatch.expose.as_json import not_ready, time_json
from quantwatch.flow.board import Board, TargetBoard
from quantwatch.flow.state import Human, Routing, TargetState
from quantwatch.flow.verdict import BREACHES, CANNOT_TELL, Quality

STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --paper: #fcfcfd; --line: #d9dce1; --soft: #60646c; --link: #0b61c4;
  --good: #18794e; --warn: #8a5a00; --bad: #c62a2f; }
@media (prefers-color-scheme: dark) { :root { --ink: #eceef0; --paper: #111315; --line: #34383d; --soft: #9ba1a6;
  --link: #70b8ff; --good: #4cc38a; --warn: #f1a10d; --bad: #ff8589; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 72rem; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.3rem; margin: 0; } h1 small, td small, footer { color: var(--soft); font-weight: normal; }
a { color: var(--link); } ul { padding-left: 1.2rem; } nav a { margin-right: 1rem; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; }
th, td { text-align: left; vertical-align: top; padding: .4rem .8rem .4rem 0; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; overflow-wrap: normal; font-size: .87rem; }
.good { color: var(--good); } .warn { color: var(--warn); }
.bad { color: var(--bad); font-weight: 600; }
"""
_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()

POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""Content-Security-Policy: nothing is loaded, nothing runs, this one style sheet applies."""

PUBLIC_LINKS = ("/metrics", "/-/healthy", "/-/ready")
ADMIN_LINKS = ("/api/v1/status", "/api/v1/pauses")


def page(board: Board, *, links: Iterable[str], verdicts: bool) -> str:
    """The page as HTML. links: paths to show. verdicts: whether each target links to its /verdict."""
    rows = "".join(_row(one, verdicts=verdicts) for one in board.targets)
    head = "".join(f"<th scope=col>{name}</th>" for name in ("Target", "Pool", "Quality", "Routing", "Why"))
    return (
        "<!doctype html>\n<html lang=en>\n<head><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width, initial-scale=1'>"
        f"<title>quantwatch</title>\n<style>{STYLE}</style></head>\n<body>\n"
        f"<h1>quantwatch <small>{escape(__version__)}</small></h1>\n"
        f"<ul>{''.join(f'<li>{line}</li>' for line in _lines(board))}</ul>\n"
        f"<table><thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table>\n"
        f"<nav>{''.join(f'<a href={path}>{path}</a>' for path in links)}</nav>\n"
        f"<footer>Running since {time_json(board.own.started)}</footer>\n</body>\n</html>\n"
    )


def _lines(board: Board) -> Iterable[str]:
    """What stands above the table: the daemon, its configuration, the baseline, the gateway, the pools, the pauses."""
    own, baseline = board.own, board.baseline
    reasons = not_ready(board)
    yield _said("warn", "Not ready: " + "; ".join(reasons)) if reasons else _said("good", "Ready")
    if not own.reload_ok:
        yield _said("warn", "The configuration on disk cannot be used; an earlier one runs")
    yield _baseline(baseline.sound, baseline.trouble)
    if own.gateway_trouble is not None:
        yield _said("warn", f"Gateway: {own.gateway_trouble}")
    for pool in board.pools:
        storm = _said("bad", ", storm: nothing acts") if pool.storm else ""
        away = f"{pool.isolated} of {pool.targets} isolated, {pool.allowed} allowed"
        yield f"Pool {escape(pool.name)}: {escape(pool.mode.value)}, {away}{storm}"
        if pool.missing:
            yield _said("warn", f"By the gateway's own list no traffic goes to {', '.join(pool.missing)}")
    for pause in board.pauses:
        until = time_json(pause.until) or f"further notice (review {time_json(pause.review)})"
        yield _said("warn", f"Paused ({pause.scope}) by {pause.author} until {until}: {pause.reason}")
    for one in board.proposals:
        against = f"; objections then: {one.objections}" if one.objections else ""
        waits = f"Waits for approval until {time_json(one.expires)}: {one.action} {one.target}: {one.reason}{against}"
        yield _said("warn", f"{waits} ({one.decision})")


def _baseline(sound: bool | None, trouble: str | None) -> str:  # noqa: FBT001, three states of one thing
    if trouble is not None:
        return _said("warn", f"Baseline: {trouble}")
    told = {True: ("good", "Baseline: sound"), False: ("bad", "Baseline: not sound, nothing acts")}
    return _said("warn", "Baseline: not proven yet") if sound is None else _said(*told[sound])


def _row(target: TargetBoard, *, verdicts: bool) -> str:
    state = target.state
    name = escape(state.target)
    if verdicts:
        name = f'<a href="/verdict/{quote(state.target, safe="", errors="replace")}">{name}</a>'
    notes = ["left the configuration"] * target.left + [_spoken(state)] * (state.human is not Human.NONE)
    notes += [f"on probation until {time_json(target.probation_until)}"] * (target.probation_until is not None)
    notes += [f"stays out until {time_json(target.hold_until)} at least"] * (target.hold_until is not None)
    routed = _said("good" if state.routing is Routing.IN else "bad", state.routing.value)
    cells = (
        name + "".join(f"<br><small>{escape(note)}</small>" for note in notes),
        escape(state.pool),
        _said(_tone(target.quality), target.quality.value),
        routed,
        escape(target.reason),
    )
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>\n"


def _spoken(state: TargetState) -> str:
    until = time_json(state.human_until) or "further notice"
    return f"{state.human.value} by {state.human_author} until {until}: {state.human_reason}"


def _tone(quality: Quality) -> str:
    if quality in BREACHES:
        return "bad"
    return "warn" if quality is Quality.WARN or quality in CANNOT_TELL else "good"


def _said(tone: str, text: str) -> str:
    return f"<span class={tone}>{escape(text)}</span>"
