"""Release gates over tiny nodes: plans, and whole runs without sockets."""

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from starlette.responses import Response

from quantwatch.clock import Clock, SystemClock
from quantwatch.config.accept_plan import AcceptPlan, load_plan
from quantwatch.flow.acceptance import Acceptance, GateKind, GateResult
from quantwatch.flows.accept import Gate
from quantwatch.flows.acceptance import acceptance
from quantwatch.flows.compare import Comparison
from quantwatch.flows.gate_plan import GatePlan, gate_plan
from quantwatch.flows.plan import Plan, Progress
from quantwatch.net import Endpoint, Limits, Link
from quantwatch.probe.budget import Budget
from quantwatch.probe.budget import Gate as Turnstile
from quantwatch.probe.load import LoadClient
from quantwatch.prompts.load import shipped_sets
from quantwatch.wiring import comparison
from support.runs import TEXTS
from support.tiny_node import Network, TinyModel, TinyNode

LOAD_TOKENS = 3
"""Length of the answers of the load; no probe asks for as many."""

STARTS = {"baseline": 1_700_000_000.0, "candidate": 1_700_000_500.0, "running": 1_700_000_900.0}


def server(name: str, damage: float = 0.0, **options: Any) -> TinyNode:
    """A node with its own process start."""
    return TinyNode(model=TinyModel(damage=damage), **{"started": STARTS[name], **options})


def letters(folder: Path, name: str = "letters") -> Path:
    """A small task set in a file of its own."""
    entries = "".join(
        f"  - id: {name}-{i}\n    language: en\n    length: short\n    tags: [x]\n    prompt: {json.dumps(text)}\n"
        for i, text in enumerate(TEXTS)
    )
    path = folder / f"{name}.yaml"
    path.write_text(f"schema: 1\nname: {name}\ndescription: d\nlicense: Apache-2.0\nprompts:\n{entries}")
    return path


def plan_file(folder: Path, urls: dict[str, str], **changed: Any) -> Path:
    """A plan over the small task set; a change replaces a whole top-level key, None removes it."""
    letters(folder)
    whole: dict[str, Any] = {
        "schema": 1,
        **{name: {"url": url} for name, url in urls.items()},
        "scheme": "int8",
        "seed": 1,
        "task_sets": {"letters": {"prompts": "letters.yaml", "draw": 16, "continuation_tokens": 24, "k": 10}},
        "probe": {"patience": "1ms"},
        **changed,
    }
    path = folder / "plan.yaml"
    path.write_text(json.dumps({key: value for key, value in whole.items() if value is not None}))
    return path


def load(requests: int = 12, **changed: Any) -> dict[str, Any]:
    """A little load."""
    return {"requests": requests, "concurrency": 2, "max_tokens": LOAD_TOKENS, **changed}


def is_load(reply: dict[str, Any]) -> bool:
    """Whether a reply of a tiny node answers a request of the load."""
    return all(len(one["token_ids"]) == LOAD_TOKENS for one in reply["choices"])


def every(nth: int, answer: Callable[[], Response]) -> Callable[[dict[str, Any]], Any]:
    """An edit of a tiny node that answers each nth request of the load otherwise."""
    seen = 0

    def edit(reply: dict[str, Any]) -> Any:
        nonlocal seen
        seen += is_load(reply)
        return answer() if is_load(reply) and seen % nth == 0 else reply

    return edit


def overloaded() -> Response:
    """What a server says whose engine has failed."""
    return Response('{"error": {"message": "engine dead", "code": 500}}', 500, media_type="application/json")


@dataclass(slots=True)
class Bench:
    """Tiny nodes, a plan over them, and the gate run once it is made."""

    folder: Path
    nodes: dict[str, TinyNode]
    changed: dict[str, Any] = field(default_factory=dict)
    clock: Clock = field(default_factory=SystemClock)
    told: list[Progress] = field(default_factory=list)

    @property
    def urls(self) -> dict[str, str]:
        """Where the nodes are."""
        return {name: f"http://{name}" for name in self.nodes}

    def settings(self) -> AcceptPlan:
        """The plan as settings."""
        return load_plan(plan_file(self.folder, self.urls, **self.changed), shipped=shipped_sets())

    def plan(self) -> GatePlan:
        """The plan as what is asked."""
        return gate_plan(self.settings(), file=self.folder / "plan.yaml", seed=1, shipped=shipped_sets())

    @contextlib.asynccontextmanager
    async def gate(self) -> AsyncIterator[Gate]:
        """A gate over the nodes, connected."""
        settings, network = self.settings(), Network(**self.nodes)
        ends = {name: (Endpoint(name, url), None) for name, url in self.urls.items()}

        def compare(plan: Plan, told: Callable[[Progress], None]) -> contextlib.AbstractAsyncContextManager[Comparison]:
            nodes = [end for name, end in ends.items() if name != "baseline"]
            options: dict[str, Any] = {"probe": settings.probe, "cache": self.folder / "cache", "transport": network}
            return comparison(ends["baseline"], nodes, plan, tell=told, **options)

        async with contextlib.AsyncExitStack() as stack:
            senders = {}
            for name, (end, _) in ends.items():
                if name != "baseline":
                    link = await stack.enter_async_context(Link(end, Limits(attempts=1), transport=network))
                    gate = Turnstile(link, Budget(patience_seconds=0.0), self.clock)
                    metric = settings.rules().metric
                    senders[name] = LoadClient(
                        link, gate=gate, output_tokens=LOAD_TOKENS, metric=metric, clock=self.clock
                    )
            yield Gate(self.plan(), compare=compare, senders=senders, clock=self.clock, tell=self.told.append)

    async def run(self) -> Acceptance:
        """The whole gate."""
        async with self.gate() as gate:
            await gate.run()
        return judged(gate)


def bench(folder: Path, *, running: TinyNode | None = None, candidate: TinyNode | None = None, **changed: Any) -> Bench:
    """A baseline, a candidate and, if given, a running node. changed: top-level keys of the plan.

    A little load is enough to show that at most 30 % of the requests fail.
    """
    changed.setdefault("gates", {"errors": {"max_share": "30%"}} if changed.get("load") else {})
    nodes = {"baseline": server("baseline"), "candidate": candidate or server("candidate")}
    if running is not None:
        nodes["running"] = running
    return Bench(folder, nodes, changed)


def judged(gate: Gate) -> Acceptance:
    """What a gate found, at a fixed time."""
    return acceptance(gate, id_="a-20260101-000000-abc123", started=datetime(2026, 1, 1, tzinfo=UTC), seconds=1.5)


def gate_of(found: Acceptance, kind: GateKind) -> GateResult:
    """The one gate of a kind in a run of one task set."""
    (one,) = [gate for task_set in found.sets for gate in task_set.gates if gate.gate is kind]
    return one
