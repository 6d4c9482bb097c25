"""`quantwatch check-config` and `quantwatch schema`."""

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from quantwatch.cli.output import STANDARD_OUTPUT, write_json, write_text
from quantwatch.clock import SystemClock
from quantwatch.errors import GatewayRefused, InputError

if TYPE_CHECKING:
    from quantwatch.config.windows import WindowSettings


def check_config(
    file: Annotated[Path, typer.Argument(help="The YAML configuration file")],
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the summary as JSON; - for standard output")
    ] = None,
) -> None:
    """Check a configuration file and tell what it will cost. Exit code 3 with every problem when it is wrong."""
    summary = checked(file)
    if json_file is None:
        _show(summary)
    else:
        write_json(summary, json_file)


def checked(file: Path) -> dict[str, Any]:
    """What `quantwatch check-config` tells of a file. Raises ConfigError or InputError when it is wrong."""
    from quantwatch.config.advice import advice
    from quantwatch.config.load import load_settings
    from quantwatch.flows.costs import costs, over_budget
    from quantwatch.prompts.load import shipped_sets

    shipped = shipped_sets()
    settings = load_settings(file, shipped=shipped)
    _try_package(settings, file)
    estimated = costs(settings, folder=file.parent, shipped=shipped)
    return {
        "schema": 1,
        "file": str(file),
        "targets": [target.name for target in settings.targets],
        "tokens_a_day_and_node": round(sum(one.tokens_a_day for one in estimated)),
        "task_sets": [
            {
                "name": one.name,
                "prompts": len(one.pool.prompts),
                "draw": settings.task_sets[one.name].draw,
                "mode": one.mode.value,
                "runs_a_day": round(one.runs, 3),
                "tokens_a_run": round(one.run.total),
                "tokens_a_day": round(one.tokens_a_day),
                "tokens_sent_a_run": round(one.run.sent),
            }
            for one in estimated
        ],
        "gateway": _gateway(settings),
        "windows": [_window(one, SystemClock().now()) for one in settings.windows],
        "warnings": [
            *_unset_secrets(settings),
            *_untraced(settings),
            *advice(settings),
            *over_budget(settings, estimated),
            *_unproven(settings),
            *_gateway_file(settings, file),
        ],
    }


def _gateway(settings: Any) -> dict[str, Any]:
    """The driver, and what it can do as far as that is known without asking the gateway."""
    from quantwatch.act.known import abilities_of, said

    name = settings.gateway.driver
    can = abilities_of(name, state_url=settings.gateway.state_url is not None)
    told = {"reads_back": can.reads_back, "proven": can.proven, "acts": can.acts}
    return {"driver": name, **told, "said": said(can)}


def _try_package(settings: Any, file: Path) -> None:
    """Make the driver of an installed package, so that it can refuse its options. Raises InputError."""
    from quantwatch.act.package import Outside, package
    from quantwatch.config.gateway import SHIPPED

    gateway = settings.gateway
    if gateway.driver not in SHIPPED:
        outside = Outside(folder=file.parent, fetch=lambda _: "unset")  # the file may be checked on another machine
        package(gateway.driver).driver(gateway.options, outside, seconds=gateway.timeout)


def _unproven(settings: Any) -> list[str]:
    """A driver that calls a gateway which it has never met. A webhook's receiver is always another program."""
    from quantwatch.act.known import abilities_of

    name = settings.gateway.driver
    can = abilities_of(name, state_url=False)
    if name == "webhook" or can.proven or not can.calls:
        return []
    return [
        f"gateway.driver: {name} is not proven against the real program; run `quantwatch gateway test` on every target "
        "before a pool may act"
    ]


def _untraced(settings: Any) -> list[str]:
    """Traces that this installation cannot send."""
    from quantwatch.daemon.tracing import installed

    if settings.tracing is None or installed():
        return []
    return ["tracing: its packages are not installed here, so nothing is traced: pip install 'quantwatch[otel]'"]


def _unset_secrets(settings: Any) -> list[str]:
    """Secrets that cannot be fetched here and now: a warning, for the file may be checked on another machine."""
    from quantwatch.config.secrets import SecretRef, header_value, secrets_of

    options = {f"gateway.options.{key}": header_value(value) for key, value in settings.gateway.options.items()}
    given = [(path, one) for path, one in options.items() if isinstance(one, SecretRef)]
    warnings = []
    for path, secret in [*secrets_of(settings), *given]:
        try:
            secret.resolve()
        except InputError as exc:
            warnings.append(f"{path}: {exc}")
    return warnings


def gateway_file(
    file: Annotated[Path, typer.Argument(help="The YAML configuration file; its gateway.driver is file")],
) -> None:
    """Print the gateway's file as quantwatch would write it now, with whoever is isolated by it. Changes nothing."""
    from quantwatch.act.file import file_driver
    from quantwatch.config.load import load_settings
    from quantwatch.prompts.load import shipped_sets

    settings = load_settings(file, shipped=shipped_sets())
    if settings.gateway.driver != "file":
        raise InputError(f"gateway.driver is {settings.gateway.driver}, which writes no file")
    try:
        content = file_driver(settings, folder=file.parent).content()
    except (GatewayRefused, OSError) as exc:
        raise InputError(str(exc)) from exc
    write_text(content, STANDARD_OUTPUT)


def _gateway_file(settings: Any, file: Path) -> list[str]:
    """What stands in the way of writing the gateway's file here and now; it may be on another machine."""
    from quantwatch.act.file import file_driver

    if settings.gateway.driver != "file":
        return []
    objection = file_driver(settings, folder=file.parent).objection()
    return [] if objection is None else [f"gateway.path: {objection}"]


def _window(one: "WindowSettings", now: datetime) -> dict[str, Any]:
    """A window with when it is open next; null where that is over for good."""
    opened, opens = one.open_at(now), one.opens_next(now)
    return {
        "name": one.name,
        "kind": one.kind,
        "scope": one.scope,
        "open_until": None if opened is None else opened[1].isoformat(timespec="seconds"),
        "opens": None if opens is None else opens.isoformat(timespec="seconds"),
    }


def _show(summary: dict[str, Any]) -> None:
    console = Console(highlight=False)
    table = Table("task set", "draw", "mode", "runs/day", "tokens/run", "tokens/day")
    table.columns[0].no_wrap = table.columns[2].no_wrap = True
    for column in table.columns[3:]:
        column.justify = "right"
    for one in summary["task_sets"]:
        tokens = (f"{one['tokens_a_run']:,}", f"{one['tokens_a_day']:,}")
        table.add_row(one["name"], f"{one['draw']} of {one['prompts']}", one["mode"], f"{one['runs_a_day']:g}", *tokens)
    console.print(table)
    gateway = summary["gateway"]
    console.print(f"gateway: driver {gateway['driver']}: {gateway['said']}", markup=False, soft_wrap=True)
    for one in summary["windows"]:
        console.print(
            f"window {one['name']} ({one['kind']}, {one['scope']}): {_when(one)}", markup=False, soft_wrap=True
        )
    for warning in summary["warnings"]:
        console.print(f"warning: {warning}", style="yellow", markup=False, soft_wrap=True)
    targets, tokens = len(summary["targets"]), summary["tokens_a_day_and_node"]
    console.print(
        f"{summary['file']} is fine: {targets} target{'s' * (targets != 1)}, "
        f"about {tokens:,} probe tokens a day and node ({tokens / 86400:.1f} a second).",
        markup=False,
        soft_wrap=True,
    )


def _when(window: dict[str, Any]) -> str:
    if window["open_until"] is not None:
        return f"open now, until {window['open_until']}"
    return f"opens {window['opens']}" if window["opens"] is not None else "over for good; it can be taken out"


def schema(
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the reference for people instead")] = False,  # noqa: FBT002, a flag
    plan: Annotated[bool, typer.Option("--plan", help="The schema of a plan for quantwatch accept instead")] = False,  # noqa: FBT002, a flag
) -> None:
    """Print the JSON schema of the configuration file, for editors and CI."""
    from quantwatch.config.accept_plan import plan_schema
    from quantwatch.config.reference import configuration_reference
    from quantwatch.config.schema import settings_schema

    if plan and markdown:
        raise InputError("--plan has no reference for people; docs/release-gate.md has every key")
    if plan:
        print(json.dumps(plan_schema(), indent=2, ensure_ascii=False))  # noqa: T201, the output of the command
        return
    whole = configuration_reference() if markdown else json.dumps(settings_schema(), indent=2, ensure_ascii=False)
    print(whole, end="" if markdown else "\n")  # noqa: T201, the output of the command
