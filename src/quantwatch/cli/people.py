"""Commands by which a person has the last word: isolate, hold, release, confirm-healthy, approve, reject."""

from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from quantwatch.cli.admin import STATUS, Config, asked, say, user
from quantwatch.errors import InputError
from quantwatch.flow.state import Routing

Target = Annotated[str, typer.Argument(help="The target's name")]
Reason = Annotated[str, typer.Option(help="Why; everybody who wonders will read it")]
Author = Annotated[str | None, typer.Option(help="Who says so; the user of this shell if left out")]
Proposal = Annotated[
    str, typer.Argument(metavar="ID", help="The proposal's id, from `quantwatch status`; its beginning or end will do")
]


def isolate(
    config: Config,
    target: Target,
    reason: Reason,
    hours: Annotated[float | None, typer.Option(min=0.01, help="For so long; until it is released if left out")] = None,
    force: Annotated[  # noqa: FBT002, a flag
        bool, typer.Option("--force", help="Also where it takes the last backend, or more than the pool's cap")
    ] = False,
    author: Author = None,
) -> None:
    """Take a target out of traffic and keep it out, whatever its verdicts say, until it is released.

    After --hours the word ends, and clean runs bring the target back as they would after any isolation.
    """
    body = _word(target, reason, author, hours) | ({"force": True} if force else {})
    _told(_asked(config, "isolations", body), "isolation ordered", f"{target} is kept out")


def hold(
    config: Config,
    target: Target,
    reason: Reason,
    hours: Annotated[float | None, typer.Option(min=0.01, help="For so long; until it is released if left out")] = None,
    author: Author = None,
) -> None:
    """Let nothing automatic change a target's routing: in traffic it stays in, and out of traffic it stays out."""
    _told(_asked(config, "holds", _word(target, reason, author, hours)), "ordered", f"{target} is held as it is")


def release(
    config: Config,
    reason: Reason,
    target: Annotated[str | None, typer.Argument(help="The target's name")] = None,
    all_owned: Annotated[  # noqa: FBT002, a flag
        bool, typer.Option("--all-owned", help="Every target that quantwatch has isolated, before it is uninstalled")
    ] = False,
    author: Author = None,
) -> None:
    """Bring an isolated target back, and free it from what people have said about it.

    With --all-owned pause everything first, or what breaches is soon isolated again.
    """
    if all_owned is (target is not None):
        raise InputError("name one target, or give --all-owned for every isolation of quantwatch")
    if target is not None:
        _release(config, target, reason, author)
        return
    shown = asked(config, lambda link: link.get(STATUS))["targets"]
    owned = {one["target"]: one["routing"] for one in shown if one["decision"] is not None}
    coming = [name for name, routing in owned.items() if routing == Routing.RETURNING]
    for name in coming:
        say(f"{name} is on its way back already")
    wanted = [name for name in owned if name not in coming]
    failed = [why for name in wanted if (why := _not_released(config, name, reason, author)) is not None]
    if failed:
        raise InputError("; ".join(failed))
    if not owned:
        say("nothing is isolated by quantwatch")


def _not_released(config: Path, target: str, reason: str, author: str | None) -> str | None:
    """Why one of several targets was not released, None where it was: the others are released all the same."""
    say(target)
    try:
        _release(config, target, reason, author)
    except InputError as exc:
        return f"{target}: {exc}"
    return None


def _release(config: Path, target: str, reason: str, author: str | None) -> None:
    _told(_asked(config, "releases", _word(target, reason, author)), "release ordered", f"{target} is free")


def confirm_healthy(config: Config, target: Target, reason: Reason, author: Author = None) -> None:
    """Vouch for a target: what was measured up to now counts no more, and it comes back if we isolated it."""
    done = f"{target} starts anew; later breaches count"
    _told(_asked(config, "confirmations", _word(target, reason, author)), "release ordered", done)


def approve(
    config: Config,
    proposal: Proposal,
    reason: Annotated[str | None, typer.Option(help="Why; it is kept with the proposal")] = None,
    author: Author = None,
) -> None:
    """Approve what waits for a person in a pool of mode approve; everything is looked at again before it is done."""
    body = {"author": author or user(), **({"reason": reason} if reason else {})}
    _told(_asked(config, f"proposals/{quote(proposal, safe='')}/approve", body), "approved", "")


def reject(config: Config, proposal: Proposal, reason: Reason, author: Author = None) -> None:
    """Reject what waits for a person; the same comes again only after a rest and on new evidence."""
    body = {"author": author or user(), "reason": reason}
    _told(_asked(config, f"proposals/{quote(proposal, safe='')}/reject", body), "rejected", "")


def _word(target: str, reason: str, author: str | None, hours: float | None = None) -> dict[str, Any]:
    body: dict[str, Any] = {"target": target, "reason": reason, "author": author or user()}
    return body if hours is None else {**body, "seconds": hours * 3600}


def _asked(config: Path, path: str, body: dict[str, Any]) -> dict[str, Any]:
    return asked(config, lambda link: link.post(f"/api/v1/{path}", body))


def _told(answer: dict[str, Any], ordered: str, done: str) -> None:
    say(done if answer["decision"] is None else f"{ordered}: {answer['decision']}")
    for one in answer["told"]:
        say(f"  {one}")
