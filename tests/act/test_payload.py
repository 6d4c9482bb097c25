"""The body of a call: its fields, and numbers that do not exist."""

import json
import math
from dataclasses import fields, replace

import jsonschema
import pytest

from quantwatch.act.payload import encoded, payload
from quantwatch.flow.decision import Action, Order
from quantwatch.flow.verdict import Limit
from support.gateway import FINDING, order

NUMBER = {"type": ["number", "null"]}
TEXT = {"type": "string", "minLength": 1}
PERHAPS = {"type": ["string", "null"]}


def closed(properties: dict[str, object]) -> dict[str, object]:
    return {"type": "object", "additionalProperties": False, "required": list(properties), "properties": properties}


EVIDENCE = closed(
    {
        "metric": TEXT,
        "verdict": TEXT,
        "reason": TEXT,
        **dict.fromkeys(("value", "low", "high", "warn", "critical"), NUMBER),
    }
)
SCHEMA = closed(
    {
        "schema": {"const": 1},
        "action": {"enum": ["isolate", "release"]},
        **dict.fromkeys(("node_endpoint", "reason", "decision_id", "pool", "target", "verdict"), TEXT),
        **dict.fromkeys(("fallback_target", "rung", "task_set", "run_id"), PERHAPS),
        "evidence": {"type": "array", "items": EVIDENCE},
    }
)


@pytest.mark.parametrize("action", Action)
@pytest.mark.parametrize("changes", [{}, {"fallback": None, "task_set": None, "run": None, "evidence": ()}])
def test_the_body_holds_its_schema(action: Action, changes: dict[str, object]) -> None:
    jsonschema.validate(json.loads(encoded(order(action, **changes))), SCHEMA)


def test_the_body_says_what_to_do_with_which_node_and_why() -> None:
    body = payload(order())

    assert (body["action"], body["node_endpoint"], body["fallback_target"]) == (
        "isolate",
        "http://node-a:8000",
        "http://fp16:8000",
    )
    assert body["evidence"][0] == {
        "metric": "kl_mean",
        "value": 0.21,
        "low": 0.18,
        "high": 0.24,
        "warn": 0.06,
        "critical": 0.13,
        "verdict": "degraded",
        "reason": "mean KL 0.21 is over 0.13",
    }


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_does_not_exist_is_null(value: float) -> None:
    bare = replace(FINDING, value=value, interval=None, limit=Limit())
    (told,) = json.loads(encoded(order(evidence=(bare,))))["evidence"]

    assert [told[name] for name in ("value", "low", "high", "warn", "critical")] == [None] * 5


def test_any_reason_can_be_sent() -> None:
    reason = 'Ünï "quoted" \n \ud800 高'
    assert json.loads(encoded(order(reason=reason)))["reason"] == reason


def test_every_field_of_an_order_but_its_driver_and_whose_word_it_is_is_in_the_body() -> None:
    """Who adds a field decides whether a gateway may read it."""
    assert {one.name for one in fields(Order)} == {
        *("decision", "action", "target", "pool", "node", "driver", "reason", "verdict"),
        *("fallback", "rung", "task_set", "run", "evidence", "origin"),
    }
