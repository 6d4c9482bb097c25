"""A release gate's evidence as JSON, schema 1 (docs/accept.schema.json). Numbers that do not exist are null.

The document ends with a digest of everything before it, so that a file that was cut or edited is found out.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from quantwatch import __version__
from quantwatch.flow.acceptance import (
    Acceptance,
    Bounded,
    Figure,
    GateResult,
    Latency,
    Memory,
    Paired,
    SetEvidence,
)
from quantwatch.flow.as_json import identity_json, json_number, set_json
from quantwatch.flow.report import TargetReport

KIND = "quantwatch acceptance"
SCHEMA = 1


def acceptance_json(found: Acceptance) -> dict[str, Any]:
    """The whole evidence, ready for json.dumps."""
    content = {
        "schema": SCHEMA,
        "kind": KIND,
        "quantwatch": __version__,
        "id": found.id,
        "started_at": found.started.isoformat(timespec="seconds"),
        "seconds": round(found.seconds, 3),
        "answer": found.answer.value,
        "reasons": list(found.reasons),
        "complete": found.complete,
        "misconfigured": found.misconfigured,
        "plan": dict(found.plan),
        "baseline": {**identity_json(found.baseline), "trouble": found.trouble},
        "candidate": _node(found.candidate),
        "running": None if found.running is None else _node(found.running),
        "task_sets": [_set(one) for one in found.sets],
    }
    return {**content, "digest": digest(content)}


def digest(content: Mapping[str, Any]) -> str:
    """SHA-256 over a document without its own digest, whatever its white space."""
    rest = {key: value for key, value in content.items() if key != "digest"}
    canonical = json.dumps(rest, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"


def fault_of(document: Any) -> str | None:
    """Why something is no whole evidence of a release gate, or None when it is."""
    if not isinstance(document, dict) or document.get("kind") != KIND:
        return "no evidence of a release gate"
    if document.get("schema") != SCHEMA:
        return f"evidence of schema {document.get('schema')}, and this version reads schema {SCHEMA}"
    if document.get("digest") != digest(document):
        return "its digest does not match its content: it was edited or cut"
    return None


def _node(target: TargetReport | None) -> dict[str, Any]:
    return {
        "identity": identity_json(None if target is None else target.identity),
        "quality": None if target is None else target.quality.value,
        "reasons": [] if target is None else list(target.reasons),
    }


def _set(one: SetEvidence) -> dict[str, Any]:
    return {
        "name": one.name,
        "gates": [_gate(gate) for gate in one.gates],
        "notes": list(one.notes),
        "candidate": None if one.candidate is None else set_json(one.candidate),
        "running": None if one.running is None else set_json(one.running),
        "paired": None if one.paired is None else _paired(one.paired),
        "latency": {"candidate": _latency(one.latency), "running": _latency(one.latency_running)},
        "memory": {"candidate": _memory(one.memory), "running": _memory(one.memory_running)},
    }


def _gate(gate: GateResult) -> dict[str, Any]:
    return {
        "gate": gate.gate.value,
        "verdict": gate.verdict.value,
        "reasons": list(gate.reasons),
        "figures": [_figure(one) for one in gate.figures],
    }


def _figure(one: Figure) -> dict[str, Any]:
    return {"name": one.name, **_bounded(one.number), "limit": json_number(one.limit), "unit": one.unit}


def _paired(paired: Paired) -> dict[str, Any]:
    return {
        "drawn": paired.drawn,
        "prompts": paired.prompts,
        "distinct_prompts": paired.distinct_prompts,
        "positions": paired.positions,
        "kl_mean": _bounded(paired.kl_mean),
        "log_perplexity": _bounded(paired.log_perplexity),
        "top1": _bounded(paired.top1),
    }


def _latency(found: Latency | None) -> dict[str, Any] | None:
    if found is None:
        return None
    numbers = ("mean", "p50", "p90", "p95", "maximum")
    return {
        "sent": found.sent,
        "completed": found.completed,
        "timeouts": found.timeouts,
        "errors": dict(found.errors),
        "error_share": _bounded(found.error_share),
        "level": found.level,
        **{name: json_number(getattr(found, name)) for name in numbers},
        "p99": _bounded(found.p99),
        "histogram": [{"up_to": round(edge, 9), "requests": count} for edge, count in found.histogram],
    }


def _memory(found: Memory) -> dict[str, Any]:
    return {
        "before": json_number(found.before),
        "peak": json_number(found.peak),
        "after": json_number(found.after),
        "kv_cache_tokens": found.kv_tokens,
    }


def _bounded(number: Bounded) -> dict[str, float | None]:
    return {"value": json_number(number.value), "low": json_number(number.low), "high": json_number(number.high)}
