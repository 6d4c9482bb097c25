"""What people may do: nothing without a token, what their role allows with one, and all of it on record."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx
import pytest

from support.browser import PHONE, Tab, axe_faults, clipped, needs_browser, sideways, tab
from support.night import BAD, GOOD, SCRIPT, TOKENS, Night

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, needs_browser]


@contextmanager
def logged_in(
    browser: "Browser", night: Night, role: str, *, expected: tuple[str, ...] = (), size: tuple[int, int] = (1280, 900)
) -> Iterator[Tab]:
    """A tab after the login form."""
    with tab(browser, night.origin, expected=expected, size=size) as one:
        _enter(one.open("/login"), TOKENS[role])
        yield one


def _enter(page: "Page", token: str) -> None:
    page.fill("#token", token)
    page.locator("main form button").click()
    page.wait_for_load_state("networkidle")


def _asked(page: "Page", reason: str) -> None:
    """Fill the form and go to the page that asks whether it shall be done."""
    page.fill("#reason", reason)
    page.locator("main form button").click()
    page.wait_for_load_state("networkidle")


def test_without_a_token_nothing_is_done(browser: "Browser", night: Night) -> None:
    with tab(browser, night.origin) as one:
        page = one.open(f"/actions/hold?about={GOOD}")
        assert "/login" in page.url
        one.open(f"/nodes/{GOOD}")
        assert page.locator("form[method=post]").count() == 0
    form = {"about": GOOD, "reason": "no token", "author": "mallory", "seconds": "3600"}
    for headers in ({}, {"Origin": night.origin}, {"Origin": "http://evil.example"}):
        said = httpx.post(f"{night.origin}/actions/hold", data=form, headers=headers, trust_env=False)
        assert said.status_code in (303, 401, 403), said.text
    assert night.target(GOOD)["human"] == "none"


def test_a_wrong_token_opens_nothing(browser: "Browser", night: Night) -> None:
    with tab(browser, night.origin, expected=("status of 401",)) as one:
        page = one.open("/login")
        _enter(page, "x" * 40)
        assert "opens nothing" in page.inner_text("main [role=alert]")
        assert page.evaluate("document.activeElement.id") == "token"
        assert one.open(f"/actions/hold?about={GOOD}").url.startswith(f"{night.origin}/login")


def test_a_viewer_looks_and_does_not_act(browser: "Browser", night: Night) -> None:
    with logged_in(browser, night, "viewer", expected=("status of 403",)) as one:
        page = one.open(f"/actions/hold?about={GOOD}")
        assert "operator" in page.inner_text("main")
        assert page.locator("#reason").count() == 0


def test_a_hold_and_its_release_are_confirmed_and_on_record(browser: "Browser", night: Night) -> None:
    reason = f"looking at it {SCRIPT}"
    with logged_in(browser, night, "operator") as one:
        page = one.open(f"/nodes/{GOOD}")
        page.locator(f"main a[href*='/actions/hold'][href*='{GOOD}']").first.click()
        _asked(page, reason)
        assert reason in page.inner_text("main")
        assert night.target(GOOD)["human"] == "none", "asked, not done"
        page.locator("main form button").first.click()
        page.wait_for_load_state("networkidle")
        held = night.target(GOOD)
        assert (held["human"], held["human_author"], held["human_reason"]) == ("held", "ada-operator", reason)
        page = one.open(f"/nodes/{GOOD}")
        assert "ada-operator" in page.inner_text("main")
        assert page.evaluate("window.pwned") is None

        page = one.open(f"/actions/release?about={GOOD}")
        _asked(page, "all is well")
        page.locator("main form button").first.click()
        page.wait_for_load_state("networkidle")
        assert night.target(GOOD)["human"] == "none"
        assert "ada-operator" in one.open(f"/nodes/{GOOD}").inner_text("main")
    calls = [line for line in night.daemon.log() if line["event"] == "admin call" and line.get("target") == GOOD]
    assert [(line["call"], line["caller"]) for line in calls][-2:] == [
        ("hold", "ada-operator"),
        ("release", "ada-operator"),
    ]


def test_a_confirmation_counts_once(browser: "Browser", night: Night) -> None:
    with logged_in(browser, night, "operator", expected=("status of 409",)) as one:
        page = one.open(f"/actions/run?about={GOOD}")
        _asked(page, "once more")
        page.locator("main form button").first.click()
        page.wait_for_load_state("networkidle")
        before = len([line for line in night.daemon.log() if line.get("call") == "run"])
        page.reload(wait_until="networkidle")  # the browser sends the form again
        assert page.locator("main [role=alert]").count() == 1
        assert len([line for line in night.daemon.log() if line.get("call") == "run"]) == before


def test_an_isolation_comes_back_by_a_persons_word(browser: "Browser", night: Night) -> None:
    with logged_in(browser, night, "operator") as one:
        page = one.open(f"/actions/release?about={BAD}")
        assert "isolated" in page.inner_text("main") or BAD in page.inner_text("h1")
        _asked(page, "rehearsal")
        assert night.target(BAD)["routing"] == "out", "asked, not done"


def test_a_session_ends(browser: "Browser", night: Night) -> None:
    with logged_in(browser, night, "operator") as one:
        page = one.open("/")
        page.get_by_role("button", name="Log out").click()
        page.wait_for_load_state("networkidle")
        assert one.open(f"/actions/hold?about={GOOD}").url.startswith(f"{night.origin}/login")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_forms_have_no_serious_fault(browser: "Browser", night: Night, *, dark: bool) -> None:
    faults: dict[str, list[str]] = {}
    with logged_in(browser, night, "operator", size=PHONE, expected=("status of 409",)) as one:
        one.page.emulate_media(color_scheme="dark" if dark else "light")
        calls = ("hold", "isolate", "release", "confirm_healthy", "run")
        proposal = night.status()["proposals"][0]["decision"]
        paths = [*(f"/actions/{call}?about={BAD}" for call in calls), f"/actions/approve?about={proposal}"]
        for path in ["/actions", "/actions/pause?about=all", f"/nodes/{BAD}", *paths]:
            page = one.open(path)
            faults[path] = [*axe_faults(page), *sideways(page), *clipped(page)]
        page = one.open(f"/actions/approve?about={proposal}")
        _asked(page, "yes")
        faults["confirmation"] = [*axe_faults(page), *sideways(page), *clipped(page)]
    assert {path: said for path, said in faults.items() if said} == {}
