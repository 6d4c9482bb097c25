"""The pages of a run and of a decision, over HTTP, on a real store."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException

from quantwatch.errors import InputError
from quantwatch.flow.decision import Action, Ruling
from quantwatch.flow.proposal import Fate, Proposal
from quantwatch.flow.tokens import PromptsShown
from quantwatch.pages.app import LivePage
from quantwatch.pages.gather import incident_of
from quantwatch.pages.reading import Reading
from quantwatch.pages.run import run_values
from quantwatch.pages.site import Shown, Site
from quantwatch.pages.view import incident_values
from quantwatch.record.archive import Archive
from support.asking import ask
from support.boards import rich_board
from support.incidents import EVIL, bad_run, incident_store, token, tokens_seen
from support.stored import after, at, decision, opened, run

NOW = datetime(2026, 1, 1, 2, tzinfo=UTC)
RUN = f"/runs/{bad_run().id}"
VOID = {"meta", "link", "br", "rect", "line", "circle", "path", "input"}


class Page(HTMLParser):
    """What a browser makes of a page: open elements in order, attributes, and whether everything is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.faults: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "br":
            self.words.append(" ")
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in {"td", "th", "p", "li"}:
            self.words.append(" ")
        if tag in VOID:
            return
        optional = {"li", "p"}
        while self.stack and self.stack[-1] != tag and self.stack[-1] in optional:
            self.stack.pop()
        if not self.stack or self.stack.pop() != tag:
            self.faults.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def said(self) -> str:
        return " ".join("".join(self.words).split())

    def with_class(self, name: str) -> list[dict[str, str | None]]:
        return [given for _, given in self.tags if name in (given.get("class") or "").split()]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store for all that only read it."""
    return incident_store(tmp_path_factory.mktemp("incident"))


@cache
def live(store: Path, shown: Shown = "full") -> Starlette:
    """The pages alone, on this store, with their own errors."""
    pages = LivePage(Site(rich_board, Reading(store), lambda: NOW, prompts=lambda: shown))
    handlers = dict.fromkeys((HTTPException, InputError), pages.failed)
    return Starlette(routes=pages.routes, exception_handlers=handlers)  # type: ignore[arg-type]


async def seen(store: Path, path: str, shown: Shown = "full") -> Page:
    reply = await ask(live(store, shown), path)
    assert reply.status_code == 200, reply.text[:500]
    return Page(reply.text)


async def test_a_run_tells_the_verdict_the_limit_and_what_was_done_first(store: Path) -> None:
    page = await seen(store, RUN)

    head = page.said.partition("Numbers against their limits")[0]
    for part in (
        "math on int8-a: degraded",
        "Mean KL 0.120 (0.108 – 0.132), critical at 0.0500: 2.4 times the critical limit",
        "Decision: isolate, carried out, verified (d-1)",
        "Decision: isolate, suppressed (d-held); Too many would be away: 1 of 2 is isolated already",
        "The last good run before it: 2026-01-01 00:19",
    ):
        assert part in head
    assert page.faults == []


async def test_a_token_shows_both_lists_and_the_mass_that_moved(store: Path) -> None:
    page = await seen(store, RUN)

    tokens = [one for one in page.with_class("tok") if "tabindex" in one]
    assert len(tokens) == 96
    assert {one["class"] for one in tokens} == {f"tok k{step}" for step in (0, 1, 2, 3, 4, "broken")}
    assert tokens[3]["aria-label"] == "42: KL 1.7 nats"
    assert "42 #16, position 43 KL 1.7 nats Token Baseline Node Mass that moved ★ 42 95.0 % 2.0 % −93.0" in page.said
    assert "≤ 2.0 %" in page.said  # the node does not list it, and what it lists least has so much
    assert "3 positions were not asked" in {one.get("title") for one in page.with_class("gap")}
    assert "non_finite: 3 of 20 values" in page.said


async def test_another_prompt_is_chosen_by_the_address(store: Path) -> None:
    second = await seen(store, f"{RUN}?prompt=2")
    assert "math-11: 40 tokens of prompt before the text below" in second.said
    for odd in ("0", "9", "x", "-1", "²", "9" * 9):
        assert "math-03: 40 tokens of prompt" in (await seen(store, f"{RUN}?prompt={odd}")).said


def test_positions_are_built_of_the_chosen_prompt_alone_and_of_none_for_a_decision(store: Path) -> None:
    with Archive.open(store) as archive:
        by_run, by_decision = (
            incident_of(archive, archive.find(wanted), now=NOW, shown=PromptsShown.FULL)
            for wanted in (bad_run().id, "d-1")
        )
    view = run_values(by_run, "en", "2")["tokens"]
    assert [len(one.places) for one in view.prompts] == [0, 96, 0]
    assert incident_values(by_decision, "en")["tokens"] is None


async def test_without_texts_ids_are_shown_and_how_to_have_texts(store: Path) -> None:
    page = await seen(store, RUN, "ids")
    assert "expose.prompts: full" in page.said
    assert "#16: KL 1.7 nats" in {one.get("aria-label") for one in page.with_class("tok")}
    assert "answer" not in "".join(one.get("aria-label") or "" for one in page.with_class("tok"))


async def test_texts_that_are_not_learned_yet_are_no_matter_of_the_configuration(tmp_path: Path) -> None:
    page = await seen(incident_store(tmp_path, words=False), RUN)
    assert "What these ids mean is not known" in page.said
    assert "expose.prompts" not in page.said


async def test_nothing_of_tokens_is_shown_where_the_configuration_says_so(store: Path) -> None:
    page = await seen(store, RUN, "off")
    assert "Tokens are not shown: the configuration says" in page.said
    assert not [one for one in page.with_class("tok") if "tabindex" in one]
    assert "math-0" not in page.said
    assert "not shown" in page.said.partition("Prompts without an answer")[2]


async def test_a_run_whose_tokens_are_not_kept_says_so(store: Path) -> None:
    page = await seen(store, f"/runs/{run(3).id}")
    assert "No tokens are kept of this run: nothing was measured" in page.said


async def test_a_run_that_asked_nothing_is_shown(tmp_path: Path) -> None:
    down = run(1, reason="connection refused", report=None, baseline=None, node=None)
    with opened(tmp_path) as kept:
        kept.add_run(down, after(down))
    page = await seen(tmp_path / "q.db", f"/runs/{down.id}")
    assert "This run gave no numbers" in page.said
    assert page.faults == []


async def test_words_of_servers_and_prompts_never_become_markup(tmp_path: Path) -> None:
    prompt = tokens_seen().prompts[0]
    evil = tokens_seen(prompts=(*tokens_seen().prompts[2:], prompt))
    with opened(tmp_path / "other") as kept:
        bad = bad_run(reason=f"the node said {EVIL}", target='"><img src=x onerror=alert(1)>')
        kept.add_run(bad, after(bad))
        kept.keep_tokens(bad.id, evil, tokenizer="t" * 8)
        kept.keep_texts("t" * 8, {**dict.fromkeys(range(10, 60), f"{EVIL}'\"&"), 90: "\u202e"})
    for name in ("page", "report.html"):
        path = RUN if name == "page" else f"{RUN}/{name}"
        reply = await ask(live(tmp_path / "other" / "q.db"), path)
        assert "<script>alert" not in reply.text
        assert "<img" not in reply.text
        assert "\u202e" not in reply.text
        found = Page(reply.text)
        assert found.faults == []
        assert all(given.get("src") for tag, given in found.tags if tag == "script")


async def test_pages_hold_no_style_and_no_script_of_their_own(store: Path) -> None:
    for path in (RUN, "/decisions/d-1"):
        page = await seen(store, path)
        assert not [tag for tag, _ in page.tags if tag == "style"]
        assert not [given for _, given in page.tags if "style" in given or any(name.startswith("on") for name in given)]


@pytest.mark.parametrize("path", [RUN, "/decisions/d-1", "/decisions/d-held", "/decisions/d-back"])
@pytest.mark.parametrize("language", ["en", "zh"])
async def test_both_languages_are_whole(path: str, language: str, store: Path) -> None:
    reply = await ask(live(store), f"{path}?lang={language}")
    assert reply.status_code == 200
    page = Page(reply.text)
    assert page.faults == []
    assert ("证据" in page.said or "词元" in page.said) is (language == "zh")


async def test_a_decision_tells_wish_objections_order_and_audit_trail(store: Path) -> None:
    done, held = await seen(store, "/decisions/d-1"), await seen(store, "/decisions/d-held")

    for part in (
        "Isolate int8-a: carried out",
        "Pool llama, mode enforce; by quantwatch (by its verdicts); because a limit is breached",
        "verified 2026-01-01 00:22",
        "calls begun: 1",
        "fallback http://fp16:8000",
        "3 of its own answers to these prompts are kept",
        "int8-a: Routing: in traffic → leaving: mean KL over its limit",
    ):
        assert part in done.said
    assert "hunter2" not in done.said
    assert "Too many would be away cap 1 of 2 is isolated already, and 1 is allowed" in held.said
    assert "Nothing was sent to the gateway." in held.said


async def test_the_report_of_a_decision_is_about_the_decision(store: Path) -> None:
    reply = await ask(live(store), "/decisions/d-held/report.md")
    assert reply.text.startswith("# Isolate int8-a: suppressed\n")
    assert "Nothing was sent to the gateway." not in reply.text  # for the run something was, by d-1


async def test_a_proposal_tells_who_answered_and_what(tmp_path: Path) -> None:
    asked = replace(decision("d-5"), ruling=Ruling.PROPOSED)
    wait = Proposal("d-5", "int8-a", "llama", Action.ISOLATE, "bad", "r-1", at(10), at(70))
    with opened(tmp_path) as kept:
        kept.decide(asked, proposal=wait)
    page = await seen(tmp_path / "q.db", "/decisions/d-5")
    assert "Waits for a person" in page.said
    with opened(tmp_path) as kept:
        kept.close_proposal(replace(wait, fate=Fate.REJECTED, closed=at(20), author="ada", said="a drill"))
    pages = LivePage(Site(rich_board, Reading(tmp_path / "q.db"), lambda: NOW))
    again = Page((await ask(Starlette(routes=pages.routes), "/decisions/d-5")).text)
    assert "Rejected at 2026-01-01 00:20 UTC, ada: a drill" in again.said
    assert "proposal · ada proposal rejected: a drill" in again.said


@pytest.mark.parametrize("path", ["/runs/nothing", "/decisions/nothing", f"{RUN}/report.exe"])
async def test_what_is_not_there_is_404(path: str, store: Path) -> None:
    assert (await ask(live(store), path)).status_code == 404


Check = Callable[[httpx.Response], bool]


@pytest.mark.parametrize(
    ("kind", "looks_right"),
    [
        ("html", lambda reply: reply.text.startswith("<!doctype html>")),
        ("md", lambda reply: reply.text.startswith("# math on int8-a: degraded")),
        ("json", lambda reply: json.loads(reply.text)["kind"] == "incident"),
    ],
)
async def test_a_report_is_downloaded(kind: str, looks_right: Check, store: Path) -> None:
    reply = await ask(live(store), f"{RUN}/report.{kind}")
    assert reply.status_code == 200
    assert looks_right(reply)
    assert reply.headers["content-disposition"] == f'attachment; filename="quantwatch-{bad_run().id}.{kind}"'
    assert "sandbox" in reply.headers["content-security-policy"]


def test_the_sample_has_every_kind_of_position() -> None:
    assert token(1, 2, None, mark="non_finite").node == ()
    assert re.search("script", EVIL)
