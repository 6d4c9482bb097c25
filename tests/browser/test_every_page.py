"""Every page in every manner: nothing breaks, nothing is hidden from anybody, nothing is in English alone."""

import re
from typing import TYPE_CHECKING

import pytest

from quantwatch.pages.words import WORDS
from support.browser import DESKTOP, PHONE, axe_faults, clipped, needs_browser, sideways, tab
from support.crawl import Found
from support.night import Night

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, needs_browser]

NOWHERE = "/nothing-here"

TEXTS = """() => {
  const all = [document.title];
  for (const one of document.querySelectorAll('details')) one.open = true;
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const skipped = 'script, style, [lang=en]';
  while (walk.nextNode())
    if (!walk.currentNode.parentElement.closest(skipped) && walk.currentNode.parentElement.checkVisibility())
      all.push(walk.currentNode.data);
  for (const name of ['aria-label', 'title', 'placeholder', 'alt', 'data-label', 'value'])
    for (const e of document.querySelectorAll(`[${name}]:not([lang=en])`))
      if (name !== 'value' || e.matches('button, input[type=submit]')) all.push(e.getAttribute(name));
  return all.map(text => text.replace(/\\s+/g, ' ').trim()).filter(text => text);
}"""
"""Every text of a page that a person or a screen reader comes across, with everything opened."""


def english() -> list[re.Pattern[str]]:
    """Every sentence of the pages in English that is another one in Chinese, with anything in its places."""
    made = []
    for in_english, in_chinese in WORDS.values():
        plain = re.sub(r"\{\w+\}", "", in_english)
        least = 2 if plain == in_english else 8
        if in_english != in_chinese and len(re.findall(r"[a-z]", plain)) >= least:
            parts = re.split(r"\{\w+\}", in_english)
            made.append(re.compile(".+".join(map(re.escape, parts))))
    return made


def left_in_english(page: "Page") -> list[str]:
    """Texts of a page that are words of the pages in English."""
    sentences = english()
    texts: list[str] = page.evaluate(TEXTS)
    return [text for text in texts if any(one.fullmatch(text) for one in sentences)]


def test_every_link_leads_to_a_page(found: Found) -> None:
    assert found.refused == {}
    assert len(found.kinds()) >= 6, found.kinds()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_no_page_has_a_serious_fault(
    browser: "Browser", night: Night, found: Found, size: tuple[int, int], *, dark: bool
) -> None:
    """By axe-core; and no page is wider than its window, nor is a text of it cut off."""
    faults: dict[str, list[str]] = {}
    with tab(browser, night.origin, size=size, dark=dark, expected=(NOWHERE,)) as one:
        for path in [*found.kinds(most=2), NOWHERE]:
            page = one.open(path)
            faults[path] = [*axe_faults(page), *sideways(page), *clipped(page)]
    assert {path: said for path, said in faults.items() if said} == {}


def test_every_page_is_in_chinese_too(browser: "Browser", night: Night, found: Found) -> None:
    faults: dict[str, list[str]] = {}
    with tab(browser, night.origin, locale="zh-CN", size=PHONE, expected=(NOWHERE,)) as one:
        for path in [*found.kinds(most=2), NOWHERE]:
            page = one.open(path)
            assert page.get_attribute("html", "lang") == "zh-CN"
            faults[path] = [*left_in_english(page), *sideways(page), *clipped(page)]
    assert {path: said for path, said in faults.items() if said} == {}


def test_nothing_hostile_ran(browser: "Browser", night: Night, found: Found) -> None:
    with tab(browser, night.origin) as one:
        for path in found.kinds(most=3):
            page = one.open(path)
            assert page.evaluate("window.pwned") is None, path
            assert page.locator("main script, main img, main svg[onload], main textarea:not(form *)").count() == 0, path
