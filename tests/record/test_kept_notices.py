"""Notices in the store: whole, once, through a restart, and in a file that an older version began."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from quantwatch.flow.notice import Notice, Topic
from quantwatch.flow.verdict import Quality
from quantwatch.record.documents import findings_of
from quantwatch.record.notices import Change, Delivery, notice_json, notice_of
from quantwatch.record.steps import STEPS, people_are_told, version_of
from support.notices import BEGAN, notice
from support.stored import after, opened, run

OF_NOTICES = ("notices", "deliveries", "deliveries_by_notice")


def columns(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """What SQLite says of the tables and of the index."""
    with closing(sqlite3.connect(path)) as other:
        tables = {name: other.execute(f"PRAGMA table_info({name})").fetchall() for name in OF_NOTICES[:2]}
        index = other.execute("PRAGMA index_info(deliveries_by_notice)").fetchall()
        unique = other.execute("SELECT \"unique\" FROM pragma_index_list('deliveries') WHERE origin = 'c'").fetchall()
        return {**tables, "index": index, "unique": unique}


def as_version_2(path: Path) -> None:
    """Take a file back to what the version before left."""
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("DROP TABLE notices")
        other.execute("DROP TABLE deliveries")
        other.execute("DROP TABLE token_evidence")
        other.execute("DROP TABLE token_texts")
        other.execute("ALTER TABLE target_states DROP COLUMN well_since")
        other.execute("UPDATE meta SET value = '2' WHERE key = 'schema'")


def test_an_older_store_gets_the_same_tables_as_a_new_one_and_keeps_its_runs(tmp_path: Path) -> None:
    opened(tmp_path, name="new.db").close()
    with opened(tmp_path) as store:
        store.add_run(run(1), after(run(1)))
    as_version_2(tmp_path / "q.db")
    with opened(tmp_path) as store:
        assert store.notices().told == {}
        assert len(store.set_states()) == 1
        store.tell(Change([notice()], [Delivery("ops", notice())]))
    assert columns(tmp_path / "q.db") == columns(tmp_path / "new.db")


def test_the_step_to_version_3_is_the_second() -> None:
    assert STEPS[1] is people_are_told
    assert version_of() == 1 + len(STEPS)


def test_notices_come_back_as_they_were_and_in_their_order(tmp_path: Path) -> None:
    odd = notice(Topic.PAUSED, number=2, subject="p-1 all", reason="短 \ud800", evidence=(), target=None)
    with opened(tmp_path) as store:
        store.tell(Change([notice(), odd], [Delivery("b", odd), Delivery("a", notice()), Delivery("b", notice())]))
    with opened(tmp_path) as store:
        kept = store.notices()
        assert kept.told == {notice().matter.key: notice(), odd.matter.key: odd}
        assert [(one.channel, one.notice) for one in kept.waiting] == [("b", odd), ("a", notice()), ("b", notice())]


def test_the_latest_word_on_a_matter_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    over = notice(number=2, standing=False)
    with opened(tmp_path) as store:
        store.tell(Change([notice()]))
        store.tell(Change([over]))
        assert store.notices().told == {over.matter.key: over}


def test_what_is_over_for_long_is_pruned_and_what_stands_is_not(tmp_path: Path) -> None:
    over = notice(number=2, subject="int4-b/math", standing=False)
    with opened(tmp_path) as store:
        store.tell(Change([notice(), over]))
        later = BEGAN + timedelta(days=1)
        assert store.prune(runs_before=later, decisions_before=later) == 1
        assert list(store.notices().told.values()) == [notice()]


@pytest.mark.parametrize("document", [None, 7, {}, {"matter": 1}, {"matter": {"topic": "nonsense"}}])
def test_a_document_that_holds_no_notice_is_none(document: object) -> None:
    assert notice_of(document) is None


def test_a_notice_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.tell(Change([notice()], [Delivery("ops", notice())]))
        with closing(sqlite3.connect(store.path)) as other, other:
            other.execute("UPDATE notices SET document = '{}'")
            other.execute("UPDATE deliveries SET document = '[]'")
        kept = store.notices()
        assert (kept.told, kept.waiting) == ({}, [])


def test_a_notice_survives_its_document() -> None:
    same: Notice | None = notice_of(notice_json(notice()))
    assert same == notice()


def test_the_findings_of_a_report_have_their_intervals() -> None:
    document = {
        "kl_interval": [0.1, 0.2],
        "interval_level": 0.99,
        "findings": [
            {
                "metric": "kl_mean",
                "part": part,
                "value": 0.15,
                "warn": 0.01,
                "critical": 0.05,
                "verdict": "degraded",
                "reason": "bad",
            }
            for part in (None, "depth late")
        ],
    }
    whole, part = findings_of(document)
    assert whole.interval is not None
    assert (whole.interval.low, whole.interval.high, whole.interval.level) == (0.1, 0.2, 0.99)
    assert (part.interval, part.part, part.quality) == (None, "depth late", Quality.DEGRADED)
    assert findings_of({}) == ()
