"""Every number of a Divergence stands in the JSON report under its own name."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from quantwatch.flow.as_json import load_json, load_of, set_json
from quantwatch.flow.divergence import Divergence, Estimate, Estimator, Evidence
from quantwatch.flow.load import COUNTED, Load
from quantwatch.flow.observation import Observation
from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.report import SetReport
from quantwatch.flow.verdict import Interval, Quality, Verdict

RENAMED = {"tail_mass_baseline": "tail_mass"}
INTERVALS = {"kl_mean": "kl_interval", "top1_agreement": "top1_interval"}


def told() -> dict[str, Any]:
    """A Divergence whose numbers all differ, the estimates with intervals around them."""
    values: dict[str, Any] = {}
    for i, one in enumerate(fields(Divergence)):
        estimate = Estimate(float(i), Interval(i - 0.25, i + 0.5, 0.95))
        kinds: dict[Any, Any] = {float: float(i), int: i, Estimate: estimate}
        if one.type in kinds:
            values[one.name] = kinds[one.type]
    return values


def test_every_number_stands_under_its_own_name() -> None:
    numbers = told()
    divergence = Divergence(
        estimator=Estimator.SHARP, mode=ProbeMode.ONE_TOKEN, evidence=Evidence.DRAW, **{**numbers, "k": 7}
    )
    verdict = Verdict(Quality.OK, ("fine",), ())
    observation = Observation(drawn=24, measured=numbers["prompts"])

    got = set_json(SetReport("math", "pool", 0, 7, ProbeMode.ONE_TOKEN, observation, divergence, verdict))

    assert got["estimator"] == "sharp"
    for name, value in numbers.items():
        if name == "k":
            assert got["k"] == 7
        elif isinstance(value, Estimate):
            assert got[name] == value.value
            assert got[INTERVALS.get(name, f"{name}_interval")] == [value.value - 0.25, value.value + 0.5]
        else:
            assert got[RENAMED.get(name, name)] == value


def test_a_set_without_a_comparison_has_no_numbers() -> None:
    verdict = Verdict(Quality.UNKNOWN, ("gone",), ())

    got = set_json(SetReport("math", "p", 0, 20, ProbeMode.ONE_TOKEN, Observation(24, 0), None, verdict))

    assert [got[name] for name in ("estimator", "kl_mean", "logprob_delta", "variation_low", "entropy_node")] == [
        None
    ] * 5


def test_what_a_server_counts_of_its_numbers_is_written_and_may_stand_in_the_schema() -> None:
    schema = json.loads((Path(__file__).resolve().parents[2] / "docs" / "compare.schema.json").read_bytes())
    counting = Load(broken_rows=1.0, runaway_rows=2.0, corrupted_requests=3.0)
    written = load_json(counting)
    assert written is not None
    assert set(written) == set(schema["$defs"]["load"]["properties"])
    assert load_of(written) == counting
    assert set(load_json(Load()) or ()) == set(schema["$defs"]["load"]["required"]) == set(written) - set(COUNTED)
