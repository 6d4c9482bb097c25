"""Our share of a node's tokens: the shipped schedules against a node that serves, by its own counters and by ours.

Time is virtual, the prompts are the shipped ones, and the counting is real: the node counts what it is sent, and its
users are added at a steady rate. Its tokenizer takes four bytes a token, as real ones do with English.
"""

import contextlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from quantwatch.config.schema import Settings
from quantwatch.flow.verdict import Quality
from quantwatch.flows.costs import costs
from quantwatch.prompts.load import shipped_sets
from support.tiny_node import TinyModel, TinyNode
from support.watching import Bench, settings, watching

pytestmark = pytest.mark.benchmark

ROOT = Path(__file__).resolve().parents[2]
BYTES_A_TOKEN = 4
SERVED_A_SECOND = 1500.0
"""Tokens that the node's users cost, prompts and answers."""

GOAL = 0.01
HOURS = 3
STEP = 300.0
DAY = 86_400.0


def told(text: str) -> None:
    print(f"\n{text}")  # noqa: T201, the point of a benchmark


def shipped(file: str) -> dict[str, Any]:
    """A shipped configuration's task sets and budget over one node."""
    content = yaml.safe_load((ROOT / "configs" / file).read_text(encoding="utf-8"))
    for one in content["task_sets"].values():
        if "prompts" in one:
            one["prompts"] = str(ROOT / "golden_prompts" / Path(one["prompts"]).name)
    given = {"task_sets": content["task_sets"], "probe": content.get("probe", {})}
    return settings("a", pool={"mode": "observe"}, **given)


def servers() -> dict[str, TinyNode]:
    names = {"baseline": 0.0, "a": 0.05}
    return {
        name: TinyNode(
            TinyModel(damage=damage), bytes_a_token=BYTES_A_TOKEN, started=1.7e9 + 500 * i, max_model_len=32_768
        )
        for i, (name, damage) in enumerate(names.items())
    }


def served(node: TinyNode) -> float:
    return node.prompt_tokens + node.generated_tokens


async def at_rest(bench: Bench) -> None:
    """Wait until the run waits on the clock or is over, however slow the machine is."""
    for _ in range(20):
        with contextlib.suppress(TimeoutError):
            return await bench.settle()
    pytest.fail("the run does not come to rest")


async def sent(bench: Bench) -> float:
    return await bench.series("probe_tokens_total", role="target", target="a")


async def test_the_smallest_configuration_is_under_one_per_cent_of_a_node_that_serves(tmp_path: Path) -> None:
    raw = shipped("minimal.yaml")
    async with watching(tmp_path, raw, nodes=servers()) as bench:
        node, period = bench.nodes["a"], bench.watch.watchlist.targets["a"].sets["math"].period_seconds
        for step in range(int(HOURS * 3600 / STEP)):
            if step * STEP % period == 0:
                bench.watch.due("a", "math")
            await at_rest(bench)
            await bench.advance(STEP)
            node.prompt_tokens += SERVED_A_SECOND * STEP * 0.75
            node.generated_tokens += SERVED_A_SECOND * STEP * 0.25
        runs, ours, whole = bench.runs("a"), await sent(bench), served(node)

    told(f"minimal.yaml: {len(runs)} runs in {HOURS} h, {ours:,.0f} of {whole:,.0f} tokens: {ours / whole:.2%}")
    assert len(runs) == HOURS * 3600 / period
    assert {run.quality for run in runs} <= {Quality.OK, Quality.WARN, Quality.DEGRADED, Quality.INCONCLUSIVE}
    assert ours == pytest.approx(whole - SERVED_A_SECOND * HOURS * 3600)  # the node counts as we do
    assert ours / whole < GOAL
    before, after = runs[-1].loads
    assert before is not None
    assert after is not None
    assert 0 < (after.tokens or 0) - (before.tokens or 0) < 20_000


async def test_the_share_of_every_set_of_the_full_configuration_is_told(tmp_path: Path) -> None:
    raw = shipped("full.yaml")
    chosen = Settings.model_validate(raw)
    estimated = {one.name: one for one in costs(chosen, folder=tmp_path, shipped=shipped_sets())}
    total = 0.0
    async with watching(tmp_path, raw, nodes=servers()) as bench:
        for name, one in estimated.items():
            before = await sent(bench)
            bench.watch.due("a", name)
            await at_rest(bench)
            await bench.advance(3600.0)
            tokens = await sent(bench) - before
            total += tokens * one.runs / DAY
            share = tokens * one.runs / DAY / SERVED_A_SECOND
            told(f"{name}: {tokens:,.0f} tokens a run ({one.run.sent:,.0f} estimated), {one.runs:g} runs: {share:.2%}")
            assert 0.4 < tokens / one.run.sent < 2.5
            (run,) = (one for one in bench.runs("a") if one.task_set == name)
            assert not run.reason.startswith("stopped after")
    told(f"full.yaml: {total:.1f} tokens a second, {total / SERVED_A_SECOND:.2%} of {SERVED_A_SECOND:g}")
    assert total / SERVED_A_SECOND < 3 * GOAL  # every set that is shipped, most of them every quarter of an hour
