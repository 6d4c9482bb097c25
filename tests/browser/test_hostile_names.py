"""A fleet whose every name and reason is hostile: it is text and nothing else, on every page and in every size."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from support.browser import DESKTOP, PHONE, axe_faults, clipped, needs_browser, sideways, tab
from support.crawl import Found, crawled
from support.hostile import LONG, NAMES, fleet, live, remembered
from support.night import HOSTILE
from support.served import app_served

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, needs_browser]


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The pages over that fleet."""
    file = tmp_path_factory.mktemp("hostile") / "quantwatch.db"
    remembered(file)
    with app_served(live(file, fleet())) as at:
        yield at


@pytest.fixture(scope="module")
def found(origin: str) -> Found:
    """Every page that can be reached."""
    return crawled(origin)


def test_every_link_of_such_names_leads_to_their_page(browser: "Browser", origin: str, found: Found) -> None:
    assert found.refused == {}
    titles = set()
    with tab(browser, origin) as one:
        for path in found.of("/nodes/", most=len(NAMES)):
            titles.add(one.open(path).locator("h1").first.inner_text())
    assert titles == {" ".join(name.split()) for name in NAMES}


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_nothing_of_it_runs_or_breaks_a_page(
    browser: "Browser", origin: str, found: Found, size: tuple[int, int]
) -> None:
    faults: dict[str, list[str]] = {}
    with tab(browser, origin, size=size) as one:
        for path in found.pages:
            page = one.open(path)
            assert page.evaluate("window.pwned") is None, path
            faults[path] = [*axe_faults(page), *sideways(page), *clipped(page)]
    assert {path: said for path, said in faults.items() if said} == {}


def test_a_name_of_200_characters_is_shown_whole(browser: "Browser", origin: str) -> None:
    with tab(browser, origin, size=PHONE) as one:
        page = one.open("/")
        assert page.get_by_text(LONG).first.is_visible()
        assert page.get_by_text(HOSTILE).first.is_visible()
