"""`quantwatch compare`: hold nodes against a baseline here and now, without a configuration file."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quantwatch.cli.exit_codes import exit_code
from quantwatch.cli.gathering import gather
from quantwatch.cli.output import STANDARD_OUTPUT, Terminal, refuse_unwritable, write_json
from quantwatch.cli.progress import progress
from quantwatch.cli.servers import ServerWithModel, refuse_equal, secret, server
from quantwatch.cli.tables import show
from quantwatch.clock import SystemClock
from quantwatch.config.limits import Scheme, limits_for
from quantwatch.config.schema import ProbeSettings
from quantwatch.errors import InputError
from quantwatch.flow.prompt import ProbeMode

if TYPE_CHECKING:
    from quantwatch.flow.report import Report
    from quantwatch.flows.plan import Plan, PlannedSet

MOST_IDS = 128
"""vLLM lists so many ids at a position where they are named."""

EXACT_IDS = (
    "Ask the nodes for the baseline's own top k, which shows more of the divergence. Only for nodes that serve nobody: "
    "on vLLM 0.32 it changes the log-probabilities of other users' requests"
)


def command(
    baseline: Annotated[str, typer.Option(help="URL of the full-precision server")],
    node: Annotated[list[str], typer.Option(help="URL of a node, or NAME=URL; may be repeated")],
    model: Annotated[str | None, typer.Option(help="Model name at all servers; their only model if left out")] = None,
    baseline_model: Annotated[str | None, typer.Option(help="Model name at the baseline, if it differs")] = None,
    task_set: Annotated[
        list[str] | None, typer.Option(help="A shipped task set or a prompts file; may be repeated; all if left out")
    ] = None,
    prompts: Annotated[int, typer.Option(min=2, help="Prompts to draw from each pool, with replacement")] = 24,
    seed: Annotated[int, typer.Option(help="Seed of the draw; the same seed asks the same prompts")] = 0,
    k: Annotated[int, typer.Option(min=1, help="Log-probabilities a position; lowered to the servers' cap")] = 20,
    mode: Annotated[
        ProbeMode | None, typer.Option(help="How to ask; what each prompts file recommends if left out")
    ] = None,
    scheme: Annotated[Scheme, typer.Option(help="Whose starting limits to use")] = Scheme.INT8,
    sequences: Annotated[
        Path | None, typer.Option(help="Score ready id sequences instead: JSON, a list of [ids, prompt_length]")
    ] = None,
    positions: Annotated[
        str, typer.Option(help="continuation, or all: prompt positions count as well")
    ] = "continuation",
    continuation_tokens: Annotated[int, typer.Option(min=1, max=1024, help="Longest continuation")] = 96,
    exact_ids: Annotated[bool, typer.Option("--exact-ids", help=EXACT_IDS)] = False,  # noqa: FBT002, a flag
    confidence: Annotated[
        float, typer.Option(min=0.5, max=0.9999, help="Chance that a healthy node breaches no limit of this comparison")
    ] = 0.95,
    strict: Annotated[bool, typer.Option(help="Exit with 1 on a warning too")] = False,  # noqa: FBT002, a flag
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the result as JSON; - for standard output")
    ] = None,
    api_key: Annotated[str | None, typer.Option(help="API key of the nodes: env:NAME or file:/path")] = None,
    baseline_api_key: Annotated[str | None, typer.Option(help="API key of the baseline; --api-key if left out")] = None,
    ca_file: Annotated[str | None, typer.Option(help="Certificate authority for https")] = None,
    timeout: Annotated[float, typer.Option(min=1, max=86400, help="Seconds for one request")] = 120.0,
    patience: Annotated[
        float, typer.Option(min=0, max=86400, help="Seconds to wait for a busy node before skipping")
    ] = 30.0,
    max_scored_tokens: Annotated[
        int, typer.Option(min=16, help="Longest sequence to score in one request; it costs the node memory")
    ] = 1024,
    tokens_per_minute: Annotated[
        int, typer.Option(min=64, help="Tokens sent to one server in any minute; what does not fit waits")
    ] = 20_000,
    cache: Annotated[
        Path | None, typer.Option(help="Folder for the baseline's answers; the user's cache if left out")
    ] = None,
) -> None:
    """Hold quantized nodes against their full-precision baseline.

    Exit code: 0 no breach, 1 degraded or corrupted (with --strict also a warning), 2 cannot tell, 3 usage or
    configuration error, 4 internal error.
    """
    from quantwatch.flows.plan import plan_json

    mode = mode or (ProbeMode.ONE_TOKEN if exact_ids else None)
    plan = _plan(
        _sets(
            task_set, sequences, prompts=prompts, seed=seed, mode=mode or (ProbeMode.ONE_TOKEN if exact_ids else None)
        ),
        scheme,
        k=k,
        seed=seed,
        positions=positions,
        continuation_tokens=continuation_tokens,
        confidence=confidence,
        exact_ids=exact_ids,
    )
    key = secret(api_key)
    reference = server(f"baseline={baseline}", baseline_model or model, secret(baseline_api_key) or key, ca_file)
    nodes = [server(one, model, key, ca_file) for one in node]
    refuse_equal(nodes)
    _refuse_prompt_positions(plan)
    _refuse_exact_ids(plan)
    probe = _probe(timeout, patience, scored_tokens=max_scored_tokens, k=plan.k, tokens_per_minute=tokens_per_minute)
    if json_file is not None:
        refuse_unwritable(json_file)
    started_at = SystemClock().now()
    result, crash = _compare(reference, nodes, plan, probe, cache)
    _tell(result, json_file, plan=plan_json(plan, scheme.value), started_at=started_at)
    if crash is not None:
        raise crash
    raise typer.Exit(exit_code(result, strict=strict))


def _probe(timeout: float, patience: float, *, scored_tokens: int, k: int, tokens_per_minute: int) -> ProbeSettings:
    """Probe settings out of options; entries follow from tokens and k, so that one option is enough."""
    given = {
        "timeout": f"{timeout:.3f}s",
        "patience": f"{patience:.3f}s",
        "max_scored_tokens": scored_tokens,
        "max_scored_entries": max(ProbeSettings().max_scored_entries, scored_tokens * k),
        "tokens_per_minute": tokens_per_minute,
    }
    return ProbeSettings.model_validate(given)


def _refuse_prompt_positions(plan: "Plan") -> None:
    """Only prompt scoring gives distributions at prompt positions."""
    others = [planned.name for planned in plan.sets if planned.mode is not ProbeMode.PROMPT_SCORING]
    if plan.scope.value == "all" and others:
        raise InputError(f"--positions all needs mode prompt_scoring, and {', '.join(others)} is asked in another")


def _refuse_exact_ids(plan: "Plan") -> None:
    """Only generated positions can be asked for ids, and only for so many."""
    others = [planned.name for planned in plan.sets if planned.mode is ProbeMode.PROMPT_SCORING]
    if plan.exact_ids and others:
        raise InputError(f"--exact-ids needs mode one_token, and {', '.join(others)} is asked in prompt_scoring")
    if plan.exact_ids and plan.k > MOST_IDS:
        raise InputError(f"--exact-ids takes --k of {MOST_IDS} at most, as vLLM does; found {plan.k}")


def _tell(result: "Report", json_file: Path | None, *, plan: dict[str, Any], started_at: datetime) -> None:
    """Write first, show then: a reader that is gone must not cost the file."""
    from quantwatch.flow.as_json import report_json

    if json_file is not None:
        write_json(report_json(result, plan=plan, started_at=started_at), json_file)
    show(result, Terminal(stderr=json_file == STANDARD_OUTPUT, highlight=False))


def _compare(
    baseline: ServerWithModel, nodes: list[ServerWithModel], plan: "Plan", probe: ProbeSettings, cache: Path | None
) -> tuple["Report", Exception | None]:
    """Run and report what was gathered, also after Ctrl-C or a fault of our own, which is given back to be raised."""
    from quantwatch.flows.report import report
    from quantwatch.wiring import cache_folder, comparison

    folder = cache or cache_folder()
    with progress() as tell:
        run, crash = gather(lambda: comparison(baseline, nodes, plan, probe=probe, cache=folder, tell=tell))
    return report(run), crash


def _sets(
    names: list[str] | None, sequences: Path | None, *, prompts: int, seed: int, mode: ProbeMode | None
) -> tuple["PlannedSet", ...]:
    from quantwatch.flows.plan import planned_draw, planned_sequences
    from quantwatch.prompts.load import load_set, shipped_sets
    from quantwatch.prompts.sequences import load_sequences

    if sequences is not None:
        if names:
            raise InputError("--sequences and --task-set exclude each other")
        ready, digest = load_sequences(sequences)
        return (planned_sequences(sequences.stem, digest, ready, mode or ProbeMode.PROMPT_SCORING),)
    shipped = shipped_sets()
    wanted = names or list(shipped)
    if len(set(wanted)) < len(wanted):
        raise InputError("--task-set names a task set twice")
    pools = [load_set(_prompts_file(name, shipped)) for name in wanted]
    return tuple(planned_draw(pool, size=prompts, seed=seed, mode=mode) for pool in pools)


def _prompts_file(name: str, shipped: dict[str, Path]) -> Path:
    from difflib import get_close_matches

    path = shipped.get(name) or Path(name)
    if path.is_file():
        return path
    close = get_close_matches(name, list(shipped), n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise InputError(f"--task-set {name}: no shipped task set and no file{hint} Shipped: {', '.join(shipped)}")


def _plan(
    sets: tuple["PlannedSet", ...],
    scheme: Scheme,
    *,
    k: int,
    seed: int,
    positions: str,
    continuation_tokens: int,
    confidence: float,
    exact_ids: bool,
) -> "Plan":
    from quantwatch.flows.plan import Plan
    from quantwatch.judge.confidence import critical_limits, interval_level
    from quantwatch.measure.compare import Scope

    if positions not in ("continuation", "all"):
        raise InputError(f"--positions {positions}: continuation or all is wanted")
    limits = limits_for(scheme)
    return Plan(
        sets=sets,
        limits=limits,
        level=interval_level(confidence, tests=len(sets) * critical_limits(limits)),
        k=k,
        seed=seed,
        scope=Scope(positions),
        exact_ids=exact_ids,
        continuation_tokens=continuation_tokens,
    )
