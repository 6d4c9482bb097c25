"""Traces of runs, as a collector on a socket receives them."""

import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from quantwatch.config.tracing import TracingSettings
from quantwatch.daemon.tracing import installed, tracer_of
from quantwatch.errors import InputError
from quantwatch.expose.traces import Traces
from quantwatch.flow.state import Routing
from quantwatch.flow.verdict import Quality
from quantwatch.trace import NOTHING, NoTracer, current, root, step
from support.collector import Collector, collecting
from support.daemons import inside, site, until
from support.served import served
from support.tiny_node import TinyNode
from support.watching import restarted, watching

BAD = 1.0
CLIENT = 3
PARENT = re.compile("00-([0-9a-f]{32})-([0-9a-f]{16})-0[13]")


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as one:
        yield one


def traces(collector: Collector, **given: object) -> Traces:
    return Traces(collector.url, {}, **{"ratio": 1.0, "every_seconds": 0.05, "close_seconds": 30.0, **given})  # type: ignore[arg-type]


async def test_a_run_is_one_trace_with_a_part_for_everything_that_it_does(tmp_path: Path, collector: Collector) -> None:
    tracer, heads = traces(collector), dict[str, set[str]]()

    def hear(request: httpx.Request) -> None:
        heads.setdefault(request.url.host, set()).add(request.headers.get("traceparent", "none"))

    async with watching(tmp_path, tracer=tracer) as bench:
        bench.wire.hear = hear
        await bench.round("a")
        (run,) = bench.runs("a")
    await tracer.close()

    (whole,) = collector.named("run")
    assert {one.trace for one in collector.spans} == {whole.trace}
    assert whole.parent == ""
    assert not whole.failed
    assert whole.attributes["quantwatch.run.id"] == run.id
    assert whole.attributes["quantwatch.target"] == "a"
    assert whole.attributes["quantwatch.task_set"] == "letters"
    assert whole.attributes["quantwatch.run.trigger"] == "schedule"
    assert whole.attributes["quantwatch.quality"] == "ok"
    assert whole.attributes["quantwatch.kl.mean"] == run.numbers["kl_mean"]
    parents = {one.name: one.parent for one in collector.spans}
    for name in ("measure", "judge", "self-check", "decide", "ask node"):
        assert parents[name] == whole.id
    for host in ("a", "baseline"):
        found = [PARENT.fullmatch(head) for head in heads[host]]
        assert {one[1] for one in found if one is not None} == {whole.trace}
        assert None not in found
    assert collector.resource["service.name"] == "quantwatch"


async def test_each_prompt_is_one_span_a_server_with_the_conventions_names(
    tmp_path: Path, collector: Collector
) -> None:
    tracer = traces(collector)
    async with watching(tmp_path, tracer=tracer) as bench:
        await bench.round("a")
    await tracer.close()

    asked = collector.named("ask node")
    prompts = [one.attributes["quantwatch.prompt.id"] for one in asked]
    assert len(prompts) == len(set(prompts)) > 1
    (whole,) = collector.named("run")
    first = [one for one in collector.named("ask baseline") if one.parent == whole.id]
    assert sorted(one.attributes["quantwatch.prompt.id"] for one in first) == sorted(prompts)
    for one in asked:
        assert one.kind == CLIENT
        assert one.attributes["gen_ai.operation.name"] == "text_completion"
        assert one.attributes["gen_ai.request.model"]
        assert one.attributes["gen_ai.usage.input_tokens"] > 0
        assert one.attributes["server.address"] == "a"
        assert one.attributes["server.port"] == 80


async def test_an_isolation_is_told_with_its_ruling_its_order_and_its_outcome(
    tmp_path: Path, collector: Collector
) -> None:
    tracer, called = traces(collector), list[str | None]()
    async with watching(tmp_path, tracer=tracer) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        bench.wire.hear = lambda request: (
            called.append(request.headers.get("traceparent")) if request.url.host == "gateway" else None
        )
        await bench.rounds(1)
        await bench.advance(60)
        assert bench.routing("a") is Routing.OUT
        (made,) = bench.decisions("a")
        guilty = bench.runs("a")[-1]
    await tracer.close()

    (order,) = collector.named("order at the gateway")
    assert order.attributes["quantwatch.order.result"] == "verified"
    assert order.attributes["quantwatch.decision.id"] == made.id
    assert order.attributes["quantwatch.gateway.driver"] == "webhook"
    assert not order.failed
    (decided,) = [one for one in collector.named("decide") if "quantwatch.decision.id" in one.attributes]
    assert decided.attributes["quantwatch.decision.ruling"] == "act"
    run = next(one for one in collector.named("run") if one.attributes["quantwatch.run.id"] == guilty.id)
    assert order.trace == decided.trace == run.trace
    assert run.attributes["quantwatch.quality"] == "degraded"
    assert called
    assert set(called) == {None}  # a gateway is not asked as part of a trace


async def test_trouble_of_a_node_is_marked_on_what_asked_it(tmp_path: Path, collector: Collector) -> None:
    tracer = traces(collector)
    async with watching(tmp_path, tracer=tracer) as bench:
        await bench.rounds(1)
        before = len(collector.named("run"))
        bench.wire.down.add("a")
        await bench.rounds(1, "a")
    await tracer.close()

    assert len(collector.named("run")) > before
    assert collector.named("run")[-1].attributes["quantwatch.quality"] == Quality.UNKNOWN


async def test_two_runs_at_once_keep_their_traces_apart(tmp_path: Path, collector: Collector) -> None:
    tracer = traces(collector)
    async with watching(tmp_path, tracer=tracer) as bench:
        for name in ("a", "b"):
            bench.watch.due(name, "letters")
        await bench.settle()
    await tracer.close()

    runs = {one.attributes["quantwatch.target"]: one for one in collector.named("run")}
    assert len({one.trace for one in runs.values()}) == 2
    for name, whole in runs.items():
        of_it = [one for one in collector.named("ask node") if one.trace == whole.trace]
        assert {one.attributes["server.address"] for one in of_it} == {name}


async def test_without_a_tracer_requests_carry_nothing(tmp_path: Path) -> None:
    heads: list[httpx.Headers] = []
    async with watching(tmp_path) as bench:
        bench.wire.hear = lambda request: heads.append(request.headers)
        await bench.round("a")

    assert heads
    assert not any("traceparent" in one for one in heads)


@pytest.mark.parametrize("trouble", ["gone", "slow", "refuses"])
async def test_a_collector_in_trouble_delays_no_run_and_no_end(
    tmp_path: Path, collector: Collector, trouble: str
) -> None:
    collector.slow, collector.status = trouble == "slow", 503 if trouble == "refuses" else 200
    at = "http://127.0.0.1:9" if trouble == "gone" else collector.url
    tracer = Traces(at, {}, ratio=1.0, every_seconds=0.01, close_seconds=0.2)
    async with watching(tmp_path, tracer=tracer) as bench:
        await bench.rounds(1)
        assert [one.quality for one in bench.runs("a")] == [Quality.OK]
    await tracer.close()  # without a limit it would wait for a collector that never answers

    assert collector.spans == []


async def test_lost_traces_are_told_once_and_so_is_their_return(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    collector.status = 302
    tracer = traces(collector, every_seconds=0.01)

    async def sent(count: int) -> None:
        tracer.begin("run", {}).end()
        await until(lambda: len(collector.heads) >= count)

    await sent(1)
    await sent(2)
    collector.status = 200
    await sent(3)
    await until(lambda: "delivered again" in caplog.text)
    await tracer.close()

    said = [one.getMessage() for one in caplog.records if "traces" in one.getMessage()]
    assert sum("cannot be delivered" in one for one in said) == 1
    assert sum("delivered again" in one for one in said) == 1
    assert "Traceback" not in caplog.text


async def test_of_many_runs_only_the_wished_share_is_sent(collector: Collector) -> None:
    tracer = traces(collector, ratio=1e-9)
    for _ in range(20):
        with root(tracer, "run", {}) as span, step("measure"):
            assert PARENT.fullmatch(current().headers()["traceparent"]) is None  # ends in -00: not kept
        assert span is not NOTHING
    await tracer.close()

    assert collector.spans == []


async def test_an_exception_marks_its_step_and_goes_on_and_secrets_are_masked(collector: Collector) -> None:
    tracer = traces(collector)
    with pytest.raises(ZeroDivisionError), root(tracer, "run", {"a": "http://ada:pw@host", "b": None}), step("measure"):
        raise ZeroDivisionError
    await tracer.close()

    assert [one.failed for one in collector.spans] == [True, True]
    (whole,) = collector.named("run")
    assert whole.attributes == {"a": "http://***@host"}
    assert current() is NOTHING


def test_without_a_trace_a_step_is_nothing_and_costs_no_span() -> None:
    with step("measure") as span:
        assert span is NOTHING
        span.note({"a": 1})
        span.fail("x")
        assert span.child("b", {}, outward=True) is NOTHING
        assert span.headers() == {}
    with root(NoTracer(), "run", {}) as span:
        assert span is NOTHING


# The configuration


async def test_headers_of_the_configuration_reach_the_collector_with_their_secrets(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUANTWATCH_TEST_KEY", "s3cret")
    given = {"endpoint": f"{collector.url}/v1/traces", "headers": {"x-key": "env:QUANTWATCH_TEST_KEY", "x-team": "a"}}
    tracer = tracer_of(TracingSettings.model_validate(given))
    tracer.begin("run", {}).end()
    await tracer.close()

    assert collector.heads[0]["x-key"] == "s3cret"
    assert collector.heads[0]["x-team"] == "a"
    assert len(collector.spans) == 1


def test_a_secret_that_is_not_there_is_refused() -> None:
    given = {"endpoint": "http://127.0.0.1:9", "headers": {"x-key": "env:QUANTWATCH_NO_SUCH_KEY"}}
    with pytest.raises(InputError, match="QUANTWATCH_NO_SUCH_KEY"):
        tracer_of(TracingSettings.model_validate(given))


async def test_without_the_key_nobody_traces() -> None:
    tracer = tracer_of(None)

    assert isinstance(tracer, NoTracer)
    await tracer.close()


UNTRACED = """\
import sys
if sys.argv[1] == "hidden":
    class Hide:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] == "opentelemetry":
                raise ModuleNotFoundError(name)
    sys.meta_path.insert(0, Hide())
import json
import quantwatch.cli.main, quantwatch.daemon.process
from quantwatch.config.tracing import TracingSettings
from quantwatch.daemon.tracing import installed, tracer_of
settings = TracingSettings(endpoint="http://127.0.0.1:9") if sys.argv[1] == "hidden" else None
tracer = tracer_of(settings)
print(json.dumps([installed(), type(tracer).__name__, "opentelemetry.sdk" in sys.modules, "requests" in sys.modules]))
"""


@pytest.mark.parametrize(("extra", "there"), [("there", True), ("hidden", False)])
def test_without_the_key_or_the_extra_nothing_is_imported(extra: str, *, there: bool) -> None:
    command = [sys.executable, "-c", UNTRACED, extra]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)  # noqa: S603, our own program

    assert json.loads(done.stdout.splitlines()[-1]) == [there, "NoTracer", False, False]


async def test_a_daemon_traces_its_runs_and_sends_the_last_of_them_as_it_ends(
    tmp_path: Path, collector: Collector
) -> None:
    assert installed()
    with served(TinyNode()) as baseline, served(TinyNode()) as node:
        where = site(tmp_path, baseline, {"a": node}, tracing={"endpoint": collector.url})
        async with inside(where) as daemon:
            await until(lambda: daemon.memory.set_state("a", "letters").run is not None)

    assert {one.attributes["quantwatch.target"] for one in collector.named("run")} == {"a"}
