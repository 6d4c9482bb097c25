"""The frame around every page: headers, assets, and pages that tell of trouble."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from quantwatch.flow.board import Board
from quantwatch.flow.prompt import LengthBucket, Prompt
from quantwatch.flow.state import Human, Pause, Routing
from quantwatch.flow.verdict import Quality
from quantwatch.pages.app import LivePage
from quantwatch.pages.asset import FOLDER
from quantwatch.pages.site import Site
from quantwatch.pages.templating import segment
from support.asking import ask
from support.boards import AT, board, isolated, measured, numbers, rich_board, starting, target_board
from support.pages import Read, app, plain_app, see, site
from support.stored import after, opened, run

PATHS = ["/", "/?part=fleet", "/nodes/node-b", "/nodes/node-b?part=now", "/nodes/node-b?part=record", "/sets"]
PATHS += ["/sets/math", "/nodes/nobody", "/nowhere", "/?lang=zh", "/nodes/node-a?lang=zh", "/sets/math?lang=zh"]

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'`{{7*7}}&amp;"


def hostile_board() -> Board:
    """Names, reasons and ids from outside that try to be HTML, and are 200 characters long."""
    name, long = HOSTILE + "n" * (200 - len(HOSTILE)), "s" * 200
    finding = {"metric": "kl_mean", "part": HOSTILE, "value": 0.2, "warn": 0.01, "critical": 0.05}
    found = numbers(findings=[{**finding, "verdict": "degraded", "reason": HOSTILE}])
    said = {"human": Human.HELD, "human_author": HOSTILE, "human_reason": HOSTILE}
    state = {"routing": Routing.OUT, "owner": HOSTILE, "pool": HOSTILE, "scheme": HOSTILE, "gateway_name": HOSTILE}
    bad = {"quality": Quality.DEGRADED, "last": Quality.DEGRADED, "reason": HOSTILE, "run": HOSTILE}
    sick = isolated(
        name,
        measured(name, HOSTILE, numbers=found, **bad),
        measured(name, long),
        **{**said, **state, "reason": HOSTILE},
    )
    pauses = (Pause(HOSTILE, HOSTILE, HOSTILE, HOSTILE, AT, None),)
    shown = board(sick, target_board(long), pauses=pauses, gateway_trouble=HOSTILE, store_trouble=HOSTILE)
    task_set = replace(shown.task_sets[0], name=HOSTILE, digest=HOSTILE)
    pool = replace(shown.pools[0], name=HOSTILE, missing=(HOSTILE,), rungs=(HOSTILE,), rung=HOSTILE)
    baseline = replace(shown.baseline, trouble=HOSTILE)
    proposal = replace(rich_board().proposals[0], reason=HOSTILE, objections=HOSTILE, target=name, decision=HOSTILE)
    return replace(shown, task_sets=(task_set,), pools=(pool,), baseline=baseline, proposals=(proposal,))


@pytest.mark.parametrize("path", PATHS)
async def test_every_page_is_well_formed_and_runs_nothing_of_its_own(path: str, tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.add_run(run(1, target="node-b"), after(run(1, target="node-b")))
    reply = await see(site(rich_board(), tmp_path / "q.db"), path)
    page = Read.of(reply.text)
    assert page.wrong == []
    policy = dict(part.strip().split(" ", 1) for part in reply.headers["content-security-policy"].split(";"))
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' data:",
        "connect-src": "'self'",
        "form-action": "'self'",
        "base-uri": "'none'",
        "frame-ancestors": "'none'",
    }
    assert reply.headers["cache-control"] == "no-store"
    assert inline(page) == []


def inline(page: Read) -> list[str]:
    """Script and style inside of a page, and addresses that lead elsewhere."""
    found = [
        one.name for one in page.tags if one.name == "style" or (one.name == "script" and "src" not in one.attributes)
    ]
    for tag in page.tags:
        found += [name for name in tag.attributes if name == "style" or name.startswith("on") or name == "hx-on"]
        for name in ("href", "src", "action", "hx-get", "data-source"):
            value = tag.attributes.get(name)
            if value is not None and not (value.startswith(("/", "#")) and not value.startswith("//")):
                found.append(value)
    return found


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("which", ["fleet", "part", "node", "long", "sets", "set"])
async def test_what_comes_from_outside_stays_text(which: str, lang: str, tmp_path: Path) -> None:
    whole = hostile_board()
    name = segment(whole.targets[0].state.target)
    paths = {"fleet": "/?", "part": "/?part=1&", "node": f"/nodes/{name}?", "long": f"/nodes/{'s' * 200}?"}
    paths |= {"sets": "/sets?", "set": f"/sets/{segment(HOSTILE)}?"}
    prompt = Prompt(HOSTILE, HOSTILE, LengthBucket.SHORT, (HOSTILE,), text=HOSTILE)
    reply = await see(
        site(whole, tmp_path / "none.db", prompts="full", golden=[prompt]), paths[which] + f"lang={lang}&q={name}"
    )
    page = Read.of(reply.text)
    assert reply.status_code == 200
    assert page.wrong == []
    assert inline(page) == []
    assert "49" not in page.text  # no template in a template
    assert {"img", "script"} & {one.name for one in page.tags} <= {"script"}
    assert which == "long" or HOSTILE in " ".join(page.words)


async def test_assets_are_kept_for_good_by_their_version(tmp_path: Path) -> None:
    shown = site(board(), tmp_path / "none.db")
    address = shown.assets.address("page.css")
    reply = await see(shown, address)
    assert reply.headers["content-type"] == "text/css; charset=utf-8"
    assert "immutable" in reply.headers["cache-control"]
    assert reply.content == (FOLDER / "page.css").read_bytes()
    assert (await see(shown, "/assets/page.css?v=old")).headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("name", ["none.css", "../app.py", "..%2fapp.py", "%2e%2e/site.py", ""])
async def test_nothing_but_assets_is_served(name: str, tmp_path: Path) -> None:
    assert (await see(site(board(), tmp_path / "none.db"), f"/assets/{name}")).status_code == 404


def test_licences_lie_beside_what_others_wrote() -> None:
    for name in ("htmx", "uPlot"):
        assert (FOLDER / f"{name}.LICENSE.txt").read_text(encoding="utf-8").strip()


async def test_a_program_is_told_of_errors_in_json(tmp_path: Path) -> None:
    shown = site(board(), tmp_path / "none.db")
    for path in ("/api/v1/nothing", "/-/nothing"):
        reply = await see(shown, path)
        assert (reply.status_code, reply.headers["content-type"]) == (404, "application/json")
    assert (await see(shown, "/api/v1/status", method="DELETE")).status_code == 405


@pytest.mark.parametrize("slashes", ["//", "///", "/\\", "//\\/"])
async def test_no_link_leads_to_the_host_that_a_path_names(tmp_path: Path, slashes: str) -> None:
    """As a client sends it; what tests ask with elsewhere would take it for a host itself."""
    path, sent = f"{slashes}evil.example/x", list[dict[str, Any]]()
    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"a=1"}
    scope |= {"headers": [(b"host", b"127.0.0.1:9470"), (b"accept", b"text/html")], "client": ("127.0.0.1", 1)}
    made = site(rich_board(), tmp_path / "q.db")

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    try:
        await app(made)({**scope, "server": ("127.0.0.1", 9470), "scheme": "http"}, receive, send)
    finally:
        await made.reading.close()
    read = Read.of(b"".join(one.get("body", b"") for one in sent).decode())
    assert "/evil.example/x?a=1&lang=zh" in read.links()
    assert [one for one in read.links() if one.startswith(("//", "/\\"))] == []


async def test_a_page_that_is_not_there_says_so(tmp_path: Path) -> None:
    reply = await see(site(board(), tmp_path / "none.db"), "/nowhere?lang=zh")
    assert reply.status_code == 404
    assert "此处没有内容" in reply.text


class Broken(LivePage):
    """A live page with a page that fails, and one that reads from no store."""

    def __init__(self, made: Site) -> None:
        super().__init__(made)

        async def fail(_: Request) -> Response:
            raise ZeroDivisionError

        async def read(_: Request) -> Response:
            return Response(str(await made.reading(lambda archive: archive.history())))

        async def run(_: Request) -> Response:
            return Response(str(await made.reading(lambda archive: archive.run("r-9"))))

        self.routes = [Route("/fail", fail), Route("/read", read), Route("/run", run)]


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/fail", 500, "quantwatch is in trouble itself"),
        ("/read", 503, "The record cannot be read"),
        ("/run", 503, "none.db"),
    ],
)
async def test_trouble_has_a_page(path: str, status: int, words: str, tmp_path: Path) -> None:
    made = site(board(), tmp_path / "none.db")
    reply = await ask(app(made, Broken(made)), path)
    assert reply.status_code == status
    page = Read.of(reply.text)
    assert words in page.text
    assert page.wrong == []
    assert "ZeroDivisionError" not in page.text


async def test_an_id_that_is_not_on_record_is_a_page_that_is_not_there(tmp_path: Path) -> None:
    opened(tmp_path).close()
    made = site(board(), tmp_path / "q.db")
    reply = await ask(app(made, Broken(made)), "/run")
    await made.reading.close()
    assert reply.status_code == 404
    assert "no run or decision r-9" in Read.of(reply.text).text


async def test_in_chinese_what_went_wrong_is_marked_as_english(tmp_path: Path) -> None:
    made = site(board(), tmp_path / "none.db")
    reply = await ask(app(made, Broken(made)), "/run?lang=zh")
    assert '<p class="detail"><span lang="en">' in reply.text


async def test_without_pages_the_static_one_stands(tmp_path: Path) -> None:
    made = site(board(), tmp_path / "none.db")
    reply = await ask(plain_app(made), "/")
    assert "node-a" in reply.text
    assert "script" not in reply.text


async def test_while_starting_the_page_says_so(tmp_path: Path) -> None:
    empty = Board(starting(board()).own, board().baseline)
    page = Read.of((await see(site(empty, tmp_path / "none.db"), "/")).text)
    assert "quantwatch is starting" in page.text
    assert page.named("table") == []
    assert "No golden set is known yet" in Read.of((await see(site(empty, tmp_path / "none.db"), "/sets")).text).text
