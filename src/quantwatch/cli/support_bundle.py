"""`quantwatch support-bundle`: what somebody needs who is to find out what is wrong, in one file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quantwatch.cli.admin import say
from quantwatch.clock import SystemClock
from quantwatch.errors import InputError

if TYPE_CHECKING:
    from quantwatch.cli.bundle import Bundle


def command(
    config: Annotated[Path, typer.Option(help="The YAML configuration file; it may be broken")],
    out: Annotated[Path, typer.Option(help="The archive to write, *.tar.gz; a new file")],
    store: Annotated[
        Path | None, typer.Option(help="The store, where the configuration is too broken to name it")
    ] = None,
    log: Annotated[list[Path] | None, typer.Option(help="A log file, whose last 5 MB are taken; repeatable")] = None,
    unit: Annotated[
        str | None, typer.Option(help="A systemd unit, the end of whose journal is taken: quantwatch.service")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many runs, decisions and transitions")] = 200,
) -> None:
    """Gather versions, configuration, state, history and logs without secrets, for whoever helps you.

    What cannot be gathered is noted and the rest goes on. Nothing is sent anywhere: look through the file first.
    Exit code 0 when it was written, 3 when it could not be.
    """
    from quantwatch.cli.bundle import write_bundle
    from quantwatch.cli.bundle_parts import add_configuration, add_daemon, add_logs, add_store, add_system
    from quantwatch.cli.store import store_path
    from quantwatch.config.redaction import redaction

    try:
        text = config.read_text(encoding="utf-8", errors="replace")
    except OSError as exc:
        raise InputError(f"{config}: cannot be read: {exc.strerror}") from exc

    def place() -> Path:
        return store_path(None if store is not None else config, store)

    def fill(bundle: "Bundle") -> None:
        add_configuration(bundle, config)
        add_system(bundle, lambda: [config.parent, place().parent])
        add_daemon(bundle, config)
        add_store(bundle, place, limit)
        add_logs(bundle, log or [], unit)

    written = write_bundle(out, redaction(text), SystemClock().now(), fill)
    say(f"{out}: {out.stat().st_size:,} bytes, readable by you alone")
    for one in written.members:
        say(
            f"  {one.name}: "
            + (f"{one.bytes:,} bytes" if one.failed is None else f"not gathered: {one.failed.splitlines()[0]}")
        )
    for (file, what), count in written.redaction.found.items():
        say(f"  masked in {file}: {what} ({count} times)")
    for line in written.unknown():
        say(f"  {line}")
    say("Look through it before you send it: names, addresses and reasons are in it as they are.")
