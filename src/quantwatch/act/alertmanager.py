"""Prometheus' Alertmanager: every matter is an alert with labels that stay the same from its beginning to its end.

An alert carries its own end in the future and is sent again before that, so the Alertmanager's resolve_timeout has no
say, and what nobody repeats any more, since quantwatch is gone, ends by itself.
"""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from quantwatch.act.channel import Line, Reply
from quantwatch.act.notice_text import message
from quantwatch.flow.notice import Notice

PATH = "/api/v2/alerts"

REPEAT_SECONDS = 60.0
"""Time between two repetitions of what stands."""

STANDS = timedelta(seconds=5 * REPEAT_SECONDS)
"""How long an alert stands without being repeated; the Alertmanager's own default."""


class Alertmanager:
    """One Alertmanager; of a cluster each one is a channel of its own."""

    kind = "alertmanager"
    repeats = True

    def __init__(self, line: Line, *, runbook_url: str | None = None) -> None:
        self._line = line
        self._runbook_url = runbook_url

    async def send(self, notices: Sequence[Notice]) -> Reply:
        """Post the notices as alerts. Never raises."""
        now = self._line.clock.now()
        body = [alert(one, now=now, runbook_url=self._runbook_url) for one in notices]
        sent = json.dumps(body, separators=(",", ":")).encode("ascii")
        return await self._line.post(sent, {"Content-Type": "application/json"})


def alert(notice: Notice, *, now: datetime, runbook_url: str | None = None) -> dict[str, Any]:
    """A notice as the API takes it. The labels leave the state out: another one is the same alert with other words."""
    matter, said = notice.matter, message(notice, runbook_url=runbook_url)
    name = "".join(part.capitalize() for part in matter.topic.split("_"))
    labels = {
        "alertname": f"Quantwatch{name}",
        "severity": matter.severity.value,
        "target": matter.target,
        "pool": matter.pool,
        "task_set": matter.task_set,
        "subject": None if matter.target or matter.pool or matter.task_set else matter.subject,
    }
    annotations = {
        "summary": said.title,
        "description": "\n".join(f"{name}: {text}" for name, text in said.facts),
        "state": matter.state,
        "runbook_url" if runbook_url is not None else "runbook": said.runbook,
    }
    # An alert without a duration is refused, so one that ended as it began ends a moment later.
    ends = now + STANDS if matter.standing else max(notice.at, notice.since + timedelta(seconds=1))
    return {
        "labels": {key: value for key, value in labels.items() if value},
        "annotations": annotations,
        "startsAt": notice.since.isoformat(),
        "endsAt": ends.isoformat(),
    }
