"""Notices in the store: each matter as it was last told, and for each channel what it has yet to be told."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, select

from quantwatch.flow.notice import Matter, Notice, Topic
from quantwatch.record.documents import finding_json, finding_of
from quantwatch.record.tables import DELIVERIES, NOTICES


@dataclass(frozen=True, slots=True)
class Delivery:
    """A notice that a channel has yet to be told."""

    channel: str
    notice: Notice


@dataclass(frozen=True, slots=True)
class Kept:
    """What the store gives back: notices by the key of their matter, and deliveries in their order."""

    told: Mapping[str, Notice]
    waiting: Sequence[Delivery]


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be kept and what is to be forgotten. done: channel and id of notices that are no longer to be told."""

    told: Sequence[Notice] = ()
    added: Sequence[Delivery] = ()
    done: Sequence[tuple[str, str]] = ()


def kept_notices(connection: Connection) -> Kept:
    """Everything that is kept. What holds no notice is left out: the matter is told anew if it stands."""
    notices = [notice_of(row) for row in connection.execute(select(NOTICES.c.document)).scalars().all()]
    rows = connection.execute(select(DELIVERIES.c.channel, DELIVERIES.c.document).order_by(DELIVERIES.c.number)).all()
    waiting = [(name, notice_of(document)) for name, document in rows]
    told = {one.matter.key: one for one in notices if one is not None}
    return Kept(told, [Delivery(name, one) for name, one in waiting if one is not None])


def change_notices(connection: Connection, change: Change) -> None:
    """Write a change."""
    for one in change.told:
        row = {"key": one.matter.key, "standing": one.matter.standing, "at": one.at, "document": notice_json(one)}
        connection.execute(NOTICES.insert().prefix_with("OR REPLACE"), row)
    for add in change.added:
        line = {"channel": add.channel, "notice": add.notice.id, "document": notice_json(add.notice)}
        connection.execute(DELIVERIES.insert().prefix_with("OR IGNORE"), line)
    for channel, notice in change.done:
        connection.execute(delete(DELIVERIES).where(DELIVERIES.c.channel == channel, DELIVERIES.c.notice == notice))


def notice_json(notice: Notice) -> dict[str, Any]:
    """A notice, ready for json.dumps."""
    matter = {one.name: getattr(notice.matter, one.name) for one in dataclasses.fields(notice.matter)}
    matter["evidence"] = [finding_json(one) for one in notice.matter.evidence]
    return {"id": notice.id, "at": notice.at.isoformat(), "since": notice.since.isoformat(), "matter": matter}


def notice_of(document: Any) -> Notice | None:
    """The notice of a document; None when it holds none."""
    try:
        matter = dict(document["matter"])
        matter["topic"] = Topic(matter["topic"])
        matter["evidence"] = tuple(finding_of(one) for one in matter["evidence"])
        at, since = datetime.fromisoformat(document["at"]), datetime.fromisoformat(document["since"])
        return Notice(document["id"], at, since, Matter(**matter))
    except (KeyError, TypeError, ValueError):
        return None
