"""The plan of a release gate: which servers, which task sets, how much load, and where the gates are.

Durations, sizes and shares are written as in the configuration (`2s`, `6GiB`, `1%`).
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from quantwatch.config.limits import LimitSettings, Scheme, SliceSettings
from quantwatch.config.problems import known_names, validated
from quantwatch.config.schema import ProbeSettings
from quantwatch.config.server import ServerSettings
from quantwatch.config.source import Path_, dotted, read_yaml
from quantwatch.config.strict import Name, Strict
from quantwatch.config.units import Count, Number, PositiveDuration, Share, Size
from quantwatch.errors import ConfigError, Problem
from quantwatch.flow.acceptance import RESIDENT, TAIL, Margins, Rules, least_requests, least_without_failure
from quantwatch.flow.prompt import ProbeMode

MetricName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_:][A-Za-z0-9_:]*$", max_length=120)]

SERVERS = ("baseline", "candidate", "running")


def _written(default: str, description: str) -> Any:
    """A default as a person would write it, with its unit."""
    return Field(default, description=description)


class AcceptTaskSet(Strict):
    """One task set of the gate: which prompts, how they are asked, and where the limits are."""

    prompts: str | None = Field(None, description="A golden prompts file; the shipped set of this name if left out")
    draw: Count = Field(48, ge=2, le=1000, description="Prompts to draw, with replacement; all servers get the same")
    mode: ProbeMode | None = Field(None, description="The mode that the prompts file recommends if left out")
    k: Count = Field(20, ge=1, le=1000, description="Log-probabilities a position; lowered to the servers' cap")
    continuation_tokens: Count = Field(96, ge=1, le=1024, description="Longest answer of the baseline to score")
    positions: Count = Field(32, ge=1, le=256, description="Positions a prompt in mode one_token")
    limits: LimitSettings = Field(default_factory=LimitSettings, description="Limits of this set, over the plan's")
    slices: SliceSettings = Field(default_factory=SliceSettings, description="Limits of parts of this set")


class LoadSettings(Strict):
    """The load under which latency, errors and memory are measured. Nothing is sent where this block is left out."""

    requests: Count = Field(500, ge=1, le=20_000, description="Requests to each node for each task set")
    concurrency: Count = Field(8, ge=1, le=100, description="Requests in flight to the one node that is measured")
    max_tokens: Count = Field(64, ge=1, le=4096, description="Tokens of every answer; all are generated")
    task_sets: list[Name] | None = Field(
        None, min_length=1, description="Task sets whose prompts are sent; all of the plan if left out"
    )
    running: bool = Field(default=False, description="Whether the running node, which has users, gets the same load")
    prefix_cache: bool = Field(
        default=False,
        description="true sends prompts as they are; false turns each so that no prefix cache can hold it",
    )
    timeout: PositiveDuration = _written("2m", "Longest wait for one answer")
    time_limit: PositiveDuration = _written("30m", "For each task set; no further block of requests begins then")


class MarginSettings(Strict):
    """How much worse than the running node a candidate may be, on the same prompts."""

    kl_mean: Number = Field(0.01, ge=0, description="Mean KL from the baseline over the running node's, in nats")
    perplexity_ratio: Number = Field(1.01, ge=1, description="Perplexity over that of the running node")
    top1_agreement: Share = Field(0.02, description="Top-1 agreement with the baseline under the running node's")

    def value(self) -> Margins:
        """The margins as a noun."""
        return Margins(self.kl_mean, math.log(self.perplexity_ratio), self.top1_agreement)


class LatencyGate(Strict):
    """Limits on the 99th percentile of the time of a whole request."""

    p99: PositiveDuration | None = Field(None, description="Longest allowed P99")
    p99_ratio: Number | None = Field(None, gt=0, description="Largest allowed P99 over that of the running node")

    @model_validator(mode="after")
    def _one(self) -> "LatencyGate":
        if self.p99 is None and self.p99_ratio is None:
            raise ValueError("give p99, p99_ratio, or both")
        return self


class ErrorsGate(Strict):
    """Limit on failed requests."""

    max_share: Share = _written("1%", "Largest allowed share of requests without a whole answer")


class MemoryGate(Strict):
    """Limits on the candidate's memory, by its own /metrics."""

    max_size: Size | None = Field(None, description="Most memory, at its peak")
    max_ratio: Number | None = Field(None, gt=0, description="Most memory over that of the running node")
    metric: MetricName = Field(RESIDENT, description="A gauge in bytes on the node's /metrics")

    @model_validator(mode="after")
    def _one(self) -> "MemoryGate":
        if self.max_size is None and self.max_ratio is None:
            raise ValueError("give max_size, max_ratio, or both")
        return self


class GateSettings(Strict):
    """The gates beside quality, which has its limits with the task sets."""

    not_worse: MarginSettings | None = Field(
        None, description="Margins over the running node; the built-in ones where there is a running node"
    )
    latency: LatencyGate | None = Field(None, description="P99 latency; needs load")
    errors: ErrorsGate | None = Field(None, description="Failed requests; 1 % where there is load")
    memory: MemoryGate | None = Field(None, description="Memory")


class AcceptPlan(Strict):
    """The whole plan file."""

    schema_version: Literal[1] = Field(alias="schema", description="The form of this file")
    candidate: ServerSettings = Field(description="The node that asks to be accepted")
    baseline: ServerSettings = Field(description="The full-precision server")
    running: ServerSettings | None = Field(None, description="The node that serves users now")
    scheme: Scheme = Field(description="Quantization of the candidate; decides the starting limits")
    seed: Count | None = Field(None, description="Seed of the draw; another one each time if left out")
    limits: LimitSettings = Field(default_factory=LimitSettings, description="Limits over the scheme's built-in ones")
    task_sets: dict[Name, AcceptTaskSet] = Field(
        min_length=1, description="What is measured, by name; the name of a shipped set brings its prompts"
    )
    load: LoadSettings | None = Field(None, description="The load for latency and errors; none is sent if left out")
    gates: GateSettings = Field(default_factory=GateSettings, description="The gates beside quality")
    probe: ProbeSettings = Field(default_factory=ProbeSettings, description="What probes may cost a node")

    @property
    def loaded(self) -> tuple[str, ...]:
        """Task sets whose prompts are sent as load."""
        if self.load is None:
            return ()
        return tuple(self.load.task_sets if self.load.task_sets is not None else self.task_sets)

    def rules(self) -> Rules:
        """The limits of the gates as a noun."""
        gates, margins = self.gates, None
        if self.running is not None:
            margins = (gates.not_worse or MarginSettings()).value()
        errors = gates.errors or (ErrorsGate() if self.load is not None else None)
        memory = gates.memory
        return Rules(
            margins=margins,
            p99_seconds=gates.latency.p99 if gates.latency is not None else None,
            p99_ratio=gates.latency.p99_ratio if gates.latency is not None else None,
            max_error_share=errors.max_share if errors is not None else None,
            max_bytes=memory.max_size if memory is not None else None,
            max_memory_ratio=memory.max_ratio if memory is not None else None,
            metric=memory.metric if memory is not None else RESIDENT,
        )


def load_plan(path: Path, *, shipped: Mapping[str, Path], candidate: str | None = None) -> AcceptPlan:
    """Read and check a plan. Raises ConfigError with all problems.

    shipped: the task sets that come with the installation, by name. candidate: URL that takes the place of the file's.
    Relative prompts files are looked for beside the plan.
    """
    source = read_yaml(path)
    if candidate is not None and isinstance(source.data, dict) and isinstance(source.data.get("candidate"), dict):
        source.data["candidate"]["url"] = candidate
    plan = validated(AcceptPlan, source)
    problems = [
        Problem(source.file, source.line(where), dotted(where), said) for where, said in _faults(plan, path, shipped)
    ]
    if problems:
        raise ConfigError(sorted(problems, key=lambda problem: problem.line or 0))
    return plan


def prompts_of(plan: AcceptPlan, name: str, *, folder: Path, shipped: Mapping[str, Path]) -> Path:
    """The golden prompts file of a task set. folder: where the plan is."""
    given = plan.task_sets[name].prompts
    return folder / given if given is not None else shipped[name]


def plan_schema() -> dict[str, Any]:
    """JSON schema (draft 2020-12) of the plan file."""
    schema = AcceptPlan.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "quantwatch accept plan", **schema}


Fault = tuple[Path_, str]


def _faults(plan: AcceptPlan, path: Path, shipped: Mapping[str, Path]) -> Iterator[Fault]:
    yield from _servers(plan)
    yield from _relative(plan)
    yield from _load(plan)
    yield from _prompts(plan, path.parent, shipped)


def _servers(plan: AcceptPlan) -> Iterator[Fault]:
    known: dict[str, str] = {}
    for name in SERVERS:
        server: ServerSettings | None = getattr(plan, name)
        if server is None:
            continue
        where = server.url.rstrip("/").removesuffix("/v1").rstrip("/").lower()
        if where in known:
            said = f"this is the address of {known[where]} already; a server cannot be held against itself"
            yield (name, "url"), said
        known.setdefault(where, name)


def _relative(plan: AcceptPlan) -> Iterator[Fault]:
    """Gates that look at the running node need one, and one that may get load."""
    gates = plan.gates
    ratio = gates.latency is not None and gates.latency.p99_ratio is not None
    wanting: list[Path_] = []
    wanting += [("gates", "not_worse")] if gates.not_worse is not None else []
    wanting += [("gates", "latency", "p99_ratio")] if ratio else []
    wanting += [("gates", "memory", "max_ratio")] if gates.memory and gates.memory.max_ratio is not None else []
    if plan.running is None:
        said = "this gate looks at the running node; give running, or remove the gate"
        yield from ((where, said) for where in wanting)
    elif ratio and plan.load is not None and not plan.load.running:
        said = "the running node gets no load, so it has no latency; set load.running: true, or give p99 alone"
        yield ("gates", "latency", "p99_ratio"), said


def _load(plan: AcceptPlan) -> Iterator[Fault]:
    gates, load = plan.gates, plan.load
    if load is None:
        for name in ("latency", "errors"):
            if getattr(gates, name) is not None:
                yield ("gates", name), "this gate needs load; give load, or remove the gate"
        return
    for i, name in enumerate(load.task_sets or ()):
        if name not in plan.task_sets:
            yield ("load", "task_sets", i), f"no task set {name}; {known_names(name, list(plan.task_sets))}"
    if load.running and plan.running is None:
        yield ("load", "running"), "there is no running node in this plan"
    yield from _too_few(plan, load.requests)
    if gates.latency is not None and gates.latency.p99 is not None and gates.latency.p99 >= load.timeout:
        yield ("gates", "latency", "p99"), f"load.timeout is {load.timeout:g}s, so no time could be over this limit"


def _too_few(plan: AcceptPlan, requests: int) -> Iterator[Fault]:
    """Gates that no outcome of so few requests could pass."""
    rules = plan.rules()
    least = least_requests(TAIL, rules.level)
    if plan.gates.latency is not None and requests < least:
        said = f"{requests} requests bound no 99th percentile from above; {least} are the least for this gate"
        yield ("load", "requests"), said
    share = rules.max_error_share or 0.0
    least = least_without_failure(share)
    if requests < least:
        said = f"{requests} requests cannot show that at most {share:.2%} fail; {least} are the least"
        yield ("load", "requests"), f"{said}, or allow more by gates.errors.max_share"


def _prompts(plan: AcceptPlan, folder: Path, shipped: Mapping[str, Path]) -> Iterator[Fault]:
    for name, one in plan.task_sets.items():
        if one.prompts is None and name not in shipped:
            said = f"no shipped task set {name}; {known_names(name, list(shipped))}; or name a file under prompts"
            yield ("task_sets", name), said
        elif one.prompts is not None and not (folder / one.prompts).is_file():
            yield ("task_sets", name, "prompts"), f"no such prompts file: {folder / one.prompts}"
