"""The body of a call to a gateway, schema 1. Numbers that do not exist are null, never NaN."""

import json
from typing import Any

from quantwatch.flow.as_json import json_number
from quantwatch.flow.decision import Order
from quantwatch.flow.verdict import Finding


def payload(order: Order) -> dict[str, Any]:
    """An order as the gateway reads it: what to do with which node, and the numbers that decided."""
    return {
        "schema": 1,
        "action": order.action.value,
        "node_endpoint": order.node,
        "reason": order.reason,
        "fallback_target": order.fallback,
        "rung": order.rung,
        "decision_id": order.decision,
        "pool": order.pool,
        "target": order.target,
        "task_set": order.task_set,
        "verdict": order.verdict,
        "run_id": order.run,
        "evidence": [evidence_json(finding) for finding in order.evidence],
    }


def encoded(order: Order) -> bytes:
    """The payload as the bytes that are signed and sent: JSON in ASCII, equal for equal orders."""
    return json.dumps(payload(order), allow_nan=False, separators=(",", ":")).encode("ascii")


def evidence_json(finding: Finding) -> dict[str, Any]:
    """A finding as it goes out: value, interval, limits, verdict."""
    low, high = (finding.interval.low, finding.interval.high) if finding.interval is not None else (None, None)
    return {
        "metric": finding.metric.value,
        "value": json_number(finding.value),
        "low": json_number(low),
        "high": json_number(high),
        "warn": json_number(finding.limit.warn),
        "critical": json_number(finding.limit.critical),
        "verdict": finding.quality.value,
        "reason": finding.reason,
    }
