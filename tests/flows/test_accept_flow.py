"""Whole release gates over tiny nodes: what makes a candidate pass, fail, or leave the answer open."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from quantwatch.flow.acceptance import Acceptance, Answer, GateKind, GateResult, GateVerdict
from quantwatch.flow.verdict import Quality
from quantwatch.flows.plan import Progress
from support.builders import FakeClock
from support.gating import LOAD_TOKENS, bench, every, gate_of, judged, load, overloaded, server
from support.tiny_node import TinyNode

PASS, FAIL, CANNOT_TELL = GateVerdict.PASS, GateVerdict.FAIL, GateVerdict.CANNOT_TELL


def verdicts(found: Acceptance) -> dict[str, GateVerdict]:
    return {gate.gate.value: gate.verdict for one in found.sets for gate in one.gates}


def sent(node: TinyNode) -> int:
    """Requests of the load that a node got."""
    return sum(body["max_tokens"] == LOAD_TOKENS for body in node.completions())


async def test_a_healthy_candidate_is_kept(tmp_path: Path) -> None:
    found = await bench(tmp_path, candidate=server("candidate", 0.05)).run()
    assert found.answer is Answer.KEEP
    assert verdicts(found) == {"quality": PASS}
    assert found.complete
    assert found.candidate is not None
    assert found.candidate.quality is Quality.OK


async def test_a_degraded_candidate_is_rejected_and_the_limit_named(tmp_path: Path) -> None:
    found = await bench(tmp_path, candidate=server("candidate", 1.5)).run()
    assert found.answer is Answer.REJECT
    assert any("letters, quality: degraded: mean KL" in reason for reason in found.reasons)


async def test_a_corrupted_candidate_is_rejected_and_asked_nothing_more(tmp_path: Path) -> None:
    candidate = server("candidate", nan_on=lambda _: True)
    rig = bench(tmp_path, candidate=candidate, load=load())
    task_set = {"prompts": "letters.yaml", "draw": 16, "continuation_tokens": 24}
    rig.changed["task_sets"] = {"first": task_set, "second": task_set}
    found = await rig.run()
    assert found.answer is Answer.REJECT
    assert sent(candidate) == 0
    first, second = found.sets
    assert first.gates[0].verdict is FAIL
    assert first.gates[0].reasons[0].startswith("corrupted: ")
    assert [one.verdict for one in second.gates] == [CANNOT_TELL] * 2
    assert "computes broken numbers" in second.gates[0].reasons[0]


async def test_an_unreachable_candidate_is_not_accepted_and_not_blamed(tmp_path: Path) -> None:
    rig = bench(tmp_path, load=load())
    rig.nodes["candidate"] = server("candidate", replace=lambda _: overloaded())
    found = await rig.run()
    assert found.answer is Answer.CANNOT_TELL
    assert set(verdicts(found).values()) == {CANNOT_TELL}


async def test_a_candidate_that_is_the_baseline_cannot_be_told_and_gets_no_load(tmp_path: Path) -> None:
    candidate = server("candidate", started=server("baseline").started)
    found = await bench(tmp_path, candidate=candidate, load=load()).run()
    assert found.answer is Answer.CANNOT_TELL
    assert "same server" in gate_of(found, GateKind.QUALITY).reasons[0]
    assert sent(candidate) == 0


async def test_a_candidate_that_is_the_running_node_cannot_be_told_and_gets_no_load(tmp_path: Path) -> None:
    running = server("running", started=server("candidate").started)
    found = await bench(tmp_path, running=running, load=load(running=True)).run()
    assert found.answer is Answer.CANNOT_TELL
    assert verdicts(found)["quality"] is PASS
    assert "candidate and running node" in gate_of(found, GateKind.AGAINST_RUNNING).reasons[0]
    assert sent(running) == 0


async def test_a_candidate_as_good_as_the_running_node_is_kept(tmp_path: Path) -> None:
    found = await bench(tmp_path, running=server("running", 0.1), candidate=server("candidate", 0.1)).run()
    assert found.answer is Answer.KEEP
    paired = found.sets[0].paired
    assert paired is not None
    assert paired.kl_mean.high == 0


async def test_a_candidate_worse_than_the_running_node_fails_though_its_own_limits_hold(tmp_path: Path) -> None:
    """Wide limits of its own, no margin: only the running node shows that it got worse."""
    wide = {
        "kl_mean": {"critical": 5},
        "perplexity_ratio": {"critical": 50},
        "top1_agreement": {"warn": 0, "critical": 0},
    }
    rig = bench(tmp_path, running=server("running", 0.05), candidate=server("candidate", 0.6), limits=wide)
    found = await rig.run()
    assert verdicts(found) == {"quality": PASS, "against_running": FAIL}
    assert found.answer is Answer.REJECT


async def test_a_running_node_that_is_down_leaves_the_answer_open(tmp_path: Path) -> None:
    found = await bench(tmp_path, running=server("running", replace=lambda _: overloaded())).run()
    assert verdicts(found) == {"quality": PASS, "against_running": CANNOT_TELL}
    assert found.answer is Answer.CANNOT_TELL


async def test_all_servers_get_the_same_draw(tmp_path: Path) -> None:
    rig = bench(tmp_path, running=server("running"))
    await rig.run()
    asked = [
        [body["prompt"] for body in node.completions() if body.get("prompt_logprobs")] for node in rig.nodes.values()
    ]
    assert asked[0]
    assert asked[0] == asked[1] == asked[2]


async def test_the_intervals_hold_for_all_limits_of_the_gate_together(tmp_path: Path) -> None:
    plain = {"prompts": "letters.yaml", "draw": 16, "continuation_tokens": 24}
    parts = {"language": {"en": {"kl_mean": {"critical": 1}}, "zh": {"kl_mean": {"warn": 1}}}}
    one = bench(tmp_path, task_sets={"a": plain}).plan()
    two = bench(tmp_path, task_sets={"a": {**plain, "slices": parts}, "b": plain}).plan()
    assert one.sets[0].plan.level == pytest.approx(1 - 0.1 / 3)
    assert [planned.plan.level for planned in two.sets] == [pytest.approx(1 - 0.1 / 7)] * 2


async def test_parts_of_a_set_have_their_own_limits(tmp_path: Path) -> None:
    parts = {"language": {"en": {"kl_mean": {"critical": 1}}}}
    task_set = {"prompts": "letters.yaml", "draw": 16, "continuation_tokens": 24, "slices": parts}
    found = await bench(tmp_path, task_sets={"a": task_set}).run()
    assert gate_of(found, GateKind.QUALITY).figures[-1].name == "mean KL of language en"


async def test_load_goes_only_where_the_plan_says_so(tmp_path: Path) -> None:
    wanted: dict[str, dict[str, Any] | None] = {"none": None, "candidate": load(), "both": load(running=True)}
    got = {}
    for name, one in wanted.items():
        rig = bench(tmp_path, running=server("running"), load=one)
        await rig.run()
        got[name] = [sent(node) for node in rig.nodes.values()]
    warm = 12 + 2
    assert got == {"none": [0, 0, 0], "candidate": [0, warm, 0], "both": [0, warm, warm]}


async def test_both_nodes_get_the_same_load(tmp_path: Path) -> None:
    rig = bench(tmp_path, running=server("running"), load=load(running=True))
    await rig.run()
    prompts = [
        sorted(body["prompt"] for body in rig.nodes[name].completions() if body["max_tokens"] == LOAD_TOKENS)
        for name in ("candidate", "running")
    ]
    assert prompts[0] == prompts[1]
    assert len({tuple(one) for one in prompts[0]}) == len(prompts[0]), "no two requests share a prefix cache"


async def test_a_candidate_that_fails_one_request_in_twenty_is_rejected(tmp_path: Path) -> None:
    found = await bench(
        tmp_path, candidate=server("candidate", edit=every(20, overloaded)), load=load(400), gates={}
    ).run()
    assert verdicts(found) == {"quality": PASS, "errors": FAIL}
    assert found.answer is Answer.REJECT
    assert "20 of 400 requests failed (20 failed), over the allowed 1.00%" in gate_of(found, GateKind.ERRORS).reasons[0]


async def test_a_candidate_that_answers_too_shortly_fails(tmp_path: Path) -> None:
    def cut(reply: dict[str, Any]) -> dict[str, Any]:
        for one in reply["choices"]:
            one["token_ids"] = one["token_ids"][:2] if len(one["token_ids"]) == LOAD_TOKENS else one["token_ids"]
        return reply

    found = await bench(tmp_path, candidate=server("candidate", edit=cut), load=load()).run()
    assert "(12 short)" in gate_of(found, GateKind.ERRORS).reasons[0]
    assert found.answer is Answer.REJECT


MEMORY = 'process_resident_memory_bytes {}\nvllm:cache_config_info{{block_size="16",num_gpu_blocks="10"}} 1\n'


async def test_a_candidate_that_takes_more_memory_than_allowed_is_rejected(tmp_path: Path) -> None:
    candidate, running = (
        server(name, more_metrics=MEMORY.format(size)) for name, size in (("candidate", 3e9), ("running", 2e9))
    )
    gates = {"memory": {"max_ratio": 1.2, "max_size": "4GiB"}}
    found = await bench(tmp_path, candidate=candidate, running=running, gates=gates).run()
    memory = gate_of(found, GateKind.MEMORY)
    assert memory.verdict is FAIL
    assert memory.reasons == ("memory 2861 MiB is 1.5 times the running node's, over the limit 1.2",)
    assert found.sets[0].memory.kv_tokens == 160


async def test_memory_that_nobody_tells_is_no_pass(tmp_path: Path) -> None:
    found = await bench(tmp_path, gates={"memory": {"max_size": "4GiB"}}).run()
    assert verdicts(found) == {"quality": PASS, "memory": CANNOT_TELL}


async def test_a_p99_gate_holds_and_fails_by_the_nodes_own_time(tmp_path: Path) -> None:
    """No time is waited for: the node moves the clock itself while it answers."""
    found = {seconds: await _timed(tmp_path, seconds) for seconds in (0.5, 1.5)}
    assert found[0.5].verdict is PASS
    assert found[1.5].verdict is FAIL
    assert found[1.5].figures[0].number.value == pytest.approx(1.5)


async def _timed(folder: Path, seconds: float) -> GateResult:
    clock = FakeClock()

    def tick(reply: dict[str, Any]) -> dict[str, Any]:
        clock.time += seconds
        return reply

    rig = bench(folder, candidate=server("candidate", edit=tick), gates={"latency": {"p99": "1s"}})
    rig.changed["load"] = load(400, concurrency=1, time_limit="1h")
    rig.clock = clock
    return gate_of(await rig.run(), GateKind.LATENCY)


async def test_a_running_node_busy_with_its_users_gets_no_load(tmp_path: Path) -> None:
    running = server("running")
    rig = bench(tmp_path, running=running, load=load(running=True))

    async with rig.gate() as gate:
        first = gate.tell

        def users_come(at: Progress) -> None:
            first(at)
            running.waiting = 5 if "load" in at.doing else running.waiting

        gate.tell = users_come
        await gate.run()
    found = judged(gate)
    assert any("load on the running: busy with its users" in note for note in found.sets[0].notes)
    assert found.sets[0].latency is not None
    assert found.sets[0].latency.sent == 12


async def test_an_interrupted_gate_keeps_what_was_measured_and_accepts_nothing(tmp_path: Path) -> None:
    rig = bench(tmp_path, load=load())

    async with rig.gate() as gate:

        def interrupt(at: Progress) -> None:
            if "load on" in at.doing:
                raise asyncio.CancelledError

        gate.tell = interrupt
        with pytest.raises(asyncio.CancelledError):
            await gate.run()
    found = judged(gate)
    assert not found.complete
    assert found.answer is Answer.CANNOT_TELL
    assert verdicts(found)["quality"] is PASS
    assert "the gate was interrupted" in found.reasons[-1]


async def test_a_gate_that_is_interrupted_at_once_knows_nothing(tmp_path: Path) -> None:
    rig = bench(tmp_path, load=load(400), gates={"latency": {"p99": "1s"}})
    async with rig.gate() as gate:
        pass
    found = judged(gate)
    assert (found.answer, found.sets, found.candidate) == (Answer.CANNOT_TELL, (), None)


async def test_progress_ends_where_it_said_it_would(tmp_path: Path) -> None:
    rig = bench(tmp_path, running=server("running"), load=load(running=True))
    await rig.run()
    assert rig.told[-1].done == rig.told[-1].total == rig.plan().steps
    assert [one.done for one in rig.told] == sorted(one.done for one in rig.told)


async def test_a_task_set_without_load_has_no_latency(tmp_path: Path) -> None:
    task_set = {"prompts": "letters.yaml", "draw": 16, "continuation_tokens": 24}
    rig = bench(tmp_path, task_sets={"one": task_set, "two": task_set}, load=load(task_sets=["two"]))
    found = await rig.run()
    assert [one.latency is not None for one in found.sets] == [False, True]
    assert [len(one.gates) for one in found.sets] == [1, 2]
    assert [one.name for one in found.sets] == ["one", "two"]


async def test_a_refused_key_is_a_matter_for_a_person(tmp_path: Path) -> None:
    found = await bench(tmp_path, candidate=server("candidate", api_key="wanted")).run()
    assert found.misconfigured
    assert found.answer is Answer.CANNOT_TELL
