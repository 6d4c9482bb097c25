"""The generic channel: JSON, schema 1, signed by Standard Webhooks as calls to a gateway are."""

import json
from collections.abc import Sequence
from typing import Any

from quantwatch.act.channel import Line, Reply
from quantwatch.act.notice_text import message
from quantwatch.act.payload import evidence_json
from quantwatch.act.webhook import signed, signer
from quantwatch.flow.notice import Notice


class Hook:
    """One receiver, a call a notice; webhook-id is the notice's id on every try, so that a repeat can be dropped.

    name: of the channel, for messages. Raises InputError for a signing secret that cannot be used.
    """

    kind = "webhook"
    repeats = False

    def __init__(
        self, line: Line, *, name: str, signing_secret: str | None = None, runbook_url: str | None = None
    ) -> None:
        key = f"signing_secret of notifications {name}"
        self._line = line
        self._signer = None if signing_secret is None else signer(signing_secret, whose=key)
        self._runbook_url = runbook_url

    async def send(self, notices: Sequence[Notice]) -> Reply:
        """Post the notices one after another, up to the first that fails. Never raises."""
        reply = Reply(ok=True, said="nothing to tell")
        for one in notices:
            body = json.dumps(notice_json(one, runbook_url=self._runbook_url), separators=(",", ":")).encode("ascii")
            reply = await self._line.post(body, signed(one.id, body, self._signer, now=self._line.clock.now()))
            if not reply.ok:
                break
        return reply


def notice_json(notice: Notice, *, runbook_url: str | None = None) -> dict[str, Any]:
    """A notice as programs read it. Numbers that do not exist are null, never NaN."""
    matter, said = notice.matter, message(notice, runbook_url=runbook_url)
    return {
        "schema": 1,
        "id": notice.id,
        "topic": matter.topic.value,
        "subject": matter.subject,
        "state": matter.state,
        "standing": matter.standing,
        "severity": matter.severity.value,
        "at": notice.at.isoformat(timespec="milliseconds"),
        "since": notice.since.isoformat(timespec="milliseconds"),
        "title": said.title,
        "reason": matter.reason,
        "done": matter.done,
        "target": matter.target,
        "pool": matter.pool,
        "task_set": matter.task_set,
        "run_id": matter.run,
        "decision_id": matter.decision,
        "evidence": [evidence_json(one) for one in matter.evidence],
        "runbook": said.runbook,
    }
