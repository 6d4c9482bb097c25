"""Links between the documents lead somewhere: to a file that is there, and to a heading in it."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"```.*?```", re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors that a page of Markdown gives its headings."""
    headings = re.findall(r"^#{1,6} (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return frozenset(re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings)


def broken(page: Path, text: str) -> list[str]:
    """Links of a page that lead nowhere."""
    found = []
    for file, anchor in LINK.findall(FENCE.sub("", text)):
        place = page.parent / file if file else page
        if not place.exists() or (anchor and anchor not in anchors(place)):
            found.append(f"{file}#{anchor}" if anchor else file)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    assert broken(page, page.read_text(encoding="utf-8")) == []


def test_links_are_found() -> None:
    assert sum(len(LINK.findall(page.read_text(encoding="utf-8"))) for page in PAGES) > 60


@pytest.mark.parametrize("link", ["[a](nowhere.md)", "[a](runbook.md#no-such-heading)", "[a](#no-such-heading)"])
def test_a_broken_link_is_found(link: str) -> None:
    assert broken(ROOT / "docs" / "daemon.md", link)
