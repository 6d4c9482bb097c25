"""What the gateway commands print, for people and as JSON."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from quantwatch.act.contract import Seen
from quantwatch.act.known import abilities_of, said

if TYPE_CHECKING:
    from quantwatch.config.gateway import GatewaySettings
    from quantwatch.flow.decision import Outcome
    from quantwatch.flows.rehearse import Rehearsal
    from quantwatch.flows.standings import Standings
    from quantwatch.flows.witness import Step

STYLES = {Seen.ISOLATED: "yellow", Seen.ROUTABLE: "green", Seen.UNKNOWN: "magenta"}


def standings_json(found: "Standings", driver: str) -> dict[str, Any]:
    """How targets stand, ready for json.dumps."""
    can = found.abilities
    return {
        "schema": 1,
        "driver": driver,
        "abilities": {"reads_back": can.reads_back, "proven": can.proven, "acts": can.acts},
        "trouble": found.trouble,
        "targets": [
            {"target": part.target, "pool": part.pool, "gateway_name": part.node, "stands": seen.value}
            for part, seen in found.stands
        ],
        "others": list(found.others),
        "missing": list(found.missing),
    }


def show_standings(found: "Standings", driver: str, out: Console) -> None:
    """Print how targets stand."""
    table = Table("target", "pool", "name at the gateway", "stands")
    for part, seen in found.stands:
        table.add_row(Text(part.target), Text(part.pool), Text(part.node), Text(seen.value, STYLES[seen]))
    out.print(table)
    if found.others:
        out.print(f"also listed there: {', '.join(found.others)}", markup=False, soft_wrap=True)
    if found.missing:
        said_of = f"gets no traffic by the gateway's own list: {', '.join(found.missing)}"
        out.print(said_of, style="yellow", markup=False, soft_wrap=True)
    if found.trouble is not None:
        out.print(found.trouble, style="magenta", markup=False, soft_wrap=True)
    out.print(f"driver {driver}: {said(found.abilities)}", markup=False, soft_wrap=True)


def show_head(gateway: "GatewaySettings", out: Console) -> None:
    """Print who is about to be asked."""
    can = abilities_of(gateway.driver, state_url=gateway.state_url is not None)
    where = f" at {gateway.url}" if gateway.url is not None else ""
    out.print(f"driver {gateway.driver}{where}: {said(can)}", markup=False, soft_wrap=True)


def show_step(step: "Step", out: Console) -> None:
    """Print one exchange."""
    style = "" if step.ok else "magenta"
    out.print(f"  {step.seconds:8.3f} s  {step.what:<10} {step.said}", style=style, markup=False, soft_wrap=True)


def show_end(one: "Rehearsal", out: Console) -> None:
    """Print what came of a rehearsal, loudly where the target may still be out."""
    out.print(ending(one), style="green" if one.proven else "yellow", markup=False, soft_wrap=True)
    if one.by_hand is not None:
        name = one.part.target
        out.print(f"{name} MAY STILL BE OUT OF TRAFFIC. To bring it back:", style="bold red", markup=False)
        out.print(f"  {one.by_hand}", style="bold red", markup=False, soft_wrap=True)


def ending(one: "Rehearsal") -> str:
    """What came of a rehearsal, in a sentence or two."""
    name, seconds = one.part.target, sum(step.seconds for step in one.steps)
    if one.refused is not None:
        return f"nothing was done: {one.refused}"
    if one.proven:
        return f"{name} went out and came back, both verified, within {seconds:.2f} s of calls and looks"
    parts = [f"{what}: {_end(end)}" for what, end in (("out", one.out), ("back", one.back)) if end is not None]
    whole = "; ".join(parts) or "nothing was done"
    return f"{name}: {'interrupted; ' if one.interrupted else ''}{whole}"


def _end(outcome: "Outcome") -> str:
    return f"{outcome.result.value}, {outcome.detail}"


def rehearsals_json(done: "Sequence[Rehearsal]") -> dict[str, Any]:
    """Rehearsals, ready for json.dumps."""
    return {"schema": 1, "proven": all(one.proven for one in done), "rehearsals": [_rehearsal(one) for one in done]}


def _rehearsal(one: "Rehearsal") -> dict[str, Any]:
    return {
        "target": one.part.target,
        "pool": one.part.pool,
        "gateway_name": one.part.node,
        "driver": one.driver,
        "proven": one.proven,
        "interrupted": one.interrupted,
        "refused": one.refused,
        "out": _outcome(one.out),
        "back": _outcome(one.back),
        "by_hand": one.by_hand,
        "steps": [{"what": s.what, "seconds": s.seconds, "said": s.said, "ok": s.ok} for s in one.steps],
    }


def _outcome(outcome: "Outcome | None") -> dict[str, Any] | None:
    if outcome is None:
        return None
    return {"result": outcome.result.value, "detail": outcome.detail, "calls": outcome.attempts}
