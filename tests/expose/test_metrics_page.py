import math
import shutil
import subprocess
from dataclasses import fields, replace
from typing import Any

import pytest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from quantwatch.expose import metrics
from quantwatch.expose.exposition import exposition
from quantwatch.expose.meters import LEVELS, SKIPS, Meters
from quantwatch.expose.metrics import PREFIX, Series
from quantwatch.flow.board import BaselineBoard, Board
from quantwatch.flow.decision import Action, Brake, PoolMode, Result, Ruling
from quantwatch.flow.identity import Identity
from quantwatch.flow.reference import ReferenceState
from quantwatch.flow.state import Axis, Human, Pause, Routing, Transition
from quantwatch.flow.verdict import Limit, Metric, Quality
from support.boards import AT, board, isolated, measured, numbers, rich_board, run_record, set_board, target_board

OPENMETRICS = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,*/*;q=0.1"
SERIES = [one for one in vars(metrics).values() if isinstance(one, Series)]
PROMTOOL = shutil.which("promtool")

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def openmetrics_families(page: str) -> list[Family]:
    return list(read_openmetrics(page))  # type: ignore[no-untyped-call]


def samples(whole: Board, meters: Meters | None = None) -> Samples:
    """Every sample of the text page by its name without prefix and its labels; fails on a duplicate."""
    page, _ = exposition(whole, meters or Meters())
    found: Samples = {}
    for family in text_string_to_metric_families(page.decode()):
        for one in family.samples:
            key = one.name.removeprefix(PREFIX), frozenset(one.labels.items())
            assert key not in found
            found[key] = one.value
    return found


def value(found: Samples, name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


def names(found: Samples, **labels: str) -> set[str]:
    return {name for name, having in found if labels.items() <= dict(having).items()}


def used_meters() -> Meters:
    """Meters on which every counter and histogram has counted."""
    meters = Meters()
    meters.expect("node-a", ["math", "code"])
    meters.expect_pool("chat")
    for quality in Quality:
        meters.run_finished(run_record(quality=quality))
    meters.run_skipped("node-a", "math", "overlap")
    meters.suppressed("chat", Brake.CAP)
    meters.decided("chat", Action.ISOLATE, Ruling.ACT)
    meters.transition(Transition(AT, "node-a", Axis.ROUTING, "in", "out", "because"))
    meters.gateway_called("webhook", Action.ISOLATE, seconds=0.2, failure="refused")
    meters.settled("webhook", Action.ISOLATE, Result.VERIFIED)
    meters.upstream_called("target", "node-a", seconds=0.2, failure="timeout")
    meters.notice_told("ops")
    meters.notice_failed("ops")
    meters.store_error()
    meters.clock_jumped()
    meters.loop_lag(0.002)
    meters.job_missed("misfire")
    meters.verdict_asked("node-a", known=True)
    meters.verdict_asked("stranger", known=False)
    return meters


def test_every_series_of_the_product_is_on_a_rich_page() -> None:
    page, _ = exposition(rich_board(), used_meters())
    helped = {line.split()[2] for line in page.decode().splitlines() if line.startswith("# HELP")}
    assert {PREFIX + one.name for one in SERIES} == {name for name in helped if name.startswith(PREFIX)}
    assert {"process_resident_memory_bytes", "python_info"} <= helped


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
def test_promtool_has_nothing_to_say() -> None:
    page, _ = exposition(rich_board(), used_meters())
    command = [str(PROMTOOL), "check", "metrics"]
    done = subprocess.run(command, input=page, capture_output=True, timeout=60, check=False)  # noqa: S603, promtool
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
def test_promtool_would_say_something() -> None:
    command = [str(PROMTOOL), "check", "metrics"]
    page = b"# TYPE a_milliseconds counter\na_milliseconds 1\n"
    done = subprocess.run(command, input=page, capture_output=True, timeout=60, check=False)  # noqa: S603, promtool
    assert done.returncode != 0


def test_openmetrics_is_given_where_it_is_asked_for() -> None:
    page, content_type = exposition(rich_board(), used_meters(), accept=OPENMETRICS)
    families = openmetrics_families(page.decode())
    assert content_type == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert {"quantwatch_runs", "quantwatch_kl_divergence_mean_nats"} <= {family.name for family in families}
    assert page.endswith(b"# EOF\n")


def test_a_channel_has_its_series_from_the_start_and_none_once_it_has_left() -> None:
    meters = Meters()
    meters.expect_channel("ops")
    meters.expect_channel("team")
    meters.notice_told("ops")
    found = samples(board(), meters)
    assert found["notifications_total", frozenset({("channel", "ops")})] == 1
    assert found["notification_failures_total", frozenset({("channel", "team")})] == 0
    meters.forget_channel("ops")
    left = {labels for name, labels in samples(board(), meters) if name.startswith("notification")}
    assert left == {frozenset({("channel", "team")})}


def test_what_waits_for_a_channel_is_shown() -> None:
    found = samples(board(notices_waiting={"ops": 3, "team": 0}))
    assert found["notifications_waiting", frozenset({("channel", "ops")})] == 3
    assert found["notifications_waiting", frozenset({("channel", "team")})] == 0


def test_a_run_leaves_its_id_at_the_histogram() -> None:
    page, _ = exposition(board(), used_meters(), accept=OPENMETRICS)
    exemplars = [
        sample.exemplar.labels
        for family in openmetrics_families(page.decode())
        for sample in family.samples
        if sample.exemplar is not None
    ]
    assert exemplars == [{"run_id": "r-1"}]


@pytest.mark.parametrize("accept", ["", "*/*", "text/plain;version=0.0.4"])
def test_the_text_format_is_given_otherwise(accept: str) -> None:
    page, content_type = exposition(rich_board(), used_meters(), accept=accept)
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert b"# EOF" not in page


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_no_page_tells_when_a_counter_was_made(accept: str) -> None:
    page, _ = exposition(rich_board(), used_meters(), accept=accept)
    assert b"_created" not in page


NOT_OURS = {
    "node",
    "endpoint",
    "instance",
    "job",
    "pod",
    "namespace",
    "service",
    "cluster",
    "zone",
    "type",
    "le",
    "owner",
}


@pytest.mark.parametrize("series", SERIES, ids=lambda series: series.name)
def test_a_series_keeps_the_conventions(series: Series) -> None:
    assert not set(series.labels) & NOT_OURS
    assert len(set(series.labels)) == len(series.labels)
    assert series.help.endswith(".")
    assert series.name == series.name.lower()


def test_no_two_series_share_a_name() -> None:
    assert len({one.name for one in SERIES}) == len(SERIES)


def test_the_numbers_of_a_run_are_shown_each_in_its_own_family() -> None:
    given = numbers(kl_mean=0.1, kl_p99=0.2, kl_max=0.3, perplexity_ratio=1.1, top1_agreement=0.9, coverage=0.99)
    given |= {"perplexity_baseline": 5.0, "perplexity_node": 5.5, "tail_mass": 0.01, "tail_mass_node": 0.02}
    found = samples(board(target_board("node-a", measured(numbers=given))))
    at = {"target": "node-a", "task_set": "math"}
    assert value(found, "kl_divergence_mean_nats", **at) == 0.1
    assert value(found, "kl_divergence_p99_nats", **at) == 0.2
    assert value(found, "kl_divergence_max_nats", **at) == 0.3
    assert value(found, "perplexity_ratio", **at) == 1.1
    assert value(found, "top1_agreement_ratio", **at) == 0.9
    assert value(found, "coverage_ratio", **at) == 0.99
    assert value(found, "tokens_compared", **at) == 960
    assert value(found, "prompts_compared", **at) == 20
    assert value(found, "perplexity", role="baseline", **at) == 5.0
    assert value(found, "perplexity", role="target", **at) == 5.5
    assert value(found, "outside_topk_mass_ratio", role="baseline", **at) == 0.01
    assert value(found, "outside_topk_mass_ratio", role="target", **at) == 0.02


def test_the_rest_of_a_runs_numbers_is_shown_as_well() -> None:
    given = numbers(topk_overlap=0.8, logprob_delta=-0.02, entropy_baseline=1.5, entropy_node=1.25)
    given |= {"kl_interval": [0.08, 0.12], "perplexity_ratio_interval": [1.05, None], "corrupted_positions": 3}
    given |= {"probe_seconds_baseline": 0.5, "probe_seconds_node": 0.25}
    found = samples(board(target_board("node-a", measured(numbers=given))))
    at = {"target": "node-a", "task_set": "math"}
    assert value(found, "topk_overlap_ratio", **at) == 0.8
    assert value(found, "mean_log_likelihood_delta_nats", **at) == -0.02
    assert value(found, "entropy_nats", role="baseline", **at) == 1.5
    assert value(found, "entropy_nats", role="target", **at) == 1.25
    assert value(found, "kl_divergence_mean_low_nats", **at) == 0.08
    assert value(found, "kl_divergence_mean_high_nats", **at) == 0.12
    assert value(found, "perplexity_low_ratio", **at) == 1.05
    assert value(found, "perplexity_high_ratio", **at) is None
    assert value(found, "corrupted_positions", **at) == 3
    assert value(found, "probe_mean_duration_seconds", role="baseline", **at) == 0.5
    assert value(found, "probe_mean_duration_seconds", role="target", **at) == 0.25


@pytest.mark.parametrize("odd", [None, 0.1, "text", [], [None, None]])
def test_an_interval_that_is_none_is_left_out(odd: Any) -> None:
    found = samples(board(target_board("node-a", measured(numbers=numbers(kl_interval=odd)))))
    assert names(found) & {"kl_divergence_mean_low_nats", "kl_divergence_mean_high_nats"} == set()


def test_an_isolation_shows_whether_it_was_seen_and_until_when_it_holds() -> None:
    found = samples(board(isolated("node-b", verified=False), target_board("node-a")))
    assert value(found, "isolation_verified", target="node-b") == 0
    assert value(found, "hold_until_timestamp_seconds", target="node-b") == AT.timestamp()
    assert names(found, target="node-a") & {"isolation_verified", "hold_until_timestamp_seconds"} == set()


def test_a_verdict_tells_since_when_it_stands() -> None:
    found = samples(board(target_board("node-a", measured(), measured(task_set="code", since=None))))
    since = "verdict_since_timestamp_seconds"
    assert value(found, since, target="node-a", task_set="math") == AT.timestamp()
    assert value(found, since, target="node-a", task_set="code") is None


def test_a_task_set_tells_how_it_is_asked() -> None:
    told = {"task_set": "math", "digest": "f" * 12, "prompts": "200", "draw": "24", "top_k": "20"}
    assert value(samples(board()), "task_set_info", mode="prompt_scoring", **told) == 1


def test_limits_are_shown_by_level_and_a_level_that_is_off_is_absent() -> None:
    limits = {Metric.KL_MEAN: Limit(0.01, 0.05), Metric.PERPLEXITY_RATIO: Limit(None, 1.02)}
    found = samples(board(target_board("node-a", measured(limits=limits))))
    at = {"target": "node-a", "task_set": "math"}
    assert value(found, "kl_divergence_mean_threshold_nats", level="warn", **at) == 0.01
    assert value(found, "kl_divergence_mean_threshold_nats", level="critical", **at) == 0.05
    assert value(found, "perplexity_threshold_ratio", level="warn", **at) is None
    assert value(found, "perplexity_threshold_ratio", level="critical", **at) == 1.02
    assert "top1_agreement_threshold_ratio" not in names(found)


def test_what_is_chosen_is_one_and_the_rest_are_zero() -> None:
    found = samples(board(isolated("node-b", human=Human.HELD), mode=PoolMode.DRY_RUN))
    routed = {one: value(found, "target_routing", target="node-b", routing=one) for one in Routing}
    assert routed == {one: float(one is Routing.OUT) for one in Routing}
    assert value(found, "target_quality", target="node-b", quality="degraded") == 1
    assert value(found, "target_human", target="node-b", human="held") == 1
    assert value(found, "verdict", target="node-b", task_set="math", verdict="ok") == 1
    assert value(found, "mode", pool="chat", mode="dry_run") == 1
    assert value(found, "mode", pool="chat", mode="enforce") == 0


def test_a_run_that_could_not_tell_is_no_success() -> None:
    cannot = set_board(last=Quality.INVALID)
    found = samples(board(target_board("node-a", cannot)))
    assert value(found, "probe_success", target="node-a", task_set="math") == 0


def test_a_breach_is_a_success_of_the_probe() -> None:
    found = samples(board(target_board("node-a", measured(last=Quality.DEGRADED))))
    assert value(found, "probe_success", target="node-a", task_set="math") == 1


def test_before_the_first_run_nothing_is_claimed() -> None:
    fresh = set_board(run=None, at=None, quality=Quality.UNKNOWN, last=Quality.UNKNOWN)
    shown = names(samples(board(target_board("node-a", fresh))), target="node-a", task_set="math")
    assert shown & {"probe_success", "last_run_timestamp_seconds", "last_success_timestamp_seconds"} == set()
    assert not {name for name in shown if name.startswith(("kl_", "perplexity")) and "threshold" not in name}


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, None, "text", [1.0]])
def test_what_is_no_finite_number_is_left_out(odd: Any) -> None:
    found = samples(board(target_board("node-a", measured(numbers=numbers(kl_mean=odd)))))
    assert value(found, "kl_divergence_mean_nats", target="node-a", task_set="math") is None
    assert value(found, "kl_divergence_p99_nats", target="node-a", task_set="math") is not None
    assert all(math.isfinite(one) for (name, labels), one in found.items() if ("le", "+Inf") not in labels)


def test_times_are_seconds_since_1970() -> None:
    found = samples(board(isolated("node-b")))
    assert value(found, "isolated_since_timestamp_seconds", target="node-b") == AT.timestamp()
    assert value(found, "last_run_timestamp_seconds", target="node-b", task_set="math") == AT.timestamp()


@pytest.mark.parametrize("routing", [one for one in Routing if one is not Routing.OUT])
def test_only_a_target_that_is_out_is_isolated_since(routing: Routing) -> None:
    found = samples(board(isolated("node-b", routing=routing)))
    assert value(found, "isolated_since_timestamp_seconds", target="node-b") is None


def test_a_pause_is_a_change_of_a_series_that_was_there() -> None:
    before, after = samples(board()), samples(board(pauses=(Pause("p", "target:node-a", "why", "ada", AT),) * 2))
    assert value(before, "paused", scope="target:node-a") == 0
    assert value(after, "paused", scope="target:node-a") == 1
    assert value(after, "paused", scope="all") == value(after, "paused", scope="pool:chat") == 0


TROUBLES = [
    ("store_up", {"store_trouble": "disk full"}),
    ("ready", {"store_trouble": "disk full"}),
    ("ready", {"restored": False}),
    ("gateway_up", {"gateway_trouble": "refused"}),
    ("config_last_reload_successful", {"reload_ok": False}),
]


@pytest.mark.parametrize(("name", "trouble"), TROUBLES)
def test_a_trouble_of_our_own_is_a_zero(name: str, trouble: dict[str, Any]) -> None:
    assert value(samples(board()), name) == 1
    assert value(samples(board(**trouble)), name) == 0


def test_an_unknown_baseline_is_neither_sound_nor_unsound() -> None:
    found = samples(replace(board(), baseline=BaselineBoard(up=False, trouble="cannot connect")))
    assert value(found, "baseline_up") == 0
    assert names(found) & {"baseline_sound", "baseline_info", "baseline_drift_nats"} == set()


def test_a_baseline_that_was_never_met_is_neither_up_nor_down() -> None:
    assert "baseline_up" not in names(samples(replace(board(), baseline=BaselineBoard())))


def test_a_target_that_left_vanishes_with_its_counters() -> None:
    meters = Meters()
    for name in ("node-a", "node-b"):
        meters.expect(name, ["math"])
        meters.upstream_called("target", name, seconds=1.0, failure="timeout")
    assert names(samples(board(target_board(), target_board("node-b")), meters), target="node-b")
    meters.forget("node-b")
    found = samples(board(), meters)
    assert names(found, target="node-b") == set()
    assert value(found, "runs_total", target="node-a", task_set="math") == 0


def test_a_pool_and_a_task_set_that_left_vanish() -> None:
    meters = used_meters()
    meters.forget_pool("chat")
    meters.forget_set("math")
    counted = names(samples(replace(board(), pools=(), targets=()), meters), pool="chat")
    assert counted == set()
    left = samples(replace(board(), pools=(), targets=(), task_sets=()), meters)
    assert names(left, task_set="math") == set()
    assert "runs_total" in names(left, task_set="code")


def test_series_of_what_is_configured_start_at_zero() -> None:
    meters = Meters()
    meters.expect("node-a", ["math"])
    meters.expect_pool("chat")
    found = samples(board(), meters)
    at = {"target": "node-a", "task_set": "math"}
    for name in ("runs_total", "positions_compared_total", "prompts_drawn_total", "prompts_missing_total"):
        assert value(found, name, **at) == 0
    assert all(value(found, "threshold_breaches_total", level=level, **at) == 0 for level in LEVELS)
    assert value(found, "token_kl_divergence_nats_count", **at) == 0
    assert all(value(found, "runs_skipped_total", reason=reason, **at) == 0 for reason in SKIPS)
    assert all(value(found, "actions_suppressed_total", pool="chat", reason=brake) == 0 for brake in Brake)
    assert value(found, "state_transitions_total", target="node-a", axis="quality", to="corrupted") == 0
    for role, name in (("target", "node-a"), ("baseline", "baseline")):
        assert value(found, "probe_tokens_total", role=role, target=name) == 0
        assert value(found, "probe_restarts_total", role=role, target=name) == 0


def test_runs_are_counted_by_what_they_found() -> None:
    found = samples(board(), used_meters())
    at = {"target": "node-a", "task_set": "math"}
    assert value(found, "runs_total", **at) == len(Quality)
    assert value(found, "threshold_breaches_total", level="critical", **at) == 2
    assert value(found, "threshold_breaches_total", level="warn", **at) == 1
    assert value(found, "run_failures_total", reason="invalid", **at) == 1
    assert value(found, "run_failures_total", reason="degraded", **at) is None
    assert value(found, "run_duration_seconds_count", task_set="math") == len(Quality)


def test_what_fails_is_counted_beside_all() -> None:
    meters = Meters()
    meters.gateway_called("webhook", Action.ISOLATE, seconds=0.2)
    meters.gateway_called("webhook", Action.ISOLATE, seconds=0.2, failure="refused")
    found = samples(board(), meters)
    at = {"driver": "webhook", "action": "isolate"}
    assert value(found, "gateway_requests_total", **at) == 2
    assert value(found, "gateway_request_failures_total", reason="refused", **at) == 1


def test_what_probes_cost_and_end_is_counted_by_server() -> None:
    meters = Meters()
    for tokens in (200, 17):
        meters.probe_sent("target", "node-a", tokens)
    meters.probe_sent("baseline", "baseline", 5)
    meters.probe_restarted("target", "node-a")
    found = samples(board(), meters)
    assert value(found, "probe_tokens_total", role="target", target="node-a") == 217
    assert value(found, "probe_tokens_total", role="baseline", target="baseline") == 5
    assert value(found, "probe_restarts_total", role="target", target="node-a") == 1
    meters.forget("node-a")
    assert value(samples(board(), meters), "probe_tokens_total", role="target", target="node-a") is None


def test_orders_are_counted_by_how_they_ended() -> None:
    meters = Meters()
    meters.settled("webhook", Action.RELEASE, Result.CONTRADICTED)
    at = {"driver": "webhook", "action": "release"}
    assert value(samples(board(), meters), "orders_settled_total", result="contradicted", **at) == 1


def test_names_that_anybody_can_send_make_no_series() -> None:
    meters = Meters()
    empty = len(samples(board(), meters))
    for i in range(100):
        meters.verdict_asked(f"stranger-{i}", known=False)
    assert len(samples(board(), meters)) == empty


def test_an_error_text_is_no_reason() -> None:
    meters = Meters()
    meters.upstream_called("target", "node-a", seconds=1, failure="cannot connect: [Errno 111] to 10.0.0.7")
    meters.run_skipped("node-a", "math", "Because!")
    found = samples(board(), meters)
    assert value(found, "upstream_request_failures_total", role="target", target="node-a", reason="other") == 1
    assert value(found, "runs_skipped_total", target="node-a", task_set="math", reason="other") == 1


def fleet(targets: int, sets: int) -> tuple[Board, Meters]:
    meters = Meters()
    built = []
    for i in range(targets):
        names = [f"set-{j}" for j in range(sets)]
        meters.expect(f"node-{i}", names)
        built.append(target_board(f"node-{i}", *(measured(f"node-{i}", name) for name in names)))
    return board(*built), meters


def test_the_number_of_series_grows_with_targets_times_task_sets_only() -> None:
    small, wider, longer, both = (len(samples(*fleet(*size))) for size in [(1, 1), (2, 1), (1, 2), (10, 8)])
    a_target, a_set = wider - small, longer - small
    assert a_set < 90
    assert a_target - a_set < 60
    assert both < small + 80 * 90 + 10 * 60


HOSTILE = [
    'a"b',
    "a\nb",
    "a\\b",
    'x"} 1\nforged_total 99',
    "\x00\x1b[2J",
    "\ud800",
    "é灯",
    "x" * 10_000,
    "",
    " ",
    "{}",
    "\u2028",
]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_a_hostile_name_gives_a_valid_page(name: str, accept: str) -> None:
    meters = Meters()
    meters.expect(name, [name])
    meters.run_finished(run_record(name, name, id=name))
    meters.verdict_asked(name, known=True)
    who = Identity(name, "http://x", name, version=name)
    target = target_board(name, measured(name, name), identity=who, pool=name, scheme=name, gateway_name=name)
    page, _ = exposition(replace(board(target), baseline=BaselineBoard(who)), meters, accept=accept)
    parse = openmetrics_families if accept else text_string_to_metric_families
    shown = list(parse(page.decode("utf-8")))
    assert not [family.name for family in shown if not family.name.startswith(("quantwatch_", "process_", "python_"))]
    assert max(len(v) for family in shown for sample in family.samples for v in sample.labels.values()) <= 200
    meters.forget(name)
    page, _ = exposition(replace(board(), pauses=()), meters, accept=accept)
    assert "quantwatch_runs_total{target=" not in page.decode("utf-8")


def test_the_boards_of_these_tests_fill_every_field() -> None:
    assert {one.name for one in fields(Board)} == {
        *("own", "baseline", "targets", "pools", "pauses", "proposals", "task_sets")
    }


def test_a_reference_shows_its_state_its_age_and_what_its_self_check_found() -> None:
    page = samples(rich_board())
    states = {state: value(page, "reference_state", task_set="math", state=state.value) for state in ReferenceState}
    assert states == dict.fromkeys(ReferenceState, 0.0) | {ReferenceState.STORED: 1.0}
    assert value(page, "reference_made_timestamp_seconds", task_set="math") == AT.timestamp()
    assert value(page, "reference_checked_timestamp_seconds", task_set="math") == AT.timestamp()
    assert value(page, "reference_drift_nats", task_set="math") == 2e-6
    assert value(page, "baseline_reachable") == 1.0


def test_without_references_there_is_no_series_of_them() -> None:
    assert {name for name in names(samples(board())) if "reference" in name or "reachable" in name} == set()
