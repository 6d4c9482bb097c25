"""`quantwatch accept`: is a candidate node good enough to serve? Keep or roll back, with the evidence."""

import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from quantwatch.cli.exit_codes import BREACH, CANNOT_SAY, OK, USAGE
from quantwatch.cli.gathering import gather
from quantwatch.cli.output import STANDARD_OUTPUT, Terminal, refuse_unwritable, write_json, write_text
from quantwatch.cli.progress import progress
from quantwatch.clock import SystemClock
from quantwatch.errors import InputError

if TYPE_CHECKING:
    from quantwatch.config.accept_plan import AcceptPlan
    from quantwatch.flow.acceptance import Acceptance
    from quantwatch.flows.accept import Gate
    from quantwatch.flows.compare import Comparison
    from quantwatch.flows.gate_plan import GatePlan
    from quantwatch.flows.plan import Plan, Progress
    from quantwatch.net import Endpoint
    from quantwatch.probe.load import LoadClient

EVIDENCE = Path("quantwatch-evidence")


def command(
    plan: Annotated[Path | None, typer.Option(help="The YAML plan: servers, task sets, load, gates")] = None,
    candidate: Annotated[
        str | None, typer.Option(help="URL of the candidate, in the place of the plan's candidate.url")
    ] = None,
    evidence: Annotated[Path, typer.Option(help="Folder for the evidence, one JSON file a run")] = EVIDENCE,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the evidence there too; - for standard output")
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Write the gates as JUnit XML")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the gates as a Markdown table")] = None,
    show: Annotated[Path | None, typer.Option(help="Print evidence that was stored; nothing is asked")] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder for the baseline's answers; the user's cache if left out")
    ] = None,
) -> None:
    """Hold a candidate node against the baseline and the running node, and say: keep, or reject (roll back).

    Exit code: 0 keep, 1 reject, 2 cannot tell (not accepted either), 3 usage or configuration error, 4 internal error.
    """
    if (plan is None) == (show is None):
        raise InputError("give --plan FILE to run a gate, or --show FILE to print its evidence again")
    files = {"json": json_file, "junit": junit, "markdown": markdown}
    for path in files.values():
        if path is not None:
            refuse_unwritable(path)
    if plan is None:
        assert show is not None  # noqa: S101, one of them is given; this is for the type checker
        document, crash = stored(show), None
    else:
        document, crash = _run(plan, candidate=candidate, evidence=evidence, cache=cache)
    _tell(document, **files)
    if crash is not None:
        raise crash
    raise typer.Exit(exit_code(document))


def exit_code(document: dict[str, Any]) -> int:
    """The answer as an exit code; what a person must correct is 3, unless the candidate is rejected anyway."""
    if document["answer"] == "reject":
        return BREACH
    if document["misconfigured"]:
        return USAGE
    return OK if document["answer"] == "keep" else CANNOT_SAY


def stored(path: Path) -> dict[str, Any]:
    """Evidence from a file. Raises InputError for anything but whole evidence of this schema."""
    from quantwatch.flow.acceptance_json import fault_of

    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise InputError(f"{path}: cannot be read: {exc.strerror}") from exc
    except (ValueError, RecursionError) as exc:
        raise InputError(f"{path}: no readable JSON; a file of the evidence folder is wanted") from exc
    fault = fault_of(document)
    if fault is not None:
        raise InputError(f"{path}: {fault}")
    return dict(document)


def _tell(document: dict[str, Any], *, json: Path | None, junit: Path | None, markdown: Path | None) -> None:
    """Write first, show then: a reader that is gone must not cost a file."""
    from quantwatch.cli.accept_reports import junit_xml, markdown_page
    from quantwatch.cli.accept_table import show

    if json is not None:
        write_json(document, json)
    if junit is not None:
        write_text(junit_xml(document), junit)
    if markdown is not None:
        write_text(markdown_page(document), markdown)
    taken = STANDARD_OUTPUT in (json, junit, markdown)
    show(document, Terminal(stderr=taken, highlight=False))


def _run(
    file: Path, *, candidate: str | None, evidence: Path, cache: Path | None
) -> tuple[dict[str, Any], Exception | None]:
    """One gate run, its evidence stored; a fault of our own is given back to be raised after the evidence is told."""
    from quantwatch.config.accept_plan import load_plan
    from quantwatch.flow.acceptance_json import acceptance_json
    from quantwatch.flows.gate_plan import gate_plan
    from quantwatch.prompts.load import shipped_sets

    shipped = shipped_sets()
    settings = load_plan(file, shipped=shipped, candidate=candidate)
    seed = settings.seed if settings.seed is not None else SystemRandom().randrange(2**31)
    wanted = gate_plan(settings, file=file, seed=seed, shipped=shipped)
    servers = _servers(settings)
    _folder(evidence)
    _warn(settings)
    found, crash = _gather(settings, wanted, servers, cache)
    document = acceptance_json(found)
    place = evidence / f"{found.id}.json"
    write_json(document, place)
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"evidence: {place}", markup=False)
    return document, crash


def _folder(evidence: Path) -> None:
    """Make the evidence folder before anything is asked, and see that it can be written."""
    try:
        evidence.mkdir(parents=True, exist_ok=True)
        trial = evidence / f".{secrets.token_hex(4)}"
        trial.touch()
        trial.unlink()
    except OSError as exc:
        raise InputError(f"{evidence}: cannot be written: {exc.strerror}") from exc


def _warn(settings: "AcceptPlan") -> None:
    """A node with users gets load only by an explicit word, and is told of even then."""
    load = settings.load
    if load is None or not load.running:
        return
    each = f"{load.requests} requests for each of {len(settings.loaded)} task sets, {load.concurrency} at once"
    said = f"warning: load.running is true, so the running node, which has users, gets {each}"
    Console(stderr=True, highlight=False, soft_wrap=True).print(said, style="yellow", markup=False)


def _servers(settings: "AcceptPlan") -> "dict[str, tuple[Endpoint, str | None]]":
    """Every server with its model name, the secrets fetched. Raises InputError for a missing secret."""
    from quantwatch.wiring import endpoint

    given = {"baseline": settings.baseline, "candidate": settings.candidate, "running": settings.running}
    return {name: (endpoint(name, one), one.model) for name, one in given.items() if one is not None}


def _gather(
    settings: "AcceptPlan",
    wanted: "GatePlan",
    servers: "dict[str, tuple[Endpoint, str | None]]",
    cache: Path | None,
) -> "tuple[Acceptance, Exception | None]":
    """Run and judge what was gathered, also after Ctrl-C or a fault of our own, which is given back to be raised."""
    from quantwatch.flow.run import stamp
    from quantwatch.flows.acceptance import acceptance

    clock = SystemClock()
    started, began = clock.now(), clock.monotonic()
    with progress() as tell:
        gate, crash = gather(lambda: connected(settings, wanted, servers, cache=cache, tell=tell))
    id_ = stamp("a", started, secrets.token_hex(3))
    return acceptance(gate, id_=id_, started=started, seconds=clock.monotonic() - began), crash


@contextlib.asynccontextmanager
async def connected(
    settings: "AcceptPlan",
    wanted: "GatePlan",
    servers: "dict[str, tuple[Endpoint, str | None]]",
    *,
    cache: Path | None,
    tell: "Callable[[Progress], None]",
) -> "AsyncIterator[Gate]":
    """Connect everything for one gate run."""
    from quantwatch.flows.accept import Gate
    from quantwatch.probe.account import Accounts
    from quantwatch.wiring import cache_folder, comparison

    accounts = Accounts()  # one budget a server, over all task sets

    def compare(
        plan: "Plan", told: "Callable[[Progress], None]"
    ) -> "contextlib.AbstractAsyncContextManager[Comparison]":
        nodes = [server for name, server in servers.items() if name != "baseline"]
        folder = cache or cache_folder()
        return comparison(
            servers["baseline"], nodes, plan, probe=settings.probe, cache=folder, tell=told, accounts=accounts
        )

    async with contextlib.AsyncExitStack() as stack:
        senders = {
            name: await _sender(stack, server, settings) for name, (server, _) in servers.items() if name != "baseline"
        }
        yield Gate(wanted, compare=compare, senders=senders, clock=SystemClock(), tell=tell)


async def _sender(stack: contextlib.AsyncExitStack, server: "Endpoint", settings: "AcceptPlan") -> "LoadClient":
    """A client for load whose connections live as long as the stack; it never tries again."""
    from quantwatch.net import Limits, Link
    from quantwatch.probe.budget import Gate
    from quantwatch.probe.load import LoadClient
    from quantwatch.wiring import budget

    load, clock = settings.load, SystemClock()
    limits = Limits(
        connect_seconds=settings.probe.connect_timeout,
        total_seconds=load.timeout if load is not None else settings.probe.timeout,
        response_bytes=settings.probe.max_response_size,
        attempts=1,
        kept_connections=load.concurrency if load is not None else 1,
    )
    link = await stack.enter_async_context(Link(server, limits))
    return LoadClient(
        link,
        gate=Gate(link, budget(settings.probe), clock),
        output_tokens=load.max_tokens if load is not None else 1,
        metric=settings.rules().metric,
        clock=clock,
    )
