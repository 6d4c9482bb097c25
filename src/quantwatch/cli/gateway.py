"""`quantwatch gateway` and `quantwatch drill`: how targets stand at the gateway, and a rehearsal without a fault."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from quantwatch.cli.exit_codes import BREACH, CANNOT_SAY, OK
from quantwatch.cli.output import STANDARD_OUTPUT, Terminal, refuse_unwritable, write_json
from quantwatch.clock import SystemClock
from quantwatch.errors import InputError

if TYPE_CHECKING:
    from quantwatch.act.contract import Driver
    from quantwatch.config.schema import Settings
    from quantwatch.flows.rehearse import Part, Rehearsal
    from quantwatch.flows.witness import Step
    from quantwatch.wiring.tools import Tools

app = typer.Typer(help="The gateway: how targets stand there, and a rehearsal.", no_args_is_help=True)

Config = Annotated[Path, typer.Option(help="The YAML configuration file")]
Json = Annotated[Path | None, typer.Option("--json", help="Write the result as JSON; - for standard output")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask; nodes go out of traffic for a moment")]


@app.command("show")
def show(config: Config, json_file: Json = None) -> None:
    """How every target stands at the gateway now. Nothing is changed.

    Exit code: 0 all of it was told, 2 something was not, 3 usage or configuration error.
    """
    from quantwatch.cli.gateway_tables import show_standings, standings_json
    from quantwatch.flows.standings import standings

    settings = _settings(config, json_file)

    async def ask() -> int:
        async with AsyncExitStack() as stack:
            found = await standings(await _driver(settings, stack, folder=config.parent), _parts(settings))
        if json_file is not None:
            write_json(standings_json(found, settings.gateway.driver), json_file)
        show_standings(found, settings.gateway.driver, _out(json_file))
        return OK if found.told else CANNOT_SAY

    raise typer.Exit(asyncio.run(ask()))


@app.command("test")
def rehearsal(
    config: Config,
    target: Annotated[str | None, typer.Option(help="Which target; the only one if left out")] = None,
    yes: Yes = False,  # noqa: FBT002, a flag
    json_file: Json = None,
) -> None:
    """Take one target out of traffic at the gateway, read that back, and bring it back at once, without any fault.

    Nothing is measured, decided or recorded. Exit code: 0 both ways verified, 1 the gateway did not do it, 2 cannot
    tell, 3 usage or configuration error.
    """
    settings = _settings(config, json_file)
    names = [one.name for one in settings.targets]
    if target is None and len(names) > 1:
        raise InputError(f"--target is missing; known: {', '.join(names)}")
    raise typer.Exit(_rehearse(config, settings, [target or names[0]], yes=yes, json_file=json_file))


def drill(
    config: Config,
    pool: Annotated[str, typer.Option(help="Whose targets are rehearsed, one after another")],
    yes: Yes = False,  # noqa: FBT002, a flag
    json_file: Json = None,
) -> None:
    """Rehearse isolation and return of every target of a pool, one after another; ends at the first that fails.

    Exit code: as `quantwatch gateway test`.
    """
    settings = _settings(config, json_file)
    names = [one.name for one in settings.targets if one.pool == pool]
    if not names:
        raise InputError(f"--pool {pool}: not in the configuration; known: {', '.join(settings.pools)}")
    raise typer.Exit(_rehearse(config, settings, names, yes=yes, json_file=json_file))


def _settings(config: Path, json_file: Path | None) -> "Settings":
    from quantwatch.config.load import load_settings
    from quantwatch.prompts.load import shipped_sets

    settings = load_settings(config, shipped=shipped_sets())
    if json_file is not None:
        refuse_unwritable(json_file)
    return settings


def _out(json_file: Path | None) -> Console:
    return Terminal(stderr=json_file == STANDARD_OUTPUT, highlight=False)


async def _driver(settings: "Settings", stack: AsyncExitStack, *, folder: Path) -> "Driver":
    from quantwatch.wiring.drivers import driver

    return await driver(settings, stack, _tools(), isolated=lambda _: False, folder=folder)


def _tools() -> "Tools":
    from quantwatch.wiring.tools import Tools

    return Tools(SystemClock(), Random())  # noqa: S311, nothing secret is drawn


def _parts(settings: "Settings") -> "list[Part]":
    """Every target with those of its pool who could take its traffic, by their names at the gateway."""
    from quantwatch.flows.pools import pools_of
    from quantwatch.flows.rehearse import Part

    pools = pools_of(settings)
    names = {one.name: one.gateway_name or one.url for one in settings.targets}
    parts = []
    for one in settings.targets:
        peers = [names[other.name] for other in settings.targets if other.pool == one.pool and other is not one]
        fallback = pools[one.pool].fallback_name
        others = dict.fromkeys([*peers, *([fallback] if fallback is not None else [])])
        parts.append(Part(one.name, one.pool, names[one.name], tuple(others)))
    return parts


def _rehearse(config: Path, settings: "Settings", names: Sequence[str], *, yes: bool, json_file: Path | None) -> int:
    """Rehearse these targets in turn, as long as all goes well; the exit code."""
    from quantwatch.cli.gateway_guard import guarded, refuse_idle_driver
    from quantwatch.cli.gateway_tables import rehearsals_json, show_end, show_head

    parts = {one.target: one for one in _parts(settings)}
    unknown = [name for name in names if name not in parts]
    if unknown:
        raise InputError(f"--target {unknown[0]}: not in the configuration; known: {', '.join(parts)}")
    refuse_idle_driver(settings.gateway.driver)
    chosen = [parts[name] for name in names]
    out = _out(json_file)
    with ExitStack() as stack:
        stack.enter_context(guarded(config, settings, chosen))
        _confirm(chosen, yes=yes)
        show_head(settings.gateway, out)
        done = asyncio.run(_in_turn(settings, chosen, out, folder=config.parent))
    if json_file is not None:
        write_json(rehearsals_json(done), json_file)
    for one in done:
        show_end(one, out if one.proven else Terminal(stderr=True, highlight=False))
    return max(_code(one) for one in done) if len(done) == len(chosen) else max(*map(_code, done), CANNOT_SAY)


def _code(one: "Rehearsal") -> int:
    from quantwatch.flow.decision import DONE

    if one.proven:
        return OK
    if one.refused is not None or one.out is None:
        return CANNOT_SAY
    done = one.out.result in DONE and one.back is not None and one.back.result in DONE
    return CANNOT_SAY if done else BREACH


def _confirm(parts: "Sequence[Part]", *, yes: bool) -> None:
    said = ", ".join(f"{one.target} ({one.node})" for one in parts)
    if yes:
        return
    if not sys.stdin.isatty():
        raise InputError(f"nobody can be asked here: --yes allows that {said} goes out of traffic for a moment")
    typer.confirm(f"Take {said} out of traffic at the gateway for a moment?", abort=True, err=True)


async def _in_turn(settings: "Settings", parts: "Sequence[Part]", out: Console, *, folder: Path) -> "list[Rehearsal]":
    """One rehearsal after another, until one is not proven. Signals break it off, and what is out comes back first."""
    from quantwatch.cli.gateway_guard import broken_off
    from quantwatch.cli.gateway_tables import show_step
    from quantwatch.flows.rehearse import rehearse
    from quantwatch.wiring.drivers import traffic_probe

    def tell(step: "Step") -> None:
        show_step(step, out)

    done: list[Rehearsal] = []
    async with AsyncExitStack() as stack:
        stop = stack.enter_context(broken_off(lambda said: out.print(said, style="magenta", markup=False)))
        driver = await _driver(settings, stack, folder=folder)
        traffic = await traffic_probe(settings, stack, _tools())
        for part in parts:
            out.print(f"{part.target} ({part.node})", style="bold", markup=False, soft_wrap=True)
            done.append(await rehearse(part, driver, SystemClock(), tell=tell, stop=stop, traffic=traffic))
            if not done[-1].proven:
                break
    return done
