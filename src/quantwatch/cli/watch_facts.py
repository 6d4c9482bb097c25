"""What there is to tell of a board, one fact a key, so that two boards can be held against each other."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from quantwatch.cli.status import local
from quantwatch.cli.tables import STYLE
from quantwatch.flow.pool import PoolState
from quantwatch.flow.state import ROLLOUT, Human, Routing
from quantwatch.flow.verdict import Quality

Key = tuple[str, ...]
Said = tuple[str, str]
"""A sentence and its style."""


@dataclass(frozen=True, slots=True)
class Fact:
    """value: what must differ for the fact to be told again. over: what is said once it is no longer there.

    usual: it is as it should be, so nobody need hear of it before it has changed.
    """

    value: object
    said: str
    style: str = ""
    over: str = ""
    usual: bool = False


Facts = Mapping[Key, Fact]


def facts(board: Mapping[str, Any], now: datetime) -> dict[Key, Fact]:
    """Everything of a board (expose/as_json) that is worth a line when it changes. now: for the form of times."""
    return dict(_facts(board, now))


def differences(before: Facts, after: Facts) -> Iterator[Said]:
    """What is said of the way from one board to the next: what is over first, then what is new or other."""
    for key, fact in before.items():
        if key not in after and fact.over:
            yield fact.over, "dim"
    for key, fact in after.items():
        known = before.get(key)
        if known is None or known.value != fact.value:
            yield fact.said, fact.style


def remarkable(all_of: Facts) -> Iterator[Said]:
    """What is said of a first board, which nothing can be held against."""
    yield from ((fact.said, fact.style) for fact in all_of.values() if not fact.usual)


def _facts(board: Mapping[str, Any], now: datetime) -> Iterator[tuple[Key, Fact]]:
    yield from _own(board)
    yield from _baseline(board["baseline"])
    for pool in board["pools"]:
        yield from _pool(pool)
    for target in board["targets"]:
        yield from _target(target, now)
    for one in board["pauses"]:
        until = f"until {local(one['until'], now)}" if one["until"] else "until resumed"
        scope = one["scope"].removeprefix(ROLLOUT)
        what = "paused:" if scope == one["scope"] else "rollout expected:"
        said = f"{what} {scope} {until}, by {one['author']}: {one['reason']} ({one['id']})"
        yield ("pause", one["id"]), Fact(one["until"], said, "yellow", f"over: {what} {scope} ({one['id']})")
    for one in board["proposals"]:
        asks = f"{one['action']} {one['target']} ({one['decision']})"
        said = f"waits for approval until {local(one['expires'], now)}: {asks}: {one['reason']}"
        yield ("proposal", one["decision"]), Fact(one["expires"], said, "bold yellow", f"waits no more: {asks}")


def _own(board: Mapping[str, Any]) -> Iterator[tuple[Key, Fact]]:
    own = board["own"]
    yield ("own", "started"), Fact(own["started"], "the daemon has been started", "bold", usual=True)
    yield ("own", "config"), Fact(own["config_digest"], "another configuration is in force", usual=True)
    for why in board["not_ready"]:
        yield ("ready", why), Fact(why, f"not ready: {why}", "bold red", f"no longer: {why}")
    if not own["reload_ok"]:
        said = "the configuration on disk was refused; an older one runs"
        yield ("own", "reload"), Fact(1, said, "bold red", "the configuration on disk is the one that runs")
    if own["gateway_trouble"]:
        trouble = own["gateway_trouble"]
        yield ("own", "gateway"), Fact(trouble, f"gateway: {trouble}", "bold red", "gateway: no trouble any more")
    if own["unwritten_runs"]:
        said = f"runs wait for the store ({own['unwritten_runs']}); nothing acts meanwhile"
        yield ("own", "unwritten"), Fact(1, said, "bold red", "no run waits for the store any more")


def _baseline(baseline: Mapping[str, Any]) -> Iterator[tuple[Key, Fact]]:
    trouble, sound = baseline["trouble"], baseline["sound"]
    if trouble:
        yield ("baseline",), Fact(trouble, f"baseline: not sound, so nothing acts: {trouble}", "bold red")
    elif sound is None:
        yield ("baseline",), Fact(None, "baseline: not proven yet, so nothing acts", "yellow")
    else:
        yield ("baseline",), Fact(sound, "baseline: sound", "green", usual=True)


def _pool(pool: Mapping[str, Any]) -> Iterator[tuple[Key, Fact]]:
    name = f"pool {pool['pool']}"
    out = (pool["isolated"], pool["max_isolated"])
    said = f"{name}: {out[0]} out of traffic, {out[1]} allowed"
    yield ("pool", name, "out"), Fact(out, said, "yellow" if out[0] else "", usual=not out[0])
    well = pool["state"] == PoolState.HEALTHY
    stands = f"{name}: {pool['state']}" + (f"; {pool['reason']}" if pool["reason"] and not well else "")
    yield ("pool", name, "state"), Fact(pool["state"], stands, "" if well else "bold red", usual=well)
    yield ("pool", name, "mode"), Fact(pool["mode"], f"{name}: mode {pool['mode']}", usual=True)
    if pool["rungs"]:
        said = f"{name}: traffic on rung {pool['rung'] or '-'}"
        yield ("pool", name, "rung"), Fact(pool["rung"], said, over=f"{name}: no ladder any more", usual=True)
    if pool["missing"]:
        named = ", ".join(pool["missing"])
        said = f"{name}: by the gateway's own list no traffic goes to {named}"
        yield ("pool", name, "missing"), Fact(named, said, "yellow", f"{name}: the gateway's list is complete again")


def _target(one: Mapping[str, Any], now: datetime) -> Iterator[tuple[Key, Fact]]:
    name, quality, routing = one["target"], Quality(one["quality"]), one["routing"]
    gone = f"{name}: no longer shown"
    said = f"{name}: {quality}: {one['reason']}"
    yield ("target", name), Fact(quality, said, STYLE[quality], gone, usual=quality is Quality.OK)
    seen = f", verified: {'yes' if one['verified'] else 'no'}" if one["verified"] is not None else ""
    why = f" by decision {one['decision']}" if one["decision"] and routing != Routing.IN else ""
    place = Fact(
        (routing, one["verified"]), f"{name}: routing {routing}{why}{seen}", "bold", usual=routing == Routing.IN
    )
    yield ("routing", name), place
    if one["human"] != Human.NONE:
        until = f"until {local(one['human_until'], now)}" if one["human_until"] else "until released"
        told = f"{name}: a person has said {one['human']} {until}, by {one['human_author']}: {one['human_reason']}"
        yield ("human", name), Fact((one["human"], one["human_until"]), told, "yellow", f"{name}: free of that word")
    if (one["weight"] or 1) < 1:
        told = f"{name}: {one['weight']:.0%} of its weight"
        yield ("weight", name), Fact(one["weight"], told, "yellow", f"{name}: all of its weight")
    if one["probation_until"]:
        told = f"{name}: on probation until {local(one['probation_until'], now)}"
        yield ("probation", name), Fact(one["probation_until"], told, "yellow", f"{name}: probation is over")
    for each in one["task_sets"]:
        if each["run"] is not None:
            ran = f"{each['task_set']} on {name}: {each['last']} ({each['run']})"
            yield ("run", name, each["task_set"]), Fact(each["run"], ran, "dim", usual=True)
