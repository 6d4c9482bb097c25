"""`quantwatch run`: the daemon."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer


def command(
    config: Annotated[Path, typer.Option(help="The YAML configuration file")],
    cache: Annotated[
        Path | None, typer.Option(help="Folder for the baseline's answers; the user's cache if left out")
    ] = None,
) -> None:
    """Watch the configured nodes until told to stop.

    SIGTERM ends in order, a second one at once; SIGHUP reloads the configuration; SIGUSR1 dumps every stack. Exit code
    0 after an orderly end, 3 when configuration, address or store cannot be used, 4 for a fault in quantwatch.
    """
    from quantwatch import log
    from quantwatch.config.load import load_settings
    from quantwatch.daemon.process import Daemon
    from quantwatch.prompts.load import shipped_sets

    settings = load_settings(config, shipped=shipped_sets())
    log.configure(settings.logging.format, settings.logging.level, stream=sys.stdout)

    async def watch() -> None:
        await Daemon(config, settings, cache=cache).run()

    asyncio.run(watch())
