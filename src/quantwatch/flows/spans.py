"""What spans say: attributes by the semantic conventions of OpenTelemetry where those have a name, else by our own."""

from collections.abc import Awaitable
from urllib.parse import urlsplit

from quantwatch.flow.check import Check
from quantwatch.flow.decision import DONE, Decision, Order, Outcome
from quantwatch.flow.identity import Identity
from quantwatch.flow.prompt import GoldenSequence
from quantwatch.flow.run import RunRecord, Trigger
from quantwatch.flows.watched import Watched, WatchedSet
from quantwatch.probe.contract import Ask
from quantwatch.trace import Value, current, step

Known = dict[str, Value | None]

BASELINE = "baseline"


def role(server: str) -> str:
    """`baseline` or `node`: names of spans are few."""
    return BASELINE if server == BASELINE else "node"


def begun(target: Watched, wanted: WatchedSet, trigger: Trigger) -> Known:
    """Of a run that begins."""
    return {
        "quantwatch.target": target.name,
        "quantwatch.pool": target.pool,
        "quantwatch.task_set": wanted.name,
        "quantwatch.run.trigger": trigger.value,
    }


def ended(record: RunRecord) -> Known:
    """Of a run that is over."""
    found = record.report.divergence if record.report is not None else None
    return {
        "quantwatch.run.id": record.id,
        "quantwatch.quality": record.quality.value,
        "quantwatch.reason": record.reason,
        "quantwatch.kl.mean": None if found is None else found.kl_mean.value,
        "quantwatch.perplexity.ratio": None if found is None else found.perplexity_ratio.value,
        "quantwatch.top1.agreement": None if found is None else found.top1_agreement.value,
        "gen_ai.request.model": None if record.node is None else record.node.model,
    }


def asking(server: Identity | None, sequence: GoldenSequence, ask: Ask) -> Known:
    """Of one prompt that a server is asked about: its id, never its text."""
    known: Known = {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "vllm",
        "gen_ai.usage.input_tokens": len(sequence.ids),
        "quantwatch.prompt.id": sequence.prompt_id,
        "quantwatch.probe.mode": ask.mode.value,
    }
    if server is None:
        return known
    url = urlsplit(server.url)
    port = url.port or (443 if url.scheme == "https" else 80)
    return {**known, "gen_ai.request.model": server.model, "server.address": url.hostname, "server.port": port}


def decided(made: Decision) -> Known:
    """Of what came of a wish."""
    return {
        "quantwatch.decision.id": made.id,
        "quantwatch.decision.action": made.wish.action.value,
        "quantwatch.decision.ruling": made.ruling.value,
        "quantwatch.decision.objections": ", ".join(one.brake.value for one in made.objections) or None,
    }


async def traced_check(check: Awaitable[Check]) -> Check:
    """A self-check of the baseline, as a span."""
    with step("self-check") as span:
        found = await check
        known: Known = {"sound": found.sound, "drift": found.drift, "thorough": found.thorough}
        span.note({f"quantwatch.self_check.{name}": value for name, value in known.items()})
        return found


async def traced_order(order: Order, work: Awaitable[None]) -> None:
    """An order that is carried out, as a span of the run that led to it."""
    known: Known = {
        "quantwatch.target": order.target,
        "quantwatch.decision.id": order.decision,
        "quantwatch.decision.action": order.action.value,
        "quantwatch.gateway.driver": order.driver,
    }
    with step("order at the gateway", known, outward=True):
        await work


def order_ended(outcome: Outcome) -> None:
    """Note how the order ended that is under way."""
    span = current()
    span.note({"quantwatch.order.result": outcome.result.value, "quantwatch.order.attempts": outcome.attempts})
    if outcome.result not in DONE:
        span.fail(outcome.detail)
