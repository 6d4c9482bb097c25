"""The tokens behind a breach: what both servers thought likely at a position, by mouse and by keyboard alone."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from support.browser import DESKTOP, PHONE, needs_browser, tab
from support.crawl import Found
from support.night import BAD, Night

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, needs_browser]

FAR = ".tokens .tok.k4, .tokens .tok.k3"


@pytest.fixture
def breach(night: Night) -> str:
    """The page of the run that proved a breach."""
    decision = night.decision(BAD)
    return f"/runs/{decision['run']}"


@pytest.fixture
def page(browser: "Browser", night: Night, breach: str) -> Iterator["Page"]:
    """That page in a window of a desk."""
    with tab(browser, night.origin) as one:
        yield one.open(breach)


def shown(page: "Page") -> list[str]:
    """The texts of the boxes that can be seen."""
    return [one.inner_text() for one in page.locator(".pop:visible").all()]


def test_pointing_at_a_token_shows_both_lists_and_what_moved(page: "Page") -> None:
    assert shown(page) == []
    page.locator(FAR).first.hover()
    (box,) = shown(page)
    assert re.search(r"KL\s[\d.]+", box)
    assert {"Baseline", "Node", "Mass that moved"} <= set(re.split(r"[\n\t]", box))
    assert len(re.findall(r"\d %", box)) >= 6  # both sides of several tokens
    moved = [float(one.replace("\u2212", "-")) for one in re.findall(r"[+\u2212-]\d+\.\d", box)]
    assert min(moved) < 0 < max(moved)
    page.mouse.move(0, 0)
    assert shown(page) == []


def test_the_keyboard_shows_the_same(page: "Page") -> None:
    page.locator(FAR).first.hover()
    (by_mouse,) = shown(page)
    page.mouse.move(0, 0)
    page.locator(".tokens").scroll_into_view_if_needed()
    page.locator(".tabs a").last.focus()
    page.keyboard.press("Tab")  # one stop for the whole text, at the first token that is far apart
    assert page.evaluate("document.activeElement.matches('.tokens .tok')")
    assert shown(page) == [by_mouse]
    place = _place(page)
    page.keyboard.press("ArrowRight")
    assert _place(page) == place + 1
    assert len(shown(page)) == 1
    assert shown(page) != [by_mouse]
    page.keyboard.press("ArrowLeft")
    assert shown(page) == [by_mouse]
    page.keyboard.press("ArrowDown")
    assert _place(page) > place
    assert page.evaluate("document.activeElement.matches('.k3, .k4, .kbroken')")
    page.keyboard.press("Escape")
    assert shown(page) == []
    page.keyboard.press("Home")
    assert _place(page) == 0
    page.keyboard.press("Tab")
    assert not page.evaluate("document.activeElement.matches('.tokens .tok')")


def test_colour_is_never_the_only_sign(page: "Page") -> None:
    """Each step of KL has a decoration of its own."""
    styles = page.locator(".legend .tok").evaluate_all(
        "all => all.map(e => { const s = getComputedStyle(e); return s.textDecorationLine + s.textDecorationStyle; })"
    )
    assert len(styles) >= 5
    assert len(set(styles)) == len(styles)


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_box_fits_the_window_and_leaves_its_token_in_sight(
    browser: "Browser", night: Night, breach: str, size: tuple[int, int]
) -> None:
    with tab(browser, night.origin, size=size) as one:
        page = one.open(breach)
        token = page.locator(FAR).first
        token.focus()
        box, around = page.locator(".pop:visible"), token.bounding_box()
        inside = box.bounding_box()
        assert inside is not None
        assert around is not None
        assert inside["x"] >= 0
        assert inside["x"] + inside["width"] <= size[0]
        assert inside["y"] + inside["height"] <= size[1]
        apart = around["y"] + around["height"] <= inside["y"] or around["x"] + around["width"] <= inside["x"]
        assert apart
        assert box.evaluate("e => e.scrollWidth <= e.clientWidth"), "a column is out of sight"


def test_words_of_prompts_are_text_and_nothing_else(browser: "Browser", night: Night, found: Found) -> None:
    """The golden texts of one task set are HTML; the tokens of a tiny node are its bytes."""
    with tab(browser, night.origin) as one:
        for path in found.of("/runs/", most=12):
            page = one.open(path)
            assert page.evaluate("window.pwned") is None
            assert page.locator(".tokens script, .tokens img, .tokens svg[onload]").count() == 0


def _place(page: "Page") -> int:
    place: int = page.evaluate(
        "[...document.activeElement.parentElement.querySelectorAll(':scope > .tok')].indexOf(document.activeElement)"
    )
    return place
