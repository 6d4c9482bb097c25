"""The `quantwatch` command: groups its commands and turns errors into messages and exit codes."""

import sys
import traceback

import typer
from rich.console import Console

from quantwatch import __version__
from quantwatch.cli import (
    accept,
    admin,
    calibrate,
    compare,
    config,
    daemon,
    demo,
    enroll,
    gateway,
    handshake,
    history,
    inspect,
    notify,
    people,
    prompts,
    references,
    report,
    rollout,
    serve,
    store,
    toolkit,
)
from quantwatch.cli.exit_codes import INTERNAL, OK, USAGE
from quantwatch.errors import InputError, ProbeError, StoreError

app = typer.Typer(
    name="quantwatch",
    help="Quality watchdog for quantized LLM nodes.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("demo")(demo.command)
app.command("compare")(compare.command)
app.command("accept")(accept.command)
app.command("handshake")(handshake.command)
app.command("calibrate")(calibrate.command)
app.command("serve")(serve.command)
app.command("run")(daemon.command)
app.command("inspect")(inspect.command)
app.command("enroll")(enroll.command)
app.command("status")(admin.status)
app.command("pause")(admin.pause)
app.command("resume")(admin.resume)
app.command("reload")(admin.reload)
app.command("isolate")(people.isolate)
app.command("hold")(people.hold)
app.command("release")(people.release)
app.command("confirm-healthy")(people.confirm_healthy)
app.command("approve")(people.approve)
app.command("reject")(people.reject)
app.command("accept-baseline")(admin.accept_baseline)
app.command("history")(history.history)
app.command("show")(history.show)
app.command("diff")(history.diff)
app.command("report")(report.command)
app.command("drill")(gateway.drill)
app.command("check-config")(config.check_config)
app.command("gateway-file")(config.gateway_file)
app.command("schema")(config.schema)
app.add_typer(prompts.app, name="prompts")
app.add_typer(gateway.app, name="gateway")
app.add_typer(rollout.app, name="rollout")
app.add_typer(notify.app, name="notify")
app.add_typer(references.app, name="references")
app.add_typer(store.app, name="store")
app.add_typer(toolkit.app, name="toolkit")


@app.command("version")
def version() -> None:
    """Print the version."""
    print(__version__)  # noqa: T201, the output of the command


def run(arguments: list[str] | None = None) -> None:
    """Entry point: run a command and exit with its code."""
    sys.exit(main(sys.argv[1:] if arguments is None else arguments))


def _said(exc: typer.TyperException) -> str:
    """The message of a usage error, naming the option where the library knows it."""
    whole = getattr(exc, "format_message", None)
    return str(whole()) if whole is not None else str(exc)


def main(arguments: list[str], *, commands: typer.Typer = app) -> int:
    """Run a command and return its exit code: 0 ok, 1 breach, 2 cannot tell, 3 usage or configuration, 4 internal."""
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        code = commands(arguments, standalone_mode=False)
    except typer.TyperException as exc:
        errors.print(
            f"quantwatch: {_said(exc)}\nTry `quantwatch --help`, or `quantwatch COMMAND --help`.", markup=False
        )
        return USAGE
    except typer.Abort:
        return USAGE
    except (InputError, ProbeError, StoreError) as exc:
        errors.print(str(exc), style="red", markup=False)
        return USAGE
    except Exception:  # noqa: BLE001, place 3 of 3: a command must end with a code and a message, never a bare crash
        errors.print(traceback.format_exc(), markup=False)
        errors.print("This is a fault in quantwatch; please report it with the lines above.", style="bold red")
        return INTERNAL
    return code if isinstance(code, int) else OK
