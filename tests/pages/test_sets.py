"""The pages of golden sets."""

from dataclasses import replace
from pathlib import Path

import pytest

from quantwatch.flow.board import Board
from quantwatch.flow.prompt import LengthBucket, Message, Prompt
from quantwatch.flow.verdict import Quality
from quantwatch.pages.listing import sheet
from quantwatch.pages.site import Shown
from support.boards import board, measured, rich_board, target_board
from support.pages import Read, see, site

QUESTION = "how many are 17 times 23"
GOLDEN = (
    Prompt("math-01", "en", LengthBucket.SHORT, ("arithmetic", "two steps"), text=QUESTION),
    Prompt("math-02", "zh", LengthBucket.LONG, (), messages=(Message("user", "数一数"), Message("assistant", "三"))),
)


def three() -> Board:
    good, new = measured("good"), measured("new", quality=Quality.UNKNOWN, run=None, at=None, fresh=False)
    bad = measured("bad", quality=Quality.CORRUPTED, reason="7 positions are not finite")
    return board(target_board("good", good), target_board("new", new), target_board("bad", bad))


async def show(
    path: str,
    tmp_path: Path,
    *,
    whole: Board | None = None,
    prompts: Shown = "ids",
    golden: tuple[Prompt, ...] | None = GOLDEN,
) -> Read:
    reply = await see(site(whole or three(), tmp_path / "none.db", prompts=prompts, golden=golden), path)
    assert reply.status_code == 200
    return Read.of(reply.text)


async def test_the_list_tells_how_nodes_stand_on_each_set(tmp_path: Path) -> None:
    page = await show("/sets", tmp_path)
    assert "3 asked, 1 ok, 1 bad" in page.text
    assert "prompt scoring, k = 20" in page.text
    assert "/sets/math" in page.links()


async def test_the_page_of_a_set_says_what_is_asked_and_who_fails(tmp_path: Path) -> None:
    whole = replace(three(), baseline=rich_board().baseline)
    page = await show("/sets/math", tmp_path, whole=whole)
    for said in ("Prompts 200", "Drawn in a run 24", "f" * 64, "enrolled, made 2026-01-02 03:04 UTC", "7 positions"):
        assert said in page.text
    nodes = [link for link in page.links() if link.startswith("/nodes/")]
    assert nodes == ["/nodes/bad", "/nodes/new", "/nodes/good"]


@pytest.mark.parametrize(
    ("prompts", "seen", "unseen"),
    [
        ("ids", ["math-01", "arithmetic, two steps", "expose.prompts: ids"], [QUESTION, "数一数"]),
        ("full", ["math-01", QUESTION, "user: 数一数", "assistant: 三"], ["expose.prompts"]),
        ("off", ["expose.prompts: off"], ["math-01", "arithmetic", QUESTION]),
    ],
)
async def test_prompts_are_shown_as_far_as_the_configuration_lets_them(
    prompts: Shown, seen: list[str], unseen: list[str], tmp_path: Path
) -> None:
    page = await show("/sets/math", tmp_path, prompts=prompts)
    assert [one for one in seen if one not in page.text] == []
    assert [one for one in unseen if one in page.text] == []


async def test_prompts_may_not_be_known_yet(tmp_path: Path) -> None:
    assert "The prompts are not known yet." in (await show("/sets/math", tmp_path, golden=None)).text


async def test_a_set_that_is_not_there(tmp_path: Path) -> None:
    assert (await see(site(three(), tmp_path / "none.db"), "/sets/none")).status_code == 404


async def test_many_prompts_come_page_by_page(tmp_path: Path) -> None:
    golden = tuple(replace(GOLDEN[0], id=f"p-{number:03d}") for number in range(120))
    page = await show("/sets/math?prompts=3", tmp_path, golden=golden)
    assert "101 to 120 of 120" in page.text
    assert "p-100" in page.text
    assert "p-099" not in page.text
    assert "/sets/math?prompts=2#prompts" in page.links()


@pytest.mark.parametrize(
    ("given", "place"), [(None, 1), ("", 1), ("2", 2), ("9", 3), ("0", 1), ("-1", 1), ("x", 1), ("²", 1), ("9" * 99, 1)]
)
def test_a_page_of_a_list(given: str | None, place: int) -> None:
    found = sheet(range(25), given, rows=10)
    assert (found.place, found.pages, found.count) == (place, 3, 25)
    assert list(found.rows) == list(range(found.first - 1, found.last))


def test_a_page_of_nothing() -> None:
    found = sheet(tuple[int, ...](), None)
    assert (found.rows, found.first, found.last, found.pages) == ((), 1, 0, 1)


async def test_in_chinese_a_verdicts_sentence_is_marked_as_english(tmp_path: Path) -> None:
    page = await see(site(three(), tmp_path / "none.db", golden=GOLDEN), "/sets/math?lang=zh")
    assert '<span lang="en">7 positions are not finite</span>' in page.text
