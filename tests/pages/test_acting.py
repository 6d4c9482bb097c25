"""People act on the pages: form, confirmation, result; with a token alone, once, and as the API would."""

import asyncio
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

from quantwatch.errors import InputError, NeedsForce, StoreError
from quantwatch.expose.sessions import IDLE_SECONDS
from quantwatch.flow.decision import Action, Brake
from quantwatch.flow.fleet import Fallback
from quantwatch.flow.foresight import Foreseen
from quantwatch.flow.word import Heard, Word
from quantwatch.pages.acting import ABOUT, TIMED
from quantwatch.pages.plans import KEPT_SECONDS, LASTS_SECONDS, MOST, Plans
from quantwatch.pages.words import WORDS
from quantwatch.pages.words.actions import WORDS as OWN
from support.boards import board, measured, rich_board, target_board
from support.builders import FakeClock
from support.desks import Browser, Desk, Place, bearer, keys

NAMES = {"pause": "all", "approve": "d-9", "reject": "d-9", "resume": "p-1"}
ASKED = {
    "pause": ("pause", "all", "because", "otto", 3600.0),
    "resume": ("resume", "p-1", "otto", "because"),
    "hold": ("hold", Word("node-a", "otto", "because", 3600.0)),
    "isolate": ("isolate", Word("node-a", "otto", "because", 3600.0)),
    "release": ("release", Word("node-a", "otto", "because")),
    "confirm_healthy": ("confirm_healthy", Word("node-a", "otto", "because")),
    "run": ("run", "node-a", None, "otto", "because"),
    "approve": ("approve", "d-9", "otto", "because"),
    "reject": ("reject", "d-9", "otto", "because"),
}
ACTIONS = pytest.mark.parametrize("call", ABOUT)


def about(call: str) -> str:
    return NAMES.get(call, "node-a")


def outcome(call: str) -> str:
    """What the result says, as far as it is the same whatever it is about."""
    kind = "ordered" if call in ("isolate", "release", "approve") else "done"
    return max(re.split(r"\{\w+\}", OWN[f"act.{kind}.{call}"][0]), key=len).strip()


def hidden(reply: httpx.Response, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', reply.text)
    assert found is not None, f"{reply.status_code}: no {name} in\n{words(reply)}"
    return unescape(found[1])


def words(reply: httpx.Response) -> str:
    """What a person reads on a page."""
    text = re.sub(r"<(script|style|title)\b.*?</\1>|<[^>]+>", " ", reply.text, flags=re.DOTALL)
    return " ".join(unescape(text).split())


def filled(call: str, csrf: str, **more: str) -> dict[str, str]:
    lasting = {"seconds": "3600"} if call in TIMED else {}
    return {"csrf": csrf, "about": about(call), "reason": "because", **lasting, **more}


async def form(browser: Browser, call: str) -> str:
    """Open the form of an action; its CSRF token."""
    return hidden(await browser.get(f"/actions/{call}?about={about(call)}"), "csrf")


async def confirmation(browser: Browser, call: str, **more: str) -> dict[str, str]:
    """Fill the form in and go on; what the confirmation sends."""
    csrf = await form(browser, call)
    reply = await browser.post(f"/actions/{call}", filled(call, csrf, **more))
    assert reply.status_code == 200, words(reply)
    return {"csrf": hidden(reply, "csrf"), "confirmation": hidden(reply, "confirmation")}


def done(desk: Desk) -> list[tuple[object, ...]]:
    """What the daemon was asked to do, without what it was asked to foresee."""
    return [one for one in desk.asked if one[0] != "foresee"]


@ACTIONS
async def test_an_action_is_a_form_a_confirmation_and_a_result(tmp_path: Path, call: str) -> None:
    place = Place(tmp_path)
    async with place.browser() as browser:
        await browser.log_in("otto")
        sent = await confirmation(browser, call)
        assert done(place.desk) == []
        assert place.desk.asked == [("foresee", call, about(call), False)]
        reply = await browser.post(f"/actions/{call}", sent)
    assert (reply.status_code, done(place.desk)) == (200, [ASKED[call]])
    assert (place.counted, place.refused) == ([(call, "operator")], [])
    assert outcome(call) in words(reply)


@ACTIONS
async def test_a_confirmation_counts_once(tmp_path: Path, call: str) -> None:
    place = Place(tmp_path)
    async with place.browser() as browser:
        await browser.log_in("otto")
        sent = await confirmation(browser, call)
        first = await browser.post(f"/actions/{call}", sent)
        again = await browser.post(f"/actions/{call}", sent)
    assert (first.status_code, again.status_code, done(place.desk)) == (200, 409, [ASKED[call]])
    assert "was confirmed already and is not done again" in words(again)
    assert outcome(call) in words(again)
    assert place.refused == ["replay"]


async def test_two_clicks_at_once_are_one(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.desk = _SlowDesk()
    async with place.browser() as browser:
        await browser.log_in("otto")
        sent = await confirmation(browser, "hold")
        replies = await asyncio.gather(*(browser.post("/actions/hold", sent) for _ in range(5)))
    assert sorted(one.status_code for one in replies) == [200, 409, 409, 409, 409]
    assert len(done(place.desk)) == 1
    assert any("is still under way" in words(one) for one in replies)


class _SlowDesk(Desk):
    async def hold(self, word: Word) -> Heard:
        heard = await Desk.hold(self, word)
        await asyncio.sleep(0.05)
        return heard


@ACTIONS
@pytest.mark.parametrize("name", ["vera", "otto", "root", "admin", ""])
async def test_every_role_against_every_form(tmp_path: Path, call: str, name: str) -> None:
    place = Place(tmp_path)
    async with place.browser() as browser:
        if name:
            await browser.log_in(name)
        path = f"/actions/{call}?about={about(call)}"
        got, sent = await browser.get(path), await browser.post(path, filled(call, "x"))
    if not name:
        assert (got.status_code, sent.status_code) == (303, 303)
        assert got.headers["location"] == f"/login?next=/actions/{call}%3Fabout%3D{about(call)}"
    elif name == "vera":
        assert (got.status_code, sent.status_code, place.refused) == (403, 403, ["forbidden"] * 2)
        assert "It needs the role operator, and vera has the role viewer. Nothing was done." in words(got)
    else:
        assert (got.status_code, sent.status_code, place.refused) == (200, 403, ["csrf"])
    assert place.desk.asked == []


async def test_a_form_without_this_sessions_token_does_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.browser() as one, place.browser() as other:
        await one.log_in("otto")
        await other.log_in("otto")
        theirs, sent = await form(other, "hold"), await confirmation(one, "hold")
        for csrf in (theirs, "", "x" * 32, "é", sent["csrf"][:-1]):
            for fields in (filled("hold", csrf), {**sent, "csrf": csrf}):
                reply = await one.post("/actions/hold", fields)
                assert (reply.status_code, done(place.desk)) == (403, [])
                assert "not one of this session" in words(reply)
        assert (await one.post("/actions/hold", sent)).status_code == 200


async def test_a_confirmation_is_no_use_to_others_for_other_actions_or_too_late(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.browser() as one, place.browser() as other:
        await one.log_in("otto")
        await other.log_in("otto")
        sent = await confirmation(one, "hold")
        stolen = {**sent, "csrf": await form(other, "hold")}
        assert (await other.post("/actions/hold", stolen)).status_code == 409
        assert (await one.post("/actions/isolate", sent)).status_code == 409
        assert (await one.post("/actions/hold", {**sent, "confirmation": "guessed"})).status_code == 409
        place.clock.time += LASTS_SECONDS + 1
        reply = await one.post("/actions/hold", sent)
    assert (reply.status_code, done(place.desk)) == (409, [])
    assert "ask again to see how things stand now" in words(reply)
    assert place.refused == ["replay"] * 4


@ACTIONS
async def test_what_came_of_a_confirmation_is_known_for_a_day(tmp_path: Path, call: str) -> None:
    place = Place(tmp_path)
    async with place.browser() as script:
        shown = await script.post(f"/actions/{call}", filled(call, "x"), Origin="", **bearer("otto"))
        sent = {"confirmation": hidden(shown, "confirmation")}
        await script.post(f"/actions/{call}", sent, Origin="", **bearer("otto"))
        for _ in range(MOST + 1):
            place.acting[-1].plans.add("hold", "node-b", {}, owner="token vera")
        place.clock.time += KEPT_SECONDS
        again = await script.post(f"/actions/{call}", sent, Origin="", **bearer("otto"))
        place.clock.time += 1
        late = await script.post(f"/actions/{call}", sent, Origin="", **bearer("otto"))
    assert (again.status_code, late.status_code, done(place.desk)) == (409, 409, [ASKED[call]])
    assert "was confirmed already and is not done again" in words(again)
    assert outcome(call) in words(again)
    assert "if it had been confirmed before, the page of the node tells what came of it" in words(late)


def test_plans_are_few() -> None:
    clock = FakeClock()
    plans = Plans(clock)
    for _ in range(3):
        plans.begin(plans.add("hold", "node-a", {}, owner="ada"))
        clock.time += KEPT_SECONDS + 1
    assert len(plans._begun) == 1
    ids = [plans.add("hold", "node-a", {}, owner="ada") for _ in range(MOST + 1)]
    assert plans.find(ids[0], owner="ada") is None
    assert plans.find(ids[1], owner="ada") is not None


async def test_a_session_that_ended_does_nothing_and_says_so(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.browser() as browser:
        await browser.log_in("otto")
        sent = await confirmation(browser, "hold")
        place.clock.time += IDLE_SECONDS + 1
        reply = await browser.post("/actions/hold", sent)
        assert (reply.status_code, reply.headers["location"], done(place.desk)) == (303, "/login?ended=1", [])
        assert "The session has ended" in words(await browser.get(reply.headers["location"]))


async def test_a_token_that_was_exchanged_ends_its_session_in_the_middle_of_a_form(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.browser() as browser:
        await browser.log_in("otto")
        sent = await confirmation(browser, "hold")
        place.access.renew(keys("vera", "root"), place.rules)
        assert (await browser.post("/actions/hold", sent)).status_code == 303
        assert (await browser.log_in("otto")).status_code == 401
    assert done(place.desk) == []


async def test_a_script_needs_its_token_and_no_session(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.browser() as script:
        shown = await script.post("/actions/hold", filled("hold", "x") | {}, Origin="", **bearer("otto"))
        sent = {"confirmation": hidden(shown, "confirmation")}
        reply = await script.post("/actions/hold", sent, Origin="", **bearer("otto"))
        assert (reply.status_code, done(place.desk)) == (200, [ASKED["hold"]])
        others = await script.post("/actions/hold", filled("hold", "x"), Origin="", **bearer("vera"))
        assert others.status_code == 403


@pytest.mark.parametrize("origin", ["", "http://127.0.0.1:9470"])
async def test_without_any_token_the_pages_only_show_and_say_how_to_act(tmp_path: Path, origin: str) -> None:
    place = Place(tmp_path, keys=[])
    async with place.browser() as browser:
        for path in ("/", "/nodes/node-a", "/actions", "/login"):
            reply = await browser.get(path)
            assert reply.status_code == 200
            assert "<form" not in reply.text.partition("<main")[2].replace('<form class="filter"', "")
            assert f'href="/actions/{"hold"}' not in reply.text
        for path in ("/actions", "/login"):
            assert "server: tokens: - name: ada role: operator" in words(await browser.get(path))
        assert (await browser.get("/actions/hold?about=node-a")).status_code == 403
        assert (await browser.post("/actions/hold", filled("hold", ""), Origin=origin)).status_code == 403
        assert (await browser.post("/login", {"token": "x" * 20}, Origin=origin)).status_code == 403
    assert place.desk.asked == []


FAULTS = [
    ("hold", {"reason": ""}, "Reason: is missing"),
    ("hold", {"reason": " "}, "Reason: is missing"),
    ("hold", {"reason": "x" * 501}, "Reason: must have at most 500 characters"),
    ("hold", {"reason": "a\nb"}, "Reason: must not hold line breaks"),
    ("hold", {"about": "stranger"}, "About: is not there, or not there any more"),
    ("hold", {"about": ""}, "About: is missing"),
    ("hold", {"seconds": "soon"}, "For how long: must be a number of seconds"),
    ("hold", {"seconds": "-1"}, "For how long: must be over 0"),
    ("hold", {"seconds": "nan"}, "For how long: must be over 0"),
    ("hold", {"seconds": "1e400"}, "For how long: must be over 0"),
    ("pause", {"about": "pool:other"}, "About: is not there"),
    ("run", {"task_set": "stranger"}, "Task set: the target has no task set of this name"),
    ("approve", {"about": "d-1"}, "About: is not there"),
    ("resume", {"about": "p-9"}, "About: is not there"),
    ("hold", {"surplus": "x"}, "The form cannot be read: there is no field 'surplus' here"),
]


@pytest.mark.parametrize(("call", "wrong", "said"), FAULTS)
async def test_a_fault_is_told_beside_the_form_and_what_was_written_stays(
    tmp_path: Path, call: str, wrong: dict[str, str], said: str
) -> None:
    place = Place(tmp_path)
    async with place.browser() as browser:
        await browser.log_in("otto")
        fields = {**filled(call, await form(browser, call)), **wrong}
        reply = await browser.post(f"/actions/{call}", fields)
    assert (reply.status_code, place.desk.asked) == (400, [])
    assert said in words(reply)
    assert 'role="alert"' in reply.text
    if "reason" not in wrong and "surplus" not in wrong:
        assert 'value="because"' in reply.text


async def test_what_is_no_form_is_refused(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.browser() as browser:
        await browser.log_in("otto")
        headers = {"Origin": browser.origin, "Accept": "text/html"}
        for options, status in (
            ({"json": {"reason": "x"}}, 415),
            ({"content": b"about=\xff", "headers": {"Content-Type": "application/x-www-form-urlencoded"}}, 400),
            ({"data": {f"f{i}": "x" for i in range(100)}}, 400),
            ({"data": {"reason": ["x", "y"]}}, 400),
            ({"data": {"reason": "x" * 70_000}}, 413),
        ):
            options["headers"] = {**headers, **options.get("headers", {})}  # type: ignore[dict-item]
            assert (await browser.asked.post("/actions/hold", **options)).status_code == status
    assert place.desk.asked == []


async def test_the_shared_token_asks_for_a_name_and_a_token_of_ones_own_does_not(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.browser() as browser:
        await browser.log_in("otto")
        assert 'name="author"' not in (await browser.get("/actions/hold?about=node-a")).text
        await browser.log_in("admin")
        csrf = await form(browser, "hold")
        reply = await browser.post("/actions/hold", filled("hold", csrf))
        assert (reply.status_code, "Your name: is missing" in words(reply)) == (400, True)
        sent = await confirmation(browser, "hold", author="ada")
        await browser.post("/actions/hold", sent)
    assert done(place.desk) == [("hold", Word("node-a", "ada", "because", 3600.0))]


SEEN = Foreseen(
    Action.ISOLATE,
    objections=("2 isolations within the last hour",),
    fallback=Fallback("baseline", healthy=True, waiting=2, kv_usage=0.25),
    told=("ada paused all: rollout",),
)


async def test_the_confirmation_shows_what_would_happen(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.desk.foreseen = SEEN
    async with place.browser() as browser:
        await browser.log_in("otto")
        csrf = await form(browser, "isolate")
        reply = await browser.post("/actions/isolate", filled("isolate", csrf))
    told = words(reply)
    pool = rich_board().pools[0]
    for part in (
        "Isolate: node-a?",
        "because",
        "By: otto",
        "1 hour",
        f"{pool.isolated} of {pool.targets} isolated now, {pool.allowed} may be; 0 left before this",
        "baseline healthy 2 requests waiting, KV cache 25.0 %",
        "2 isolations within the last hour",
        "ada paused all: rollout",
        "Isolate now",
    ):
        assert part in told


async def test_what_would_be_refused_has_no_button_but_to_insist_where_that_helps(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.desk.foreseen = Foreseen(Action.ISOLATE, refused="not isolated: the last backend", forcible=True)
    async with place.browser() as browser:
        await browser.log_in("otto")
        csrf = await form(browser, "isolate")
        reply = await browser.post("/actions/isolate", filled("isolate", csrf))
        assert (reply.status_code, 'name="confirmation"' in reply.text) == (409, False)
        assert "It would be refused now: not isolated: the last backend" in words(reply)
        assert "It is done all the same if you insist." in words(reply)
        assert hidden(reply, "force") == "yes"
        place.desk.foreseen = replace(place.desk.foreseen, refused=None)
        shown = await browser.post("/actions/isolate", filled("isolate", csrf, force="yes"))
        sent = {"csrf": csrf, "confirmation": hidden(shown, "confirmation")}
        await browser.post("/actions/isolate", sent)
    assert place.desk.asked[-2:] == [
        ("foresee", "isolate", "node-a", True),
        ("isolate", Word("node-a", "otto", "because", 3600.0, force=True)),
    ]


FORCED = Word("node-a", "otto", "because", 3600.0, force=True)


async def test_who_insists_is_asked_again_where_more_objects_than_was_shown(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.desk.foreseen = Foreseen(Action.ISOLATE, objections=("the cap",), brakes=frozenset({Brake.CAP}))
    async with place.browser() as browser:
        await browser.log_in("otto")
        sent = await confirmation(browser, "isolate", force="yes")
        both = frozenset({Brake.CAP, Brake.LAST_BACKEND})
        place.desk.foreseen = replace(place.desk.foreseen, objections=("the cap", "the last one"), brakes=both)
        anew = await browser.post("/actions/isolate", sent)
        assert (anew.status_code, done(place.desk)) == (409, [])
        for said in ("more objects now than when this was shown", "the last one", "because", "1 hour", "Isolate now"):
            assert said in words(anew)
        again = await browser.post("/actions/isolate", sent)
        assert (again.status_code, done(place.desk)) == (409, [])
        assert "it was shown anew" in words(again)
        place.desk.foreseen = replace(place.desk.foreseen, objections=("the last one, of 3",))
        reply = await browser.post("/actions/isolate", {**sent, "confirmation": hidden(anew, "confirmation")})
    assert (reply.status_code, done(place.desk)) == (200, [("isolate", FORCED)])


async def test_what_is_refused_by_now_is_not_offered_anew(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.browser() as browser:
        await browser.log_in("otto")
        sent = await confirmation(browser, "isolate", force="yes")
        place.desk.foreseen = Foreseen(Action.ISOLATE, refused="the wall", brakes=frozenset({Brake.LAST_BACKEND}))
        reply = await browser.post("/actions/isolate", sent)
    assert (reply.status_code, 'name="confirmation"' in reply.text, done(place.desk)) == (409, False, [])
    assert "It would be refused now: the wall" in words(reply)


async def test_what_needs_force_by_now_says_what_to_do_on_the_page(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.browser() as browser:
        await browser.log_in("otto")
        sent = await confirmation(browser, "isolate")
        place.desk.trouble = NeedsForce("not isolated: the last backend")
        reply = await browser.post("/actions/isolate", sent)
        assert reply.status_code == 409
        told = words(reply)
        assert "not isolated: the last backend It can be done all the same: open the form again and tick" in told
        assert "--force" not in told
        assert 'href="/actions/isolate?about=node-a"' in reply.text
        offered = await browser.get("/actions/isolate?about=node-a")
    assert f"{OWN['act.field.force'][0]}: {OWN['act.force'][0]}" in words(offered)


@pytest.mark.parametrize("trouble", [InputError("a brake objects now"), StoreError("the disk is full")])
async def test_what_cannot_be_done_after_all_is_told_and_not_tried_again(tmp_path: Path, trouble: Exception) -> None:
    place = Place(tmp_path)
    async with place.browser() as browser:
        await browser.log_in("otto")
        sent = await confirmation(browser, "isolate")
        place.desk.trouble = trouble
        for _ in range(2):
            reply = await browser.post("/actions/isolate", sent)
            assert reply.status_code == 409
            assert f"Nothing was done {trouble}" in words(reply)
    assert len(done(place.desk)) == 1


async def test_what_broke_off_is_told_as_that_and_not_tried_again(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.browser() as browser:
        await browser.log_in("otto")
        sent = await confirmation(browser, "isolate")
        place.desk.trouble = RuntimeError("a fault of ours")
        assert (await browser.post("/actions/isolate", sent)).status_code == 500
        reply = await browser.post("/actions/isolate", sent)
    assert (reply.status_code, len(done(place.desk))) == (409, 1)
    assert "It is not known whether this was done" in words(reply)
    assert "still under way" not in words(reply)


async def test_what_cannot_be_foreseen_is_not_offered(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.browser() as browser:
        await browser.log_in("otto")
        csrf = await form(browser, "hold")
        place.desk.trouble = InputError("quantwatch is still starting; try again in a moment")
        reply = await browser.post("/actions/hold", filled("hold", csrf))
    assert (reply.status_code, 'name="confirmation"' in reply.text) == (409, False)
    assert "still starting" in words(reply)


async def test_the_result_links_to_the_decision(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.browser() as browser:
        await browser.log_in("otto")
        reply = await browser.post("/actions/isolate", await confirmation(browser, "isolate"))
    assert 'href="/decisions/d-2"' in reply.text
    assert "the cap is overridden" in words(reply)


@pytest.mark.parametrize("language", ["en", "zh"])
@ACTIONS
async def test_what_is_ordered_alone_is_not_told_as_done(tmp_path: Path, call: str, language: str) -> None:
    place = Place(tmp_path)
    ordered = call in ("isolate", "release", "approve")  # the others gave no order here
    async with place.browser() as browser:
        await browser.log_in("otto")
        reply = await browser.post(f"/actions/{call}?lang={language}", await confirmation(browser, call))
    assert ('class="verdict plain"' in reply.text, 'class="verdict good"' in reply.text) == (ordered, not ordered)
    assert (OWN["act.ordered"][("en", "zh").index(language)] in words(reply)) is ordered
    assert "is kept out of traffic" not in words(reply)


EVIL = "a\"><script>alert(1)</script>&'"


async def test_names_and_reasons_from_outside_stay_text(tmp_path: Path) -> None:
    whole = board(target_board(EVIL, measured(EVIL)))
    place = Place(tmp_path, board=whole)
    place.desk.foreseen = Foreseen(Action.ISOLATE, objections=(EVIL,), fallback=Fallback(EVIL, healthy=False, why=EVIL))
    async with place.browser() as browser:
        await browser.log_in("admin")
        shown = await browser.asked.get("/actions/isolate", params={"about": EVIL})
        csrf = hidden(shown, "csrf")
        assert hidden(shown, "about") == EVIL
        fields = {"csrf": csrf, "about": EVIL, "reason": EVIL, "author": EVIL}
        reply = await browser.post("/actions/isolate", fields)
        last = await browser.post("/actions/isolate", {"csrf": csrf, "confirmation": hidden(reply, "confirmation")})
        wrong = await browser.post("/actions/isolate", {**fields, "seconds": "soon"})
    for one in (shown, reply, last, wrong):
        assert "<script>alert" not in one.text
        assert "script-src 'self';" in one.headers["content-security-policy"]


class _Labels(HTMLParser):
    """Fields of a page, and the labels that name them."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: list[str] = []
        self.named: list[str] = []
        self.inline: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("input", "select", "textarea") and given.get("type") != "hidden":
            self.fields.append(given.get("id") or "?")
        if tag == "label":
            self.named.append(given.get("for") or "?")
        self.inline += [name for name in given if name.startswith("on") or name == "style"]


@ACTIONS
@pytest.mark.parametrize("language", ["en", "zh"])
async def test_every_field_has_its_label_and_nothing_is_inline(tmp_path: Path, call: str, language: str) -> None:
    place = Place(tmp_path)
    async with place.browser() as browser:
        await browser.log_in("admin")
        for path in (f"/actions/{call}?about={about(call)}&lang={language}", f"/actions/{call}?lang={language}"):
            reply = await browser.get(path)
            read = _Labels()
            read.feed(reply.text)
            assert reply.status_code == 200
            assert "reason" in read.fields
            assert set(read.fields) <= set(read.named)
            assert read.inline == []
            assert OWN[f"act.does.{call}"][("en", "zh").index(language)] in unescape(reply.text)
        shown = await browser.post(
            f"/actions/{call}?lang={language}", filled(call, hidden(reply, "csrf"), author="ada")
        )
        assert OWN["act.confirm.once"][("en", "zh").index(language)] in shown.text


def test_every_action_has_its_words() -> None:
    for call in ABOUT:
        assert {f"act.{call}", f"act.does.{call}", f"act.done.{call}"} <= set(WORDS)


async def test_the_pages_offer_what_the_caller_may(tmp_path: Path) -> None:
    place = Place(tmp_path)
    links = re.compile(r'href="/actions/(\w+)')
    async with place.browser() as browser:
        for name, offered in (("", False), ("vera", False), ("otto", True), ("root", True)):
            if name:
                await browser.log_in(name)
            for path in ("/actions", "/nodes/node-a"):
                assert bool(links.findall((await browser.get(path)).text)) is offered
        assert set(links.findall((await browser.get("/")).text)) == {"resume", "approve", "reject"}
        found = set(links.findall((await browser.get("/actions")).text))
        assert found == set(ABOUT)
        nodes = [set(links.findall((await browser.get(f"/nodes/{one}")).text)) for one in ("node-a", "node-b")]
        assert nodes == [{"hold", "isolate", "confirm_healthy", "run", "pause"}, {"hold", "release", "pause"}]
        assert (await browser.get("/actions/reload")).status_code == 404
