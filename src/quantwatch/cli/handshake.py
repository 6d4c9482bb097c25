"""`quantwatch handshake`: can these servers be compared at all?"""

import asyncio
import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from quantwatch.cli.exit_codes import CANNOT_SAY, OK
from quantwatch.cli.output import STANDARD_OUTPUT, Terminal, refuse_unwritable, write_json
from quantwatch.cli.servers import refuse_equal, secret, server
from quantwatch.clock import SystemClock
from quantwatch.config.schema import ProbeSettings
from quantwatch.errors import InputError
from quantwatch.flow.as_json import handshakes_json
from quantwatch.flow.prompt import ProbeMode
from quantwatch.net import Endpoint

if TYPE_CHECKING:
    from quantwatch.flow.handshake import Handshake

WORDS = {True: ("comparable", "green"), False: ("not comparable", "bold red"), None: ("cannot tell", "magenta")}
MARKS = {True: Text("yes", "green"), False: Text("no", "bold red"), None: Text("?", "yellow")}


def command(
    config: Annotated[Path | None, typer.Option(help="The YAML configuration file, with all its targets")] = None,
    baseline: Annotated[str | None, typer.Option(help="URL of the full-precision server")] = None,
    node: Annotated[list[str] | None, typer.Option(help="URL of a node, or NAME=URL; may be repeated")] = None,
    model: Annotated[str | None, typer.Option(help="Model name at all servers; their only model if left out")] = None,
    baseline_model: Annotated[str | None, typer.Option(help="Model name at the baseline, if it differs")] = None,
    k: Annotated[int, typer.Option(min=1, help="Log-probabilities a position; not with --config")] = 20,
    mode: Annotated[
        ProbeMode, typer.Option(help="How the servers will be asked; not with --config")
    ] = ProbeMode.PROMPT_SCORING,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the result as JSON; - for standard output")
    ] = None,
    api_key: Annotated[str | None, typer.Option(help="API key of the nodes: env:NAME or file:/path")] = None,
    baseline_api_key: Annotated[str | None, typer.Option(help="API key of the baseline; --api-key if left out")] = None,
    ca_file: Annotated[str | None, typer.Option(help="Certificate authority for https")] = None,
    timeout: Annotated[float, typer.Option(min=1, max=86400, help="Seconds for one request")] = 30.0,
) -> None:
    """See whether nodes and baseline can be compared: who they are, tokenizers, log-probabilities, one server a URL.

    Exit code: 0 comparable, 2 not comparable or cannot tell, 3 usage or configuration error, 4 internal error.
    """
    given = {"--baseline": baseline, "--node": node, "--model": model, "--baseline-model": baseline_model}
    _one_way(config, [name for name, value in given.items() if value])
    if json_file is not None:
        refuse_unwritable(json_file)
    if config is not None:
        meetings = _configured(config)
    else:
        key = secret(api_key)
        first = server(f"baseline={baseline}", baseline_model or model, secret(baseline_api_key) or key, ca_file)
        others = [server(one, model, key, ca_file) for one in node or []]
        refuse_equal(others)
        probe = ProbeSettings.model_validate({"timeout": f"{timeout:.3f}s"})
        meetings = _Meetings([(*one, 1) for one in (first, *others)], k, {mode}, probe)
    found = asyncio.run(_meet(meetings))
    if json_file is not None:
        write_json(handshakes_json(found), json_file)
    console = Terminal(stderr=json_file == STANDARD_OUTPUT, highlight=False)
    for table in _tables(found):
        console.print(table)
    raise typer.Exit(OK if all(one.ok for one in found) else CANNOT_SAY)


@dataclass(frozen=True, slots=True)
class _Meetings:
    """Whom to meet, the baseline first, each with its model and data-parallel ranks, and how they would be asked."""

    servers: Sequence[tuple[Endpoint, str | None, int]]
    k: int
    modes: Collection[ProbeMode]
    probe: ProbeSettings


def _one_way(config: Path | None, given: list[str]) -> None:
    """Either a configuration, or a baseline and nodes. Raises InputError."""
    if config is not None and given:
        raise InputError(f"--config and {given[0]} exclude each other")
    missing = [name for name in ("--baseline", "--node") if name not in given]
    if config is None and missing:
        raise InputError(f"{missing[0]} is missing; give --config FILE, or --baseline URL and --node URL")


def _configured(file: Path) -> _Meetings:
    """The servers of a configuration, to be asked as its task sets ask them."""
    from quantwatch.config.load import load_settings
    from quantwatch.flows.pools import BASELINE
    from quantwatch.prompts.load import shipped_sets
    from quantwatch.wiring import endpoint, prompt_sets

    shipped = shipped_sets()
    settings = load_settings(file, shipped=shipped)
    prompts = prompt_sets(settings, folder=file.parent, shipped=shipped)
    targets = [(endpoint(one.name, one), one.model, one.data_parallel_size) for one in settings.targets]
    return _Meetings(
        [(endpoint(BASELINE, settings.baseline), settings.baseline.model, 1), *targets],
        k=max(one.k for one in settings.task_sets.values()),
        modes={one.mode or prompts[name].mode for name, one in settings.task_sets.items()},
        probe=settings.probe,
    )


async def _meet(meetings: _Meetings) -> "list[Handshake]":
    from quantwatch.flows.handshake import handshakes
    from quantwatch.wiring import prober
    from quantwatch.wiring.tools import Tools

    tools = Tools(SystemClock(), Random())  # noqa: S311, nothing secret is drawn
    async with contextlib.AsyncExitStack() as stack:
        first, *others = [
            await prober(stack, at, model, probe=meetings.probe, tools=tools, ranks=ranks)
            for at, model, ranks in meetings.servers
        ]
        return await handshakes(first, others, k=meetings.k, modes=meetings.modes)


def _tables(found: "Sequence[Handshake]") -> Iterator[RenderableType]:
    for one in found:
        title = Text.assemble((one.server, "bold"), ": ", WORDS[one.ok], f", {one.tokens} tokens")
        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        table.add_column("check", no_wrap=True)
        table.add_column("ok", no_wrap=True)
        table.add_column("what was seen")
        for seen in one.seen:
            said = f"{seen.detail}. {seen.advice}" if seen.advice else seen.detail
            table.add_row(seen.point.value, MARKS[seen.ok], Text(said))
        yield table
