"""`quantwatch notify`: try the channels that people are told through."""

import asyncio
import contextlib
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from quantwatch.cli.admin import Json
from quantwatch.cli.exit_codes import CANNOT_SAY, OK
from quantwatch.cli.output import STANDARD_OUTPUT, Terminal, write_json
from quantwatch.clock import SystemClock
from quantwatch.errors import InputError

if TYPE_CHECKING:
    from quantwatch.act.channel import Reply, Subscriber
    from quantwatch.config.notifications import ChannelSettings

app = typer.Typer(help="The channels that people are told through.", no_args_is_help=True)


@app.command("test")
def try_channels(
    config: Annotated[Path, typer.Option(help="The YAML configuration file; it names the channels")],
    channel: Annotated[str | None, typer.Option(help="Only this one; all of them if left out")] = None,
    json_file: Json = None,
) -> None:
    """Send a test message through each channel and say what came back. No daemon is needed.

    Exit code: 0 every channel took it, 2 one did not, 3 usage or configuration error.
    """
    chosen = _chosen(config, channel)
    replies = asyncio.run(_sent(chosen))
    if json_file is not None:
        rows = [
            {"channel": one.name, "kind": one.kind, "ok": replies[one.name].ok, "said": replies[one.name].said}
            for one in chosen
        ]
        write_json({"schema": 1, "channels": rows}, json_file)
    console = Terminal(stderr=json_file == STANDARD_OUTPUT, highlight=False)
    for one in chosen:
        reply = replies[one.name]
        verdict = ("taken", "green") if reply.ok else ("not taken", "bold red")
        console.print(Text.assemble(f"{one.name} ({one.kind}): ", verdict, f": {reply.said}"), soft_wrap=True)
    raise typer.Exit(OK if all(one.ok for one in replies.values()) else CANNOT_SAY)


def _chosen(config: Path, channel: str | None) -> "list[ChannelSettings]":
    """The channels to try. Raises InputError where there is none."""
    from quantwatch.config.load import load_settings
    from quantwatch.prompts.load import shipped_sets

    configured = load_settings(config, shipped=shipped_sets()).notifications
    known = ", ".join(one.name for one in configured)
    if not configured:
        raise InputError(f"{config}: no channel is configured under notifications")
    chosen = [one for one in configured if channel in (None, one.name)]
    if not chosen:
        raise InputError(f"--channel {channel}: not in the configuration; known: {known}")
    return chosen


async def _sent(chosen: "list[ChannelSettings]") -> "dict[str, Reply]":
    from quantwatch.wiring.channels import subscribers
    from quantwatch.wiring.tools import Tools

    tools = Tools(SystemClock(), Random())  # noqa: S311, nothing secret is drawn
    async with contextlib.AsyncExitStack() as stack:
        made = await subscribers(chosen, stack, tools)
        replies = await asyncio.gather(*(_try(one) for one in made.values()))
    return dict(zip(made, replies, strict=True))


async def _try(one: "Subscriber") -> "Reply":
    """One message, whatever the channel otherwise wants to hear of."""
    from quantwatch.flow.notice import Matter, Notice, Topic
    from quantwatch.flow.run import stamp

    now = SystemClock().now()
    said = "somebody asked for it with `quantwatch notify test`"
    matter = Matter(Topic.TEST, f"channel {one.name}", "test", said, done="nothing")
    id_ = stamp("n", now, f"{Random().getrandbits(32):08x}")  # noqa: S311, as above
    return await one.channel.send([Notice(id_, now, now, matter)])
