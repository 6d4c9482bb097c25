"""Notices for tests."""

from datetime import UTC, datetime, timedelta
from typing import Any

from quantwatch.flow.notice import Matter, Notice, Topic
from support.gateway import FINDING

BEGAN = datetime(2026, 1, 1, 3, 4, 5, tzinfo=UTC)


def matter(topic: Topic = Topic.QUALITY, **given: Any) -> Matter:
    """A confirmed breach, or another matter of the same target."""
    facts: dict[str, Any] = {
        "topic": topic,
        "subject": "int4-a/math",
        "state": "degraded",
        "reason": "breach 2 in a row: mean KL 0.21 is over 0.13",
        "done": "its isolation is under way, decision d-1",
        "target": "int4-a",
        "pool": "chat",
        "task_set": "math",
        "run": "r-1",
        "decision": "d-1",
        "evidence": (FINDING,),
    }
    return Matter(**(facts | given))


def notice(topic: Topic = Topic.QUALITY, *, minutes: float = 0.0, number: int = 1, **given: Any) -> Notice:
    """A notice of a matter that began at BEGAN, told so many minutes later."""
    at = BEGAN + timedelta(minutes=minutes)
    return Notice(f"n-20260101-030405-{number:08x}", at, BEGAN, matter(topic, **given))
