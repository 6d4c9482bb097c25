"""Numbers over time, thinned out in SQL, and runs as lines of a list."""

from datetime import timedelta
from pathlib import Path

import pytest

from quantwatch.flow.verdict import Quality
from quantwatch.record.archive import Archive
from quantwatch.record.series import LATENCY, MOST_POINTS, Stretch
from support.stored import START, add_many, after, at, moved, opened, run, set_report

EVERY = Stretch("int8-a", "math", START, at(10_000))
PEAK, PIT = 700, 300


def kl_of(number: int) -> float:
    """A gentle wave with one peak and one pit that are single runs."""
    return {PEAK: 5.0, PIT: 1e-7}.get(number, 0.004 + 0.001 * (number % 7))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A thousand runs of a pair, a few of another, and one that gave no numbers."""
    folder = tmp_path_factory.mktemp("series")
    reports = [set_report(kl_of(number), seconds_node=0.1 + number / 1000) for number in range(1000)]
    records = [run(number, kl_of(number), report=report) for number, report in enumerate(reports)]
    records += [run(number, 0.02, id=f"r-other-{number}", task_set="code") for number in range(3)]
    with opened(folder) as store:
        add_many(store.path, records)
        broken = run(5000, id="r-broken", quality=Quality.INVALID, report=None)
        store.add_run(broken, after(broken), [moved("in", "out", minutes=5000, decision=None)])
        store.add_run(run(6000, id="r-late"), after(run(6000, id="r-late")))
    return folder / "q.db"


def test_few_runs_come_whole_with_intervals_and_limits(path: Path) -> None:
    with Archive.open(path) as archive:
        points = archive.series(Stretch("int8-a", "math", at(10), at(13)), "kl_mean")
    assert [(one.at, one.value) for one in points] == [(at(number), kl_of(number)) for number in (10, 11, 12)]
    first = points[0]
    assert (first.low, first.high) == pytest.approx((first.value * 0.9, first.value * 1.1))
    assert (first.warn, first.critical, first.quality, first.run) == (0.01, 0.05, Quality.OK, run(10).id)


def test_many_runs_are_thinned_out_and_extremes_stay(path: Path) -> None:
    with Archive.open(path) as archive:
        points = archive.series(EVERY, "kl_mean")
        whole = archive.series(EVERY, "kl_mean", most=2000)
    assert len(whole) == 1001
    assert MOST_POINTS / 8 < len(points) <= MOST_POINTS
    assert max(one.value for one in points) == kl_of(PEAK)
    assert min(one.value for one in points) == kl_of(PIT)
    assert points == sorted(points, key=lambda one: one.at)
    assert points[-1].at == at(6000)
    assert {(one.at, one.value, one.low, one.run) for one in points} <= {
        (one.at, one.value, one.low, one.run) for one in whole
    }


@pytest.mark.parametrize("most", [4, 5, 20, 99, 1000])
def test_never_more_points_than_asked_for(most: int, path: Path) -> None:
    with Archive.open(path) as archive:
        assert 2 <= len(archive.series(EVERY, "kl_mean", most=most)) <= most


def test_detail_follows_what_there_is_and_not_how_long_the_range_is(path: Path) -> None:
    wide = Stretch("int8-a", "math", START - timedelta(days=3000), at(1000))
    with Archive.open(path) as archive:
        assert len(archive.series(wide, "kl_mean", most=100)) > 80


def test_the_time_of_a_probe_is_a_number_like_the_others(path: Path) -> None:
    with Archive.open(path) as archive:
        points = archive.series(Stretch("int8-a", "math", at(0), at(2)), LATENCY)
        assert [one.value for one in points] == pytest.approx([0.1, 0.101])
        assert points[0].warn is None
        thinned = archive.series(EVERY, LATENCY)
    assert len(thinned) <= MOST_POINTS
    assert max(one.value for one in thinned) == pytest.approx(1.099)


def test_nothing_is_a_series_too(path: Path) -> None:
    with Archive.open(path) as archive:
        assert archive.series(Stretch("nobody", "math", START, at(9)), "kl_mean") == []
        assert archive.series(Stretch("int8-a", "math", at(4999), at(5001)), "kl_mean") == []  # gave no numbers
        assert archive.series(EVERY, "no such number") == []


def test_runs_come_as_lines_page_by_page(path: Path) -> None:
    with Archive.open(path) as archive:
        first = archive.run_lines(target="int8-a", task_set="math", limit=3)
        second = archive.run_lines(target="int8-a", task_set="math", before=first[-1].id, limit=2)
        whole = archive.run_lines(target="int8-a", task_set="math", limit=10_000)
    assert [one.id for one in first] == ["r-late", "r-broken", run(999).id]
    assert [one.id for one in second] == [run(998).id, run(997).id]
    assert len(whole) == 1002
    assert (first[1].numbers, first[1].probe_seconds, first[1].quality) == ({}, None, Quality.INVALID)
    assert first[2].numbers["kl_mean"] == kl_of(999)
    assert first[2].probe_seconds == pytest.approx(1.099)


def test_pages_meet_where_runs_began_at_the_same_time(path: Path) -> None:
    """Three runs of another task set share their starts with others; none is lost and none comes twice."""
    with Archive.open(path) as archive:
        seen: list[str] = []
        before = None
        while lines := archive.run_lines(target="int8-a", before=before, limit=97):
            seen += [one.id for one in lines]
            before = lines[-1].id
        assert len(seen) == len(set(seen)) == archive.run_count("int8-a") == 1005
        assert archive.run_count("int8-a", "code") == 3
        newest = archive.run_lines(target="int8-a")
        assert len(newest) == 20
        assert archive.run_lines(target="int8-a", before="r-pruned") == newest


def test_what_changed_in_a_stretch_is_marked(path: Path) -> None:
    with Archive.open(path) as archive:
        (mark,) = archive.marks(EVERY)
        assert (mark.at, mark.old, mark.new) == (at(5000), "in", "out")
        assert archive.marks(Stretch("int8-a", "math", START, at(5000))) == []
