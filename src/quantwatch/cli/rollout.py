"""`quantwatch rollout`: tell a running daemon that baseline or nodes are being exchanged on purpose."""

from typing import Annotated
from urllib.parse import quote, urlencode

import typer

from quantwatch.cli.admin import Config, asked, say, user
from quantwatch.errors import InputError
from quantwatch.flow.state import ROLLOUT

app = typer.Typer(help="An expected rollout: a window in which changes are no surprise.", no_args_is_help=True)

Target = Annotated[str | None, typer.Option(help="Only this target is exchanged")]
Pool = Annotated[str | None, typer.Option(help="Only the targets of this pool are exchanged")]
Author = Annotated[str | None, typer.Option(help="Who says so; the user of this shell if left out")]


@app.command("begin")
def begin(
    config: Config,
    for_: Annotated[str, typer.Option("--for", help="How long it may last: 90m, 2h, 1d")],
    reason: Annotated[str, typer.Option(help="What is rolled out; everybody who wonders will read it")],
    target: Target = None,
    pool: Pool = None,
    author: Author = None,
) -> None:
    """Expect changes for a while: nothing acts on what is rolled out, and a changed baseline is no alarm.

    Without --target or --pool everything is rolled out, the baseline included.
    """
    body = {"scope": _scope(target, pool), "reason": reason, "author": author or user(), "seconds": _seconds(for_)}
    told = asked(config, lambda link: link.post("/api/v1/pauses", body))
    say(f"a rollout of {told['scope'].removeprefix(ROLLOUT)} is expected until {told['until']}")
    say(f"when it is done: quantwatch rollout end --config {config}")
    if told["scope"] == f"{ROLLOUT}all":
        say(f"and, where the baseline was exchanged: quantwatch enroll --config {config}")


@app.command("end")
def end(config: Config, target: Target = None, pool: Pool = None, author: Author = None) -> None:
    """End an expected rollout before its time."""
    scope = _scope(target, pool)
    running = asked(config, lambda link: link.get("/api/v1/pauses"))["pauses"]
    found = [one for one in running if one["scope"] == scope]
    if not found:
        known = ", ".join(one["scope"].removeprefix(ROLLOUT) for one in running if one["scope"].startswith(ROLLOUT))
        raise InputError(f"no rollout of {scope.removeprefix(ROLLOUT)} is expected; there are: {known or 'none'}")
    query = urlencode({"author": author or user()})
    for one in found:
        path = f"/api/v1/pauses/{quote(one['id'], safe='')}?{query}"
        asked(config, lambda link, path=path: link.delete(path))  # type: ignore[misc]
    say(f"the rollout of {scope.removeprefix(ROLLOUT)} is over")


def _scope(target: str | None, pool: str | None) -> str:
    if target is not None and pool is not None:
        raise InputError("--target and --pool exclude each other")
    if target is not None:
        return f"{ROLLOUT}target:{target}"
    return f"{ROLLOUT}all" if pool is None else f"{ROLLOUT}pool:{pool}"


def _seconds(given: str) -> float:
    from quantwatch.config.units import positive_seconds

    try:
        return positive_seconds(given)
    except ValueError as exc:
        raise InputError(f"--for {given}: {exc}") from exc
