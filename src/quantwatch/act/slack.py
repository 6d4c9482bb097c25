"""Slack's incoming webhooks, and everything that takes the same JSON: Mattermost, Rocket.Chat, Discord's /slack."""

import json
from collections.abc import Sequence
from typing import Any

from quantwatch.act.channel import Line, Reply
from quantwatch.act.notice_text import Message, message
from quantwatch.flow.notice import Notice

LONGEST_BLOCK = 2900
"""Characters of one block after escaping; Slack takes 3000."""

MOST_BLOCKS = 48
"""Slack takes 50."""


class Slack:
    """One incoming webhook: a message each."""

    kind = "slack"
    repeats = False

    def __init__(self, line: Line, *, runbook_url: str | None = None) -> None:
        self._line = line
        self._runbook_url = runbook_url

    async def send(self, notices: Sequence[Notice]) -> Reply:
        """Post the notices as one message. Never raises."""
        body = slack_json([message(one, runbook_url=self._runbook_url) for one in notices])
        sent = json.dumps(body, separators=(",", ":")).encode("ascii")
        return await self._line.post(sent, {"Content-Type": "application/json"})


def slack_json(messages: Sequence[Message]) -> dict[str, Any]:
    """Messages as `text`, which phones and old clients show, and as blocks."""
    blocks = [_section(text) for one in messages for text in _paragraphs(one)]
    title = escaped("; ".join(one.title for one in messages))
    return {"text": title, "blocks": blocks[:MOST_BLOCKS]}


def escaped(text: str) -> str:
    """Text that can neither mention anybody nor make a link, cut to what a block takes."""
    while True:
        safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        if len(safe) <= LONGEST_BLOCK:
            return safe
        text = text[: len(text) - max(1, (len(safe) - LONGEST_BLOCK) // 5) - 3] + "..."


def _paragraphs(one: Message) -> list[str]:
    link = escaped(one.runbook)
    shown = f"<{link}|Runbook>" if one.runbook.startswith(("http://", "https://")) else f"Runbook: {link}"
    facts = [f"*{name}:* {escaped(text)}" for name, text in one.facts]
    return [f"*{escaped(one.title)}*", *facts, shown]


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}
