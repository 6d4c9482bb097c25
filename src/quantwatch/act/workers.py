"""The list of workers that a router gives, and what it says of one of them."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from quantwatch.net import Answer, base_url

REGULAR = "regular"
"""The kind of a worker that answers whole requests; the others are halves of a disaggregated node."""

_RANK = re.compile(r"@\d+")
"""What follows a worker's URL where a router lists each of its data-parallel ranks."""


@dataclass(frozen=True, slots=True)
class Worker:
    """One entry of the list. id: how the router names it, None where it has no names. fields: the entry as it came."""

    url: str
    healthy: bool
    kind: str = REGULAR
    model: str = ""
    id: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)


def workers_of(answer: Answer) -> tuple[Worker, ...] | None:
    """The workers that a reply to GET /workers lists; None for anything that is not such a list, whole."""
    if answer.status != 200:
        return None
    try:
        told = json.loads(answer.body)
    except (ValueError, RecursionError):
        return None
    entries = told.get("workers") if isinstance(told, dict) else None
    if not isinstance(entries, list):
        return None
    workers = [_worker(entry) for entry in entries]
    found = tuple(one for one in workers if one is not None)
    return found if len(found) == len(workers) else None


def _worker(entry: Any) -> Worker | None:
    if not isinstance(entry, dict):
        return None
    url, healthy, kind = entry.get("url"), entry.get("is_healthy"), entry.get("worker_type", REGULAR)
    model, id_ = entry.get("model_id") or "", entry.get("id")
    texts = (url, kind, model, "" if id_ is None else id_)
    if not isinstance(healthy, bool) or not all(isinstance(one, str) for one in texts) or not url:
        return None
    return Worker(url, healthy, kind, model, id_, entry)


def entries_of(node: str, listed: Sequence[Worker]) -> tuple[Worker, ...]:
    """The entries of exactly this node; a router that knows its data-parallel ranks lists each of them."""
    return tuple(one for one in listed if one.url.startswith(node) and _rank_or_nothing(one.url[len(node) :]))


def _rank_or_nothing(rest: str) -> bool:
    return not rest or _RANK.fullmatch(rest) is not None


def spelled_otherwise(node: str, listed: Sequence[Worker]) -> str | None:
    """Under which other spelling a node is listed, if it is: a slash, a /v1 or capitals more or less."""
    wanted = base_url(node).lower()
    other = (_RANK.sub("", one.url) for one in listed if one not in entries_of(node, listed))
    return next((url for url in other if base_url(url).lower() == wanted), None)
