"""The first page as somebody woken at night meets it: what is wrong on top, in their language and colours, and live."""

from typing import TYPE_CHECKING

import pytest

from support.browser import DESKTOP, PHONE, Tab, needs_browser, tab
from support.night import ASKS, BAD, GOOD, HELD, Night

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, needs_browser]

PATIENCE = 60_000
"""Milliseconds for what must come; the page asks every ten seconds."""


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_bad_nodes_and_their_reasons_stand_above_the_fold(
    browser: "Browser", night: Night, size: tuple[int, int]
) -> None:
    with tab(browser, night.origin, size=size) as one:
        page = one.open("/")
        first = page.locator(".verdict li").first
        assert first.locator("a").first.inner_text() in (HELD, ASKS)
        assert "is over the critical limit" in first.inner_text()
        for what in (page.locator("h1"), first):
            box = what.bounding_box()
            assert box is not None
            assert box["y"] + box["height"] <= size[1]


def test_nodes_are_listed_with_the_worst_first(browser: "Browser", night: Night) -> None:
    with tab(browser, night.origin) as one:
        rows = one.open("/").locator("table tbody tr")
        names = [row.locator("th a").first.inner_text() for row in rows.all()]
        assert set(names[:2]) == {HELD, ASKS}  # bad, and still in traffic
        assert names[2] == BAD  # bad, and out of it
        assert names[-1] == GOOD or names.index(GOOD) > 3
        isolated = rows.nth(2).inner_text()
        assert "isolated" in isolated
        assert "seen at the gateway" in isolated


def test_the_language_is_switched_and_kept(browser: "Browser", night: Night) -> None:
    with tab(browser, night.origin) as one:
        page = one.open("/")
        assert page.get_attribute("html", "lang") == "en"
        page.get_by_role("link", name="中文").click()
        assert page.get_attribute("html", "lang") == "zh-CN"
        assert "golden" not in page.inner_text("header").lower()
        page.goto(f"{night.origin}/nodes/{BAD}")
        assert page.get_attribute("html", "lang") == "zh-CN"
        page.get_by_role("link", name="English").click()
        assert page.get_attribute("html", "lang") == "en"
        assert page.url.startswith(f"{night.origin}/nodes/{BAD}")


def test_the_language_of_the_browser_is_the_first_choice(browser: "Browser", night: Night) -> None:
    with tab(browser, night.origin, locale="zh-CN") as one:
        assert one.open("/").get_attribute("html", "lang") == "zh-CN"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_colours_follow_the_system_until_somebody_chooses(browser: "Browser", night: Night, *, dark: bool) -> None:
    with tab(browser, night.origin, dark=dark) as one:
        page = one.open("/")
        assert _is_dark(page) == dark
        for name, wanted in (("Dark", True), ("Light", False), ("Dark", True)):
            page.get_by_role("link", name=name, exact=True).click()
            assert _is_dark(page) == wanted
            page.goto(f"{night.origin}/sets")
            assert _is_dark(page) == wanted
        page.get_by_role("link", name="Auto", exact=True).click()
        assert _is_dark(page) == dark


def test_what_changes_appears_by_itself_and_takes_no_focus_away(browser: "Browser", night: Night) -> None:
    with tab(browser, night.origin) as one:
        page = one.open("/")
        page.locator("table th a").nth(2).focus()
        focused = page.evaluate("document.activeElement.id")
        page.evaluate("window.scrollTo(0, 200)")
        said = night.call(
            "POST", "/api/v1/pauses", scope="pool:batch", reason="seen at once", author="ada", seconds=600
        )
        page.get_by_text("seen at once").first.wait_for(timeout=PATIENCE)
        assert page.evaluate("document.activeElement.id") == focused != ""
        assert page.evaluate("window.scrollY") == 200
        night.call("DELETE", f"/api/v1/pauses/{said.json()['id']}?author=ada")
        page.get_by_text("seen at once").first.wait_for(state="detached", timeout=PATIENCE)


def test_nobody_who_types_is_interrupted(browser: "Browser", night: Night) -> None:
    with tab(browser, night.origin) as one:
        page = one.open("/")
        page.locator("input[name=q]").press_sequentially("int4")
        said = night.call(
            "POST", "/api/v1/pauses", scope="pool:batch", reason="not in the way", author="ada", seconds=600
        )
        page.get_by_text("not in the way").first.wait_for(timeout=PATIENCE)
        assert page.locator("input[name=q]").input_value() == "int4"
        assert page.evaluate("document.activeElement.id") == "filter-q"
        page.locator("input[name=q]").press("Enter")
        page.wait_for_url("**q=int4**")
        assert page.locator("table tbody tr").count() == 2
        night.call("DELETE", f"/api/v1/pauses/{said.json()['id']}?author=ada")


def test_a_page_that_is_cut_off_says_so(browser: "Browser", night: Night) -> None:
    with tab(browser, night.origin, expected=("net::ERR_", "htmx:")) as one:
        page = one.open("/")
        page.route("**/*", lambda route: route.abort())
        page.locator("#cut").wait_for(state="visible", timeout=PATIENCE)
        assert "old" in page.inner_text("#cut")
        page.unroute_all()
        page.locator("#cut").wait_for(state="hidden", timeout=PATIENCE)


def test_everything_is_reached_by_the_keyboard(browser: "Browser", night: Night) -> None:
    """Every link and field takes the focus in turn, the focus can be seen, and the first stop skips to the content."""
    with tab(browser, night.origin) as one:
        page = one.open("/")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "content"
        stops = _stops(one)
        wanted = page.locator("main a:visible, main button:visible, main input:visible, main select:visible").count()
        assert len(stops) >= wanted
        assert all(stop["seen"] for stop in stops), [stop for stop in stops if not stop["seen"]]


def _stops(one: Tab) -> list[dict[str, object]]:
    """Where Tab stops in the content, and whether one sees it."""
    found: list[dict[str, object]] = []
    for _ in range(200):
        one.page.keyboard.press("Tab")
        stop = one.page.evaluate(
            """() => { const e = document.activeElement, s = getComputedStyle(e);
            return {inside: !!e.closest('main'), what: e.outerHTML.slice(0, 80),
              seen: s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 1}; }"""
        )
        if not stop["inside"]:
            return found
        found.append(stop)
    return found


def _is_dark(page: "Page") -> bool:
    red, green, blue = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    return bool(red + green + blue < 3 * 128)
