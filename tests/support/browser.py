"""A real Chromium that opens pages of quantwatch, and all that went wrong in it meanwhile."""

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Response

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ("--headless", "--no-sandbox", "--disable-background-networking")

DESKTOP, PHONE = (1280, 900), (360, 740)
"""Width and height in CSS pixels."""

needs_browser = pytest.mark.skipif(
    CHROMIUM is None or importlib.util.find_spec("playwright") is None, reason="Chromium or playwright is not installed"
)

WATCH_POLICY = (
    "document.addEventListener('securitypolicyviolation', "
    "e => console.error('policy: ' + e.violatedDirective + ' ' + e.blockedURI + ' ' + e.sourceFile))"
)
"""Chromium tells of most violations on its console; this tells of all."""


@dataclass(slots=True)
class Seen:
    """What a tab went through. answers: status and URL of every response, in order."""

    console: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    answers: list[tuple[int, str]] = field(default_factory=list)

    def faults(self) -> list[str]:
        """Errors and warnings of the console, uncaught exceptions, requests to other hosts, answers of failure."""
        failed = [f"{status} {url}" for status, url in self.answers if status >= 500]
        return [*self.console, *self.errors, *self.elsewhere, *failed]


@dataclass(frozen=True, slots=True)
class Tab:
    """One tab on one origin. origin: such as http://127.0.0.1:9470."""

    page: "Page"
    origin: str
    seen: Seen

    def open(self, path: str) -> "Page":
        """Open a path and wait until nothing more is loaded."""
        answer = self.page.goto(self.origin + path, wait_until="networkidle")
        assert answer is not None
        return self.page

    def clean(self) -> None:
        """Nothing went wrong up to now."""
        faults = self.seen.faults()
        assert not faults, faults


@contextmanager
def chromium() -> Iterator["Browser"]:
    """The system's own Chromium, without a window."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415, not installed everywhere

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def tab(
    browser: "Browser",
    origin: str,
    *,
    size: tuple[int, int] = DESKTOP,
    dark: bool = False,
    locale: str = "en-US",
    expected: tuple[str, ...] = (),
) -> Iterator[Tab]:
    """A tab with nothing stored; at its end nothing may have gone wrong.

    expected: parts of messages of the console that are no fault in this test, such as the path of a refused login.
    """
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        locale=locale,
        reduced_motion="reduce",
    )
    context.add_init_script(WATCH_POLICY)
    seen = Seen()
    page = context.new_page()
    _listen(page, seen, host=urlsplit(origin).netloc, expected=expected)
    try:
        one = Tab(page, origin, seen)
        yield one
        one.clean()
    finally:
        context.close()


def _listen(page: "Page", seen: Seen, *, host: str, expected: tuple[str, ...]) -> None:
    def said(message: "ConsoleMessage") -> None:
        text = f"{message.type}: {message.text} ({message.location.get('url', '')})"
        if message.type in ("error", "warning") and not any(one in text for one in expected):
            seen.console.append(text)

    def asked(request: "Request") -> None:
        where = urlsplit(request.url)
        if where.scheme not in ("data", "blob") and where.netloc != host:
            seen.elsewhere.append(request.url)

    def answered(response: "Response") -> None:
        seen.answers.append((response.status, response.url))

    page.on("console", said)
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    page.on("request", asked)
    page.on("response", answered)


def axe_faults(page: "Page", *, least: tuple[str, ...] = ("serious", "critical")) -> list[str]:
    """What axe-core holds against a page as it stands, with the elements: faults of these impacts."""
    page.evaluate(resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    found: dict[str, Any] = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']} ({one['impact']}): {' | '.join(node['html'][:200] for node in one['nodes'][:4])}"
        for one in found["violations"]
        if one["impact"] in least
    ]


OVERFLOWS = """() => {
  const wide = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= wide) return [];
  return [...document.body.querySelectorAll('*')]
    .filter(e => e.getBoundingClientRect().right > wide + 1)
    .filter(e => { for (let p = e.parentElement; p; p = p.parentElement) {
        const o = getComputedStyle(p).overflowX; if (o === 'auto' || o === 'scroll' || o === 'hidden') return false; }
      return true; })
    .map(e => e.outerHTML.slice(0, 160)).slice(0, 5).concat(['page ' + document.documentElement.scrollWidth]);
}"""


def sideways(page: "Page") -> list[str]:
    """What makes a page wider than its window; empty where nothing does."""
    found: list[str] = page.evaluate(OVERFLOWS)
    return found


CLIPPED = """() => [...document.body.querySelectorAll('*')].filter(e => {
    const style = getComputedStyle(e);
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) return false;
    if (e.closest('.visually-hidden, .sr-only, .hidden, [hidden], noscript, script, style, svg, canvas')) return false;
    if (style.display === 'inline' || style.visibility === 'hidden' || !e.getClientRects().length) return false;
    const cut = o => o === 'hidden' || o === 'clip';
    if (e.clientWidth <= 1 && e.clientHeight <= 1) return false;
    return (cut(style.overflowX) && e.scrollWidth > e.clientWidth + 1)
        || (cut(style.overflowY) && e.scrollHeight > e.clientHeight + 1);
  }).map(e => e.outerHTML.slice(0, 160))"""


def clipped(page: "Page") -> list[str]:
    """Elements whose own text is cut off with no way to scroll to it."""
    found: list[str] = page.evaluate(CLIPPED)
    return found
