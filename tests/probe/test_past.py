"""A restart is a younger process never seen before; everything else is several servers behind one URL."""

import pytest

from quantwatch.flow.identity import Identity, moment
from quantwatch.probe.past import MOST_STARTS, Past

ONE = Identity("a", "http://a", "m", root="r", version="1", started=100.0)


def met(*starts: float | None) -> list[float | None]:
    past = Past()
    return [past.meet(start) for start in starts]


def test_the_same_process_is_no_news() -> None:
    assert met(100.0, 100.0, 100.005) == [None, None, None]


def test_a_restart_is_no_obstacle() -> None:
    assert met(100.0, 250.0, 250.0, 300.0) == [None, None, None, None]


def test_processes_that_take_turns_are_found_at_every_change() -> None:
    assert met(100.0, 250.0, 100.0, 250.0, 100.0) == [None, None, 250.0, 100.0, 250.0]


def test_an_older_process_is_another_server_even_when_it_is_new_to_us() -> None:
    assert met(250.0, 100.0) == [None, 250.0]


def test_a_process_that_does_not_tell_its_start_is_passed_over() -> None:
    assert met(100.0, None, 100.0) == [None, None, None]


def test_the_memory_does_not_grow() -> None:
    past = Past()
    for start in range(1000):
        past.meet(float(start))

    assert len(past.starts) == MOST_STARTS


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (Identity("b", "http://b", "m", root="r", version="1", started=100.005), True),
        (Identity("b", "http://b", "m", root="r", version="1", started=100.1), False),
        (Identity("b", "http://b", "m", root="x", version="1", started=100.0), False),
        (Identity("b", "http://b", "m", root="r", version="1"), None),
    ],
)
def test_processes_are_told_apart_by_start_model_and_version(other: Identity, *, same: bool | None) -> None:
    assert ONE.same_process(other) is same


def test_two_processes_of_one_hundredth_of_a_second_are_told_apart_by_their_counters() -> None:
    first, second = (
        Identity("a", "http://a", "m", root="r", version="1", started=100.0, born=born) for born in (101.123456, 101.5)
    )

    assert first.same_process(second) is False
    assert first.same_process(first) is True


@pytest.mark.parametrize(
    ("started", "said"),
    [(1_700_000_000.25, "2023-11-14 22:13:20.25 UTC"), (1e300, "1e+300"), (-5.0, "-5"), (float("nan"), "nan")],
)
def test_a_start_is_said_as_a_time_where_it_is_one(started: float, said: str) -> None:
    assert moment(started) == said
