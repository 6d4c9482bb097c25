"""Rows of runs: what confirms a breach, what breaks a row, what proves nothing."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from quantwatch.flow.identity import Identity
from quantwatch.flow.run import RunRecord, Trigger
from quantwatch.flow.state import SetState
from quantwatch.flow.verdict import BREACHES, CANNOT_TELL, Quality
from quantwatch.judge.streak import advance, confirm_now

START = datetime(2026, 1, 1, tzinfo=UTC)
NEW = SetState("node", "chat")
CLEAR = [Quality.OK, Quality.WARN]
NO_EVIDENCE = [Quality.INVALID, Quality.UNKNOWN, Quality.SKIPPED]


def a_run(quality: Quality, *, basis: str = "a", number: int = 1, trigger: Trigger = Trigger.SCHEDULE) -> RunRecord:
    return RunRecord(
        id=f"r-{number}",
        target="node",
        task_set="chat",
        pool="blue",
        trigger=trigger,
        started=START + timedelta(minutes=number),
        seconds=30,
        quality=quality,
        reason=f"{quality} for a reason",
        basis=basis,
        limits=f"limits of {basis}",
        node=Identity("node", "http://node", "model", version="1", started=float(ord(basis))) if basis else None,
    )


def after(*qualities: Quality | tuple[Quality, str], state: SetState = NEW, confirm_cycles: int = 2) -> SetState:
    """The state after runs, each a quality on basis "a", or a quality and its basis.

    A breach where the confirming run is due is that run; all others come by schedule.
    """
    for number, told in enumerate(qualities, 1):
        quality, basis = (told, "a") if isinstance(told, Quality) else told
        due = quality is Quality.DEGRADED and state.breaches >= confirm_cycles - 1
        trigger = Trigger.CONFIRM if due else Trigger.SCHEDULE
        run = a_run(quality, basis=basis, number=number, trigger=trigger)
        state = advance(state, run, confirm_cycles=confirm_cycles)
    return state


def test_the_latest_run_is_remembered() -> None:
    state = after(Quality.OK, Quality.UNKNOWN)
    assert (state.last, state.run, state.at) == (Quality.UNKNOWN, "r-2", START + timedelta(minutes=2, seconds=30))


def test_clean_runs_count_up() -> None:
    state = after(Quality.OK, Quality.OK, Quality.OK)
    assert (state.quality, state.clean, state.breaches, state.undecided) == (Quality.OK, 3, 0, 0)
    assert state.reason == "ok for a reason"


def test_a_warning_is_no_breach_and_not_clean_either() -> None:
    state = after(Quality.OK, Quality.DEGRADED, Quality.WARN)
    assert (state.quality, state.clean, state.breaches, state.undecided) == (Quality.WARN, 0, 0, 0)


def test_a_first_breach_does_not_count_yet() -> None:
    state = after(Quality.OK, Quality.DEGRADED)
    assert (state.quality, state.last, state.breaches, state.clean) == (Quality.INCONCLUSIVE, Quality.DEGRADED, 1, 0)
    assert state.reason == "breach 1 of 2, not confirmed yet: degraded for a reason"


def test_the_second_breach_in_a_row_counts() -> None:
    state = after(Quality.DEGRADED, Quality.DEGRADED)
    assert (state.quality, state.breaches) == (Quality.DEGRADED, 2)
    assert state.reason == "breach 2 in a row: degraded for a reason"


def test_as_many_breaches_are_needed_as_the_configuration_says() -> None:
    assert after(*[Quality.DEGRADED] * 3, confirm_cycles=4).quality is Quality.INCONCLUSIVE
    assert after(*[Quality.DEGRADED] * 4, confirm_cycles=4).quality is Quality.DEGRADED


@pytest.mark.parametrize("between", [*CLEAR, Quality.INCONCLUSIVE])
def test_a_row_of_breaches_is_broken_by_a_run_that_did_not_prove_one(between: Quality) -> None:
    state = after(Quality.DEGRADED, between, Quality.DEGRADED)
    assert (state.quality, state.breaches) == (Quality.INCONCLUSIVE, 1)


@pytest.mark.parametrize("basis", ["a", ""])
@pytest.mark.parametrize("between", NO_EVIDENCE)
def test_a_run_without_evidence_neither_extends_nor_breaks_a_row_of_breaches(between: Quality, basis: str) -> None:
    waiting = after(Quality.DEGRADED, (between, basis))
    assert (waiting.quality, waiting.breaches, waiting.undecided, waiting.basis) == (between, 1, 1, "a")
    assert after(Quality.DEGRADED, (between, basis), Quality.DEGRADED).quality is Quality.DEGRADED


@pytest.mark.parametrize("between", NO_EVIDENCE)
def test_a_run_without_evidence_leaves_a_row_of_clean_runs(between: Quality) -> None:
    state = after(Quality.OK, Quality.OK, between)
    assert (state.clean, state.undecided, state.last) == (2, 1, between)
    assert state.quality is (Quality.OK if between is Quality.SKIPPED else between)
    assert after(Quality.OK, Quality.OK, between, Quality.OK).clean == 3


@pytest.mark.parametrize("good", CLEAR)
def test_a_busy_node_stays_as_good_as_it_was_for_two_skipped_runs(good: Quality) -> None:
    assert after(good, Quality.SKIPPED, Quality.SKIPPED).quality is good
    assert after(good, Quality.SKIPPED, Quality.SKIPPED).reason == f"{good} for a reason"
    assert after(good, Quality.SKIPPED, Quality.SKIPPED, Quality.SKIPPED).quality is Quality.SKIPPED
    assert after(good, Quality.UNKNOWN, Quality.SKIPPED).quality is Quality.SKIPPED


def test_a_breach_that_is_not_confirmed_is_not_good_because_the_node_is_busy() -> None:
    assert after(Quality.DEGRADED, Quality.SKIPPED).quality is Quality.SKIPPED


def test_another_process_begins_a_new_row_although_all_else_is_equal() -> None:
    first = after(Quality.DEGRADED)
    other = replace(a_run(Quality.DEGRADED, number=2), node=Identity("node", "http://node", "m", started=9.0))
    state = advance(first, other, confirm_cycles=2)
    assert (state.breaches, state.quality, state.process) == (1, Quality.INCONCLUSIVE, "9.00 None")


def test_a_process_that_is_not_told_in_one_run_breaks_no_row() -> None:
    confirming = a_run(Quality.DEGRADED, number=2, trigger=Trigger.CONFIRM)
    silent = replace(confirming, node=Identity("node", "http://node", "model", version="1"))
    state = advance(after(Quality.DEGRADED), silent, confirm_cycles=2)
    assert (state.breaches, state.quality, state.process) == (2, Quality.DEGRADED, "97.00 1")


def test_a_process_that_is_told_later_is_learned_without_a_new_row() -> None:
    silent = replace(a_run(Quality.DEGRADED), node=Identity("node", "http://node", "model", version="1"))
    confirming = a_run(Quality.DEGRADED, number=2, trigger=Trigger.CONFIRM)
    state = advance(advance(NEW, silent, confirm_cycles=2), confirming, confirm_cycles=2)
    assert (state.breaches, state.process) == (2, "97.00 1")


def test_an_inconclusive_run_breaks_a_row_of_clean_runs() -> None:
    assert after(Quality.OK, Quality.OK, Quality.INCONCLUSIVE).clean == 0


@pytest.mark.parametrize("quality", sorted(set(Quality) - CANNOT_TELL))
def test_a_run_that_can_tell_ends_a_row_of_undecided_ones(quality: Quality) -> None:
    assert after(Quality.UNKNOWN, Quality.SKIPPED, Quality.INVALID).undecided == 3
    assert after(Quality.UNKNOWN, Quality.SKIPPED, Quality.INVALID, quality).undecided == 0


@pytest.mark.parametrize("basis", ["a", ""])
@pytest.mark.parametrize("confirmed", [[Quality.CORRUPTED], [Quality.DEGRADED] * 2])
@pytest.mark.parametrize("quality", sorted(CANNOT_TELL))
def test_a_confirmed_breach_outlives_runs_that_cannot_tell(
    quality: Quality, confirmed: list[Quality], basis: str
) -> None:
    before = after(*confirmed)
    state = after((quality, basis), state=before)
    assert (state.quality, state.reason, state.basis) == (before.quality, before.reason, "a")
    assert (state.last, state.undecided) == (quality, 1)


@pytest.mark.parametrize("confirmed", [[Quality.CORRUPTED], [Quality.DEGRADED] * 2])
@pytest.mark.parametrize("quality", sorted(CANNOT_TELL))
def test_a_confirmed_breach_is_not_carried_over_to_another_process(quality: Quality, confirmed: list[Quality]) -> None:
    state = after(*confirmed, (quality, "b"))
    assert (state.quality, state.breaches, state.basis) == (quality, 0, "b")


def test_an_undecided_run_takes_the_proof_from_a_row_but_not_from_the_verdict() -> None:
    state = after(Quality.DEGRADED, Quality.DEGRADED, Quality.INCONCLUSIVE, Quality.DEGRADED)
    assert (state.quality, state.breaches) == (Quality.DEGRADED, 1)
    assert state.reason == "degraded before, and now breach 1 of 2: degraded for a reason"


@pytest.mark.parametrize("confirm_cycles", [2, 5])
def test_corruption_counts_at_once(confirm_cycles: int) -> None:
    state = after(Quality.OK, Quality.CORRUPTED, confirm_cycles=confirm_cycles)
    assert (state.quality, state.breaches, state.clean) == (Quality.CORRUPTED, confirm_cycles, 0)
    assert state.reason == "corrupted for a reason"


def test_corruption_counts_on_in_a_longer_row() -> None:
    assert after(*[Quality.DEGRADED] * 3, Quality.CORRUPTED).breaches == 4


def test_corruption_does_not_make_one_degraded_run_a_confirmed_row() -> None:
    once = after(Quality.CORRUPTED, Quality.DEGRADED)
    assert (once.quality, once.breaches) == (Quality.CORRUPTED, 1)
    assert once.reason == "corrupted before, and now breach 1 of 2: degraded for a reason"
    assert after(Quality.CORRUPTED, Quality.DEGRADED, Quality.DEGRADED).quality is Quality.DEGRADED


def test_breaches_of_two_processes_are_not_counted_together() -> None:
    state = after(Quality.DEGRADED, (Quality.DEGRADED, "b"))
    assert (state.quality, state.breaches, state.basis) == (Quality.INCONCLUSIVE, 1, "b")


def test_clean_runs_of_two_processes_are_not_counted_together() -> None:
    assert after(Quality.OK, Quality.OK, (Quality.OK, "b")).clean == 1


@pytest.mark.parametrize("quality", NO_EVIDENCE)
def test_another_process_starts_every_row_over_even_when_it_could_not_be_measured(quality: Quality) -> None:
    assert after(Quality.DEGRADED, (quality, "b")).breaches == 0
    assert after(Quality.OK, (quality, "b")).clean == 0
    assert after((quality, "a"), (quality, "b")).undecided == 2


def test_numbers_of_unknown_basis_are_counted_with_no_others() -> None:
    state = after((Quality.DEGRADED, ""), (Quality.DEGRADED, ""), Quality.DEGRADED, (Quality.DEGRADED, ""))
    assert (state.quality, state.breaches) == (Quality.INCONCLUSIVE, 1)
    assert after((Quality.OK, ""), (Quality.OK, "")).clean == 1


def test_a_first_breach_is_worth_a_confirming_run() -> None:
    assert confirm_now(after(Quality.OK, Quality.DEGRADED), confirm_cycles=2)
    assert confirm_now(after(Quality.DEGRADED, (Quality.DEGRADED, "b")), confirm_cycles=2)


@pytest.mark.parametrize(
    "qualities",
    [
        [],
        [Quality.OK],
        [Quality.DEGRADED, Quality.DEGRADED],
        [Quality.DEGRADED, Quality.SKIPPED],
        [Quality.CORRUPTED],
        [Quality.CORRUPTED, Quality.DEGRADED],
        [Quality.INCONCLUSIVE],
    ],
)
def test_nothing_else_is_worth_a_confirming_run(qualities: list[Quality]) -> None:
    assert not confirm_now(after(*qualities), confirm_cycles=2)


def test_of_a_longer_row_only_the_last_breach_is_asked_for_at_once() -> None:
    assert not confirm_now(after(Quality.DEGRADED, confirm_cycles=3), confirm_cycles=3)
    assert confirm_now(after(Quality.DEGRADED, Quality.DEGRADED, confirm_cycles=3), confirm_cycles=3)


def by_schedule(state: SetState, *qualities: Quality, confirm_cycles: int = 2) -> SetState:
    for number, quality in enumerate(qualities, 10):
        state = advance(state, a_run(quality, number=number), confirm_cycles=confirm_cycles)
    return state


def test_no_number_of_scheduled_breaches_takes_the_place_of_the_confirming_run() -> None:
    state = by_schedule(NEW, *[Quality.DEGRADED] * 5)
    assert (state.quality, state.breaches, state.proof) == (Quality.INCONCLUSIVE, 1, None)
    assert confirm_now(state, confirm_cycles=2)


def test_a_confirmed_row_goes_on_by_schedule() -> None:
    state = by_schedule(after(Quality.DEGRADED, Quality.DEGRADED), Quality.DEGRADED, Quality.DEGRADED)
    assert (state.quality, state.breaches, state.proof) == (Quality.DEGRADED, 4, "r-11")
    assert not confirm_now(state, confirm_cycles=2)


@pytest.mark.parametrize("quality", CLEAR)
def test_a_confirming_run_that_shows_no_breach_leaves_a_doubt_and_no_clean_bill(quality: Quality) -> None:
    confirming = a_run(quality, number=2, trigger=Trigger.CONFIRM)
    state = advance(after(Quality.OK, Quality.DEGRADED), confirming, confirm_cycles=2)
    assert (state.quality, state.breaches, state.clean) == (Quality.INCONCLUSIVE, 0, 0)
    assert state.reason == f"breached, and the confirming run does not show it: {quality} for a reason"


def test_a_confirming_run_after_anything_but_a_breach_is_a_run_like_others() -> None:
    """It is made too when the baseline seemed to have moved."""
    confirming = a_run(Quality.OK, number=2, trigger=Trigger.CONFIRM)
    assert advance(after(Quality.INVALID), confirming, confirm_cycles=2).clean == 1


def test_a_confirmed_breach_outlives_a_confirming_run_that_does_not_show_it() -> None:
    before = after(Quality.DEGRADED, Quality.DEGRADED)
    state = advance(before, a_run(Quality.OK, number=3, trigger=Trigger.CONFIRM), confirm_cycles=2)
    assert (state.quality, state.breaches, state.clean, state.reason) == (Quality.DEGRADED, 0, 0, before.reason)


def test_where_one_breach_counts_nothing_is_left_to_confirm() -> None:
    assert not confirm_now(replace(NEW, last=Quality.DEGRADED, breaches=1), confirm_cycles=1)
    assert after(Quality.DEGRADED, confirm_cycles=1).quality in BREACHES


@pytest.mark.parametrize(
    ("qualities", "proof"),
    [
        ([], None),
        ([Quality.OK], None),
        ([Quality.DEGRADED], None),
        ([Quality.CORRUPTED], "r-1"),
        ([Quality.OK, Quality.DEGRADED, Quality.DEGRADED], "r-3"),
        ([Quality.DEGRADED, Quality.DEGRADED, Quality.DEGRADED], "r-3"),
        ([Quality.DEGRADED, Quality.CORRUPTED], "r-2"),
        ([Quality.CORRUPTED, Quality.CORRUPTED], "r-2"),
    ],
)
def test_the_run_that_proved_a_breach_is_kept_with_it(qualities: list[Quality], proof: str | None) -> None:
    assert after(*qualities).proof == proof


@pytest.mark.parametrize("confirmed", [[Quality.CORRUPTED] * 2, [Quality.DEGRADED] * 2])
@pytest.mark.parametrize("quality", sorted(CANNOT_TELL))
def test_runs_that_cannot_tell_take_the_place_of_no_proof(quality: Quality, confirmed: list[Quality]) -> None:
    state = after(*confirmed, quality, (quality, ""))
    assert (state.proof, state.run) == ("r-2", "r-4")


@pytest.mark.parametrize(
    "ending", [*CLEAR, *((quality, "b") for quality in Quality if quality is not Quality.CORRUPTED)]
)
@pytest.mark.parametrize("confirmed", [[Quality.CORRUPTED], [Quality.DEGRADED] * 2])
def test_where_no_breach_stands_nothing_proves_one(
    ending: Quality | tuple[Quality, str], confirmed: list[Quality]
) -> None:
    assert after(*confirmed).proof is not None
    assert after(*confirmed, ending).proof is None


def test_a_new_row_names_the_process_and_the_limits_it_is_about() -> None:
    first, second = after(Quality.OK), after(Quality.OK, (Quality.DEGRADED, "b"))
    assert (first.process, first.limits) == ("97.00 1", "limits of a")
    assert (second.process, second.limits) == ("98.00 1", "limits of b")


@pytest.mark.parametrize("quality", sorted(CANNOT_TELL))
def test_a_run_that_learned_nothing_leaves_the_row_with_its_process_and_limits(quality: Quality) -> None:
    state = after(Quality.DEGRADED, (quality, ""))
    assert (state.process, state.limits) == ("97.00 1", "limits of a")


@pytest.mark.parametrize("quality", sorted(Quality))
def test_a_row_goes_on_under_the_process_and_limits_it_began_with(quality: Quality) -> None:
    other = replace(a_run(quality, number=2), node=None, limits="limits of a later file")
    state = advance(after(Quality.DEGRADED), other, confirm_cycles=2)
    assert (state.process, state.limits) == ("97.00 1", "limits of a")


@pytest.mark.parametrize("quality", sorted(set(Quality) - CANNOT_TELL))
def test_numbers_of_unknown_basis_are_about_no_known_process(quality: Quality) -> None:
    state = after(Quality.OK, (quality, ""))
    assert (state.process, state.limits) == (None, "limits of ")
