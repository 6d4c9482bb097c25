"""Which pages there are: by their links, from the first one on."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

import httpx

MOST = 400
"""Pages that are asked for at most."""

REMEMBERED = ("lang=", "theme=")
"""Parts of links that change how the same page looks."""


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value]


def links(text: str) -> list[str]:
    """Where the links of a page lead, as they are written."""
    reader = _Links()
    reader.feed(text)
    return reader.found


@dataclass(slots=True)
class Found:
    """What a walk over the links found. pages: paths with queries. refused: status by path, where not 200."""

    pages: list[str] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)

    def of(self, begin: str, *, most: int = 1) -> list[str]:
        """Pages under a path, without a query."""
        return [one for one in self.pages if one.startswith(begin) and "?" not in one][:most]

    def kinds(self, *, most: int = 1) -> list[str]:
        """Some pages of every kind, by the first segment of their paths."""
        kinds: dict[str, list[str]] = {}
        for one in self.pages:
            path = urlsplit(one).path
            parts = path.strip("/").split("/")
            kind = parts[0] if len(parts) == 1 else f"{parts[0]}/{'/'.join(parts[2:])}"
            kinds.setdefault(f"{kind}{'*' * (len(parts) > 1)}", []).append(one)
        return [one for pages in kinds.values() for one in pages[:most]]


def crawled(origin: str, *, begin: Sequence[str] = ("/",), client: httpx.Client | None = None) -> Found:
    """Follow the links of pages that are on this origin."""
    found, waiting, known = Found(), deque(begin), set(begin)
    with client or httpx.Client(trust_env=False, timeout=30) as asking:
        while waiting and len(known) < MOST:
            path = waiting.popleft()
            answer = asking.get(origin + path)
            if answer.status_code != 200:
                found.refused[path] = answer.status_code
                continue
            if not answer.headers.get("content-type", "").startswith("text/html"):
                continue
            found.pages.append(path)
            for link in links(answer.text):
                where = urlsplit(urljoin(origin + path, link))
                one = where.path + (f"?{where.query}" if where.query else "")
                if f"{where.scheme}://{where.netloc}" == origin and one not in known:
                    known.add(one)
                    if not any(part in where.query for part in REMEMBERED):
                        waiting.append(one)
    return found
