"""The histogram of the KL of single positions: it grows over runs, names them, can be left out, and never breaks."""

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from quantwatch.expose.exposition import OPENMETRICS, exposition
from quantwatch.expose.meters import Meters
from quantwatch.flow.divergence import KL_BOUNDS, Spread
from quantwatch.flow.run import RunRecord
from support.boards import AT, board, run_record
from support.stored import divergence, set_report

NAME = "quantwatch_token_kl_divergence_nats"
EMPTY = (0,) * (len(KL_BOUNDS) + 1)


def spread(total: float = 0.4, **cells: tuple[int, float]) -> Spread:
    """A spread with these cells: `at_5=(12, 3e-4)` are 12 positions in cell 5, the largest of 3e-4."""
    counts, largest = list(EMPTY), [math.nan] * len(EMPTY)
    for name, (count, most) in cells.items():
        place = int(name.removeprefix("at_"))
        counts[place], largest[place] = count, most
    return Spread(tuple(counts), tuple(largest), total)


def measured(found: Spread | None, **given: str) -> RunRecord:
    """A run with these positions."""
    return run_record(**given, report=replace(set_report(), divergence=replace(divergence(), spread=found)))


def shown(meters: Meters) -> list[Sample]:
    """Its samples, from the page with exemplars."""
    page, _ = exposition(board(), meters, accept=OPENMETRICS)
    families = {family.name: family for family in read_openmetrics(page.decode())}  # type: ignore[no-untyped-call]
    return list(families[NAME].samples) if NAME in families else []


def value(meters: Meters, suffix: str, **labels: str) -> float | None:
    found = [one.value for one in shown(meters) if one.name == NAME + suffix and labels.items() <= one.labels.items()]
    return found[0] if found else None


def test_positions_are_added_over_runs() -> None:
    meters = Meters()
    meters.run_finished(measured(spread(0.4, at_0=(10, 1e-6), at_5=(2, 4e-4))))
    meters.run_finished(measured(spread(30.1, at_5=(3, 5e-4), at_19=(1, 30.0))))

    at = {"target": "node-a", "task_set": "math"}
    assert value(meters, "_count", **at) == 16
    assert value(meters, "_sum", **at) == pytest.approx(30.5)
    assert value(meters, "_bucket", le="1e-05", **at) == 10
    assert value(meters, "_bucket", le="0.0005", **at) == 15
    assert value(meters, "_bucket", le="10.0", **at) == 15
    assert value(meters, "_bucket", le="+Inf", **at) == 16


def test_each_cell_names_the_latest_run_in_it_and_the_largest_of_its_positions() -> None:
    meters = Meters()
    meters.run_finished(measured(spread(at_0=(10, 1e-6), at_5=(2, 4e-4)), id="r-1"))
    meters.run_finished(measured(spread(at_5=(3, 5e-4), at_19=(1, 30.0)), id="r-2"))

    found = {one.labels["le"]: one.exemplar for one in shown(meters) if one.exemplar is not None}
    told = {bound: (one.labels["run_id"], one.value) for bound, one in found.items()}
    assert told == {"1e-05": ("r-1", 1e-6), "0.0005": ("r-2", 5e-4), "+Inf": ("r-2", 30.0)}
    assert [float(one.timestamp) for one in found.values() if one.timestamp] == [AT.timestamp() + 3.0] * 3


def test_an_exemplar_keeps_within_what_openmetrics_allows() -> None:
    meters = Meters()
    meters.run_finished(measured(spread(at_5=(1, 4e-4)), id='r"\n' + "x" * 500))
    (found,) = (one.exemplar for one in shown(meters) if one.exemplar is not None)
    assert found.labels["run_id"] == "r__" + "x" * 97


def test_the_text_format_has_the_same_buckets() -> None:
    meters = Meters()
    meters.run_finished(measured(spread(at_5=(2, 4e-4))))
    page, _ = exposition(board(), meters)
    families = {one.name: one for one in text_string_to_metric_families(page.decode())}
    assert [one.labels["le"] for one in families[NAME].samples if one.name.endswith("_bucket")][-1] == "+Inf"
    assert len(families[NAME].samples) == len(EMPTY) + 2


def test_it_can_be_left_out_and_goes_on_counting_meanwhile() -> None:
    meters = Meters()
    meters.expect("node-a", ["math"])
    assert value(meters, "_count", target="node-a", task_set="math") == 0
    meters.token_kl.shown = False
    meters.run_finished(measured(spread(at_5=(2, 4e-4))))
    assert shown(meters) == []
    meters.token_kl.shown = True
    assert value(meters, "_count", target="node-a", task_set="math") == 2


def test_what_leaves_takes_its_series_with_it() -> None:
    meters = Meters()
    meters.expect("node-a", ["math", "code"])
    meters.expect("node-b", ["math"])
    meters.forget("node-b")
    meters.forget_set("code")
    meters.forget_pool("math")  # a pool of the same name is another thing
    assert {tuple(one.labels[name] for name in ("target", "task_set")) for one in shown(meters)} == {("node-a", "math")}


@pytest.mark.parametrize("total", [math.inf, -math.inf, math.nan])
def test_a_sum_that_is_not_finite_spoils_nothing(total: float) -> None:
    meters = Meters()
    meters.run_finished(measured(spread(0.4, at_5=(2, 4e-4))))
    meters.run_finished(measured(spread(total, at_5=(2, 4e-4))))
    assert value(meters, "_count") == 2
    assert value(meters, "_sum") == pytest.approx(0.4)


def test_a_sum_under_zero_by_rounding_is_none() -> None:
    meters = Meters()
    meters.run_finished(measured(spread(-1e-12, at_0=(2, -1e-13))))
    assert value(meters, "_sum") == 0.0


@pytest.mark.parametrize("record", [run_record(), measured(None)])
def test_a_run_without_positions_adds_none(record: RunRecord) -> None:
    meters = Meters()
    meters.expect("node-a", ["math"])
    meters.run_finished(record)
    assert value(meters, "_count") == 0


def test_what_was_drawn_compared_and_missing_is_counted_without_it_as_well() -> None:
    meters = Meters()
    meters.token_kl.shown = False
    meters.run_finished(measured(spread()))
    meters.run_finished(run_record(report=set_report()))
    page, _ = exposition(board(), meters)
    lines = dict(line.rsplit(" ", 1) for line in page.decode().splitlines() if line.startswith("quantwatch_p"))
    at = '{target="node-a",task_set="math"}'
    assert float(lines[f"quantwatch_positions_compared_total{at}"]) == 2 * 2304
    assert float(lines[f"quantwatch_prompts_drawn_total{at}"]) == 48
    assert float(lines[f"quantwatch_prompts_missing_total{at}"]) == 2


def test_a_scrape_in_its_thread_bears_what_comes_meanwhile() -> None:
    """A page is made beside the loop that counts; targets come and go while it is."""
    meters, stop = Meters(), threading.Event()

    def come_and_go() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            meters.token_kl.expect(f"node-{number}", "math")
            meters.token_kl.forget("target", f"node-{number - 50}")

    with ThreadPoolExecutor() as pool:
        busy = pool.submit(come_and_go)
        try:
            pages = [sum(len(family.samples) for family in meters.token_kl.collect()) for _ in range(300)]
        finally:
            stop.set()
        busy.result()
    assert max(pages) > 0
    assert all(samples % (len(EMPTY) + 2) == 0 for samples in pages)
