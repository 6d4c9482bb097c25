"""Which language and which colours a page is shown in."""

from pathlib import Path

import pytest

from quantwatch.pages.manner import preferred
from support.boards import board
from support.pages import Read, see, site


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("", "en"),
        ("zh", "zh"),
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("en-US,zh;q=0.9", "en"),
        ("de, zh;q=0.5", "zh"),
        ("de", "en"),
        ("en;q=0.1, ZH-tw;q=0.2", "zh"),
        ("zh;q=0, en;q=0.1", "en"),
        ("zh;q=many", "en"),
        ("zh;level=1", "zh"),
        ("zh;q=nan", "en"),
        (",;;=,q", "en"),
    ],
)
def test_the_browsers_wish(header: str, language: str) -> None:
    assert preferred(header) == language


def language_of(text: str) -> str | None:
    return Read.of(text).named("html")[0].attributes["lang"]


async def test_the_address_wins_over_the_cookie_over_the_browser(tmp_path: Path) -> None:
    wish = {"Accept-Language": "zh"}
    shown = site(board(), tmp_path / "none.db")
    assert language_of((await see(shown, "/", headers=wish)).text) == "zh-CN"
    kept = {**wish, "Cookie": "quantwatch_lang=en"}
    assert language_of((await see(site(board(), tmp_path / "none.db"), "/", headers=kept)).text) == "en"
    assert language_of((await see(site(board(), tmp_path / "none.db"), "/?lang=zh", headers=kept)).text) == "zh-CN"


async def test_the_choice_is_remembered(tmp_path: Path) -> None:
    reply = await see(site(board(), tmp_path / "none.db"), "/?lang=zh&theme=dark&pool=chat")
    cookies = reply.headers.get_list("set-cookie")
    assert [one.split(";")[0] for one in cookies] == ["quantwatch_lang=zh", "quantwatch_theme=dark"]
    assert all("HttpOnly" in one and "SameSite=lax" in one and "Secure" not in one for one in cookies)
    page = Read.of(reply.text)
    assert page.named("html")[0].attributes["data-theme"] == "dark"
    assert "/?pool=chat&lang=en" in page.links()  # the rest of the address stays, the choice itself does not


async def test_what_is_none_of_our_choices_is_left_alone(tmp_path: Path) -> None:
    cookie = {"Cookie": 'quantwatch_theme=x; quantwatch_lang="><script>'}
    reply = await see(site(board(), tmp_path / "none.db"), "/?lang=%22%3E%3Cscript%3E&theme=neon", headers=cookie)
    assert "set-cookie" not in reply.headers
    assert Read.of(reply.text).named("html")[0].attributes == {"lang": "en", "data-theme": "auto"}
