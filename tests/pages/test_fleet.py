"""The page of the fleet: the verdict, the order of nodes, the list, and the part that is asked for again."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from quantwatch.flow.board import Board, TargetBoard
from quantwatch.flow.decision import PoolMode
from quantwatch.flow.pool import PoolStanding, PoolState
from quantwatch.flow.state import Human, Pause, Routing
from quantwatch.flow.verdict import Metric, Quality
from quantwatch.pages.done import done
from quantwatch.pages.fleet import Headline, counts
from quantwatch.pages.fleet import headline as told_of
from quantwatch.pages.rank import Against, fits, lead, ranked, worst_finding
from support.boards import AT, board, isolated, measured, numbers, own, rich_board, set_board, target_board
from support.pages import NOW, Read, see, site
from support.stored import opened, suppressed


def finding(value: float | None, verdict: str = "degraded", **given: Any) -> dict[str, Any]:
    held = {"metric": "kl_mean", "part": None, "warn": 0.01, "critical": 0.05}
    return {**held, "value": value, "verdict": verdict, "reason": "so", **given}


def sick(name: str, quality: Quality = Quality.DEGRADED, kl: float = 0.2, **given: Any) -> TargetBoard:
    """A node that breaches on math, and is well on code."""
    found = numbers(findings=[finding(kl)])
    bad = measured(name, quality=quality, last=quality, numbers=found, since=AT)
    return target_board(name, bad, measured(name, "code"), quality=quality, reason=f"math: KL {kl}", **given)


def of(quality: Quality, name: str = "n", **given: Any) -> TargetBoard:
    return target_board(name, set_board(name, quality=quality, last=quality), quality=quality, **given)


def headline(whole: Board) -> Headline:
    return told_of(whole, ranked(whole.targets))


STORM = PoolStanding("chat", PoolState.STORM, since=AT, reason="3 of 4 breach")
UNMEASURED = target_board("n", set_board("n", quality=Quality.UNKNOWN, at=None, run=None), quality=Quality.UNKNOWN)


@pytest.mark.parametrize(
    ("targets", "tone", "key"),
    [
        ([of(Quality.OK)], "good", "good"),
        ([of(Quality.OK), of(Quality.WARN)], "warn", "warn"),
        ([of(Quality.WARN), of(Quality.INVALID)], "warn", "unknown"),
        ([of(Quality.INCONCLUSIVE), isolated()], "warn", "out"),
        ([isolated(), sick("a")], "bad", "bad"),
        ([of(Quality.OK), sick("a", routing=Routing.LEAVING)], "bad", "bad"),
        ([isolated(), sick("a", routing=Routing.RETURNING)], "bad", "bad"),
        ([of(Quality.OK), of(Quality.WARN, routing=Routing.LEAVING)], "warn", "moving"),
        ([isolated(verified=False)], "bad", "contradicted"),
        ([of(Quality.OK, routing=Routing.CONTRADICTED)], "bad", "contradicted"),
        ([UNMEASURED], "dim", "first"),
    ],
)
def test_the_headline_is_the_worst_of_what_is(targets: Sequence[TargetBoard], tone: str, key: str) -> None:
    told = headline(board(*targets))
    assert (told.tone, told.key) == (tone, f"fleet.verdict.{key}")


def test_a_storm_and_a_bad_baseline_are_told() -> None:
    whole = board(of(Quality.INVALID))
    stormy = replace(whole, pools=(replace(whole.pools[0], storm=True, stands=STORM),))
    assert headline(stormy).key == "fleet.verdict.storm"
    drifted = replace(whole, baseline=replace(whole.baseline, sound=False))
    assert headline(drifted).key == "fleet.verdict.baseline"
    assert headline(replace(whole, targets=())).key == "fleet.verdict.empty"
    assert headline(replace(whole, targets=(), own=own(restored=False))).key == "fleet.verdict.starting"


def test_the_headline_names_three_and_counts_the_rest() -> None:
    told = headline(board(*(sick(f"n{i}", kl=0.1 + i) for i in range(5))))
    assert [one.state.target for one in told.named] == ["n4", "n3", "n2"]
    assert told.more == 2
    assert told.values["n"] == 5


def test_the_worst_stand_first() -> None:
    held = of(Quality.OK, "held", human=Human.HELD)
    nodes = [of(Quality.OK, "ok"), held, of(Quality.WARN, "warn"), of(Quality.UNKNOWN, "unknown")]
    nodes += [isolated("out"), isolated("unseen", verified=False), sick("mild", kl=0.06), sick("worst", kl=0.6)]
    nodes += [of(Quality.OK, "back", routing=Routing.RETURNING), of(Quality.OK, "also-ok")]
    order = ["worst", "mild", "unseen", "out", "back", "unknown", "held", "warn", "also-ok", "ok"]
    assert [one.state.target for one in ranked(nodes)] == order


def test_nodes_are_counted_and_narrowed() -> None:
    whole = board(of(Quality.OK), of(Quality.WARN), of(Quality.INVALID, human=Human.HELD), isolated(), sick("a"))
    assert counts(whole) == {"good": 1, "warn": 1, "bad": 2, "unknown": 1, "away": 1}
    held = {state: sum(fits(one, state) for one in whole.targets) for state in ("attention", "bad", "away", "spoken")}
    assert held == {"attention": 3, "bad": 2, "away": 1, "spoken": 1}
    assert [sum(fits(one, state) for one in whole.targets) for state in ("unknown", "warn", "ok", "")] == [1, 1, 1, 5]


def test_the_leading_set_is_the_worst_fresh_one() -> None:
    stale = measured("a", "old", quality=Quality.CORRUPTED, fresh=False)
    mild = measured("a", "mild", quality=Quality.DEGRADED, numbers=numbers(findings=[finding(0.06)]))
    heavy = measured("a", "heavy", quality=Quality.DEGRADED, numbers=numbers(findings=[finding(0.5)]))
    leading = lead(target_board("a", stale, mild, measured("a"), heavy))
    assert leading is not None
    assert leading.state.task_set == "heavy"
    assert lead(target_board("a", stale)) is None


def test_the_number_furthest_over_its_limit_is_named() -> None:
    top1 = finding(0.9, metric="top1_agreement", warn=0.96, critical=0.94)
    found = [finding(0.02, "warn"), top1, finding(0.1), finding(None), finding(0.001, "ok"), finding(9, critical=None)]
    told = worst_finding(measured(numbers=numbers(findings=found)))
    assert told == Against(Metric.KL_MEAN, 0.1, 0.05, "critical", None, 2.0)
    told = worst_finding(measured(numbers=numbers(findings=[top1])))
    assert told == Against(Metric.TOP1_AGREEMENT, 0.9, 0.94, "critical")
    assert worst_finding(set_board()) is None


PAUSE = Pause("p", "all", "work", "ada", AT, None)
SUSPECT = target_board("a", set_board("a", last=Quality.DEGRADED, breaches=1))


@pytest.mark.parametrize(
    ("target", "mode", "pausing", "key"),
    [
        (isolated(), PoolMode.ENFORCE, None, "isolated"),
        (isolated(owner=None), PoolMode.ENFORCE, None, "out"),
        (of(Quality.OK, routing=Routing.LEAVING), PoolMode.ENFORCE, None, "leaving"),
        (of(Quality.OK, routing=Routing.CONTRADICTED), PoolMode.ENFORCE, None, "contradicted"),
        (SUSPECT, PoolMode.ENFORCE, None, "confirming"),
        (SUSPECT, PoolMode.OBSERVE, None, "mode"),
        (sick("a"), PoolMode.DRY_RUN, None, "mode"),
        (sick("a"), PoolMode.DRY_RUN, PAUSE, "paused"),
        (sick("a", human=Human.FORCED_IN), PoolMode.ENFORCE, PAUSE, "human"),
        (sick("a"), PoolMode.ENFORCE, None, None),
        (of(Quality.OK), PoolMode.ENFORCE, PAUSE, None),
    ],
)
def test_what_was_done_or_why_nothing(
    target: TargetBoard, mode: PoolMode, pausing: Pause | None, key: str | None
) -> None:
    pool = replace(board().pools[0], mode=mode)
    told = done(target, pool, waiting=None, pausing=pausing)
    assert (None if told is None else told.key) == key


def test_a_proposal_that_waits_is_named() -> None:
    told = done(sick("node-a"), None, waiting=rich_board().proposals[0], pausing=None)
    assert told is not None
    assert (told.key, told.decision) == ("waits", "d-9")


async def fleet(whole: Board, tmp_path: Path, path: str = "/", **options: Any) -> Read:
    reply = await see(site(whole, tmp_path / "q.db"), path, **options)
    assert reply.status_code == 200
    return Read.of(reply.text)


async def test_the_page_answers_what_people_ask_at_night(tmp_path: Path) -> None:
    """Which node, which task set, since when, by how much against which limit, what was done."""
    since = NOW - timedelta(hours=2)
    one = isolated(
        "node-b", measured("node-b", quality=Quality.DEGRADED, since=since, numbers=numbers(findings=[finding(0.2)]))
    )
    page = await fleet(board(replace(one, reason="math: mean KL 0.2 is over 0.05")), tmp_path)
    for said in ("node-b", "math: mean KL 0.2 is over 0.05", "2026-01-02 22:00 UTC (2 h ago)"):
        assert said in page.text
    assert "Mean KL 0.200, limit 0.0500 (critical); 4.0 times its limit" in page.text
    assert "Isolated by d-1 , seen at the gateway" in page.text
    assert {"/nodes/node-b", "/decisions/d-1"} <= set(page.links())


@pytest.mark.parametrize(("language", "said"), [("en", "not settled yet"), ("zh", "尚未完成")])
async def test_an_order_that_is_not_settled_is_not_told_as_done(tmp_path: Path, language: str, said: str) -> None:
    one = sick("a", routing=Routing.LEAVING)
    page = await fleet(board(of(Quality.OK), one), tmp_path, f"/?lang={language}")
    assert page.text.count(said) == 3  # beside the headline, and in the list as its routing and what was done
    assert "Isolated by" not in page.text


async def test_everything_else_on_the_board_is_shown(tmp_path: Path) -> None:
    whole = rich_board()
    trouble = replace(whole.own, gateway_trouble="it says 401", reload_ok=False, unwritten=4, open_intents=2)
    pool = replace(whole.pools[0], storm=True, stands=STORM)
    page = await fleet(replace(whole, own=trouble, pools=(pool,)), tmp_path)
    for said in (
        "it says 401",
        "cannot be used",
        "4 runs wait for the store",
        "2 orders not settled",
        "3 notices wait",
    ):
        assert said in page.text
    for said in ("3 of 4 breach", "Paused: pool:chat, by ada: rollout", "isolate node-a: math is degraded", "the cap"):
        assert said in page.text
    for said in ("no traffic goes to: node-a", "Traffic on rung int8 of int8, baseline", "50 % of its weight", "smoke"):
        assert said in page.text
    assert "/decisions/d-9" in page.links()


async def test_a_brake_is_named_beside_the_node_that_it_spares(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.decide(suppressed())
    shown = board(replace(sick("int8-a"), reason="over"))
    page = await fleet(shown, tmp_path)
    assert "Not isolated. Too many would be away: 1 of 2 is isolated already, and 1 is allowed d-2" in page.text
    missing = Read.of((await see(site(shown, tmp_path / "none.db"), "/")).text)
    assert "Not isolated" not in missing.text  # and the page is there all the same


def many(count: int = 1000) -> Board:
    nodes = [
        of(Quality.WARN if i % 10 == 0 else Quality.OK, f"node-{i:04d}", pool=f"pool-{i % 2}") for i in range(count)
    ]
    whole = board(*nodes)
    return replace(whole, pools=tuple(replace(whole.pools[0], name=f"pool-{i}") for i in range(2)))


def rows(page: Read) -> list[str]:
    return [link.removeprefix("/nodes/") for link in page.links() if link.startswith("/nodes/")]


async def test_a_thousand_nodes_come_page_by_page(tmp_path: Path) -> None:
    whole = many()
    first = await fleet(replace(whole, targets=whole.targets), tmp_path)
    listed = rows(first)[3:]  # the verdict names three
    assert len(listed) == 50
    assert listed[:2] == ["node-0000", "node-0010"]
    assert "1 to 50 of 1000" in first.text
    assert "/?page=2#nodes" in first.links()
    last = await fleet(whole, tmp_path, "/?page=999")
    assert "951 to 1000 of 1000" in last.text
    assert "/?page=19#nodes" in last.links()
    assert rows(await fleet(whole, tmp_path, "/?page=x")) == rows(first)


async def test_the_list_is_narrowed_on_the_server(tmp_path: Path) -> None:
    whole = many()
    found = await fleet(whole, tmp_path, "/?q=NODE-001&pool=pool-0&state=ok")
    assert rows(found)[3:] == ["node-0012", "node-0014", "node-0016", "node-0018"]
    assert next(one for one in found.named("input")).attributes["value"] == "NODE-001"
    assert [one.attributes["value"] for one in found.named("option") if "selected" in one.attributes] == [
        "pool-0",
        "ok",
    ]
    assert "No node fits this filter." in (await fleet(whole, tmp_path, "/?q=nothing")).text
    assert "1 to 50 of 1000" in (await fleet(whole, tmp_path, "/?state=%3Cscript%3E")).text


async def test_the_part_is_sent_only_when_something_moved(tmp_path: Path) -> None:
    first = await see(site(rich_board(), tmp_path / "q.db"), "/?part=fleet&q=node")
    version = first.headers["x-version"]
    assert "<html" not in first.text
    later = site(rich_board(), tmp_path / "q.db", now=NOW + timedelta(hours=5))
    same = await see(later, "/?part=fleet&q=node", headers={"X-Seen": version})
    assert (same.status_code, same.content) == (204, b"")
    other = await see(site(board(), tmp_path / "q.db"), "/?part=fleet&q=node", headers={"X-Seen": version})
    assert other.status_code == 200
    assert other.headers["x-version"] != version


async def test_the_part_asks_again_for_what_the_page_shows(tmp_path: Path) -> None:
    page = await fleet(many(), tmp_path, "/?q=node&page=2&lang=zh")
    (part,) = [one for one in page.tags if "hx-get" in one.attributes]
    assert part.attributes["hx-get"] == "/?q=node&page=2&part=fleet"
    assert part.attributes["hx-trigger"] == "every 10s"


class _Swapped(Read):
    """A page whose fields are told apart by whether they stand in a part that is asked for again."""

    depth: int | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("input", "select", "form") and self.depth is not None:
            self.wrong.append(f"{tag} in a part that is replaced")
        if "data-again" in dict(attrs):
            self.depth = len(self.open)
        super().handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        super().handle_endtag(tag)
        if self.depth is not None and len(self.open) <= self.depth:
            self.depth = None


async def test_who_types_into_the_filter_keeps_no_old_verdict(tmp_path: Path) -> None:
    """The filter stands outside of what is replaced; the verdict and the list come in one answer without it."""
    whole = await see(site(many(), tmp_path / "q.db"), "/?q=node")
    read = _Swapped.of(whole.text)
    assert (read.wrong, len(read.named("form")), len(read.named("input"))) == ([], 1, 1)
    part = Read.of((await see(site(many(), tmp_path / "q.db"), "/?part=fleet&q=node")).text)
    assert (part.named("form"), part.named("input"), part.wrong) == ([], [], [])
    (listed,) = [one.attributes for one in part.tags if "hx-swap-oob" in one.attributes]
    assert listed == {"id": "listed", "hx-swap-oob": "innerHTML"}
    assert [one for one in read.tags if one.attributes.get("id") == "listed"] != []
    assert [one for one in part.tags if one.attributes.get("id") == "verdict"] != []
    assert rows(part) == rows(read)


async def test_a_new_verdict_has_a_place_to_be_spoken(tmp_path: Path) -> None:
    """The place stays while the part is replaced, and only it is announced."""
    page = await fleet(rich_board(), tmp_path)
    roles = [one.attributes.get("id") for one in page.tags if one.attributes.get("role") in ("status", "alert")]
    assert roles == ["cut", "spoken"]
    assert 'id="spoken"' not in (await see(site(rich_board(), tmp_path / "q.db"), "/?part=1")).text
    assert [one for one in page.tags if "aria-live" in one.attributes] == []


async def test_ids_in_a_page_are_its_own_and_only_once(tmp_path: Path) -> None:
    page = await fleet(many(60), tmp_path)
    ids = [one.attributes["id"] for one in page.tags if "id" in one.attributes]
    assert len(ids) == len(set(ids))


async def test_a_phone_finds_the_name_of_every_cell(tmp_path: Path) -> None:
    page = await fleet(rich_board(), tmp_path)
    assert [one for one in page.named("td") if not one.attributes.get("data-label")] == []


async def test_in_chinese_only_the_daemons_own_sentences_are_marked_as_english(tmp_path: Path) -> None:
    ours = replace(PAUSE, id="p-2", author="quantwatch", reason="three orders came to nothing")
    whole = board(pauses=(PAUSE, ours), store_trouble="the disk is full")
    page = (await see(site(whole, tmp_path / "q.db"), "/?lang=zh")).text
    for said in (ours.reason, "the disk is full"):
        assert f'<span lang="en">{said}</span>' in page
    assert f"由 {PAUSE.author}：{PAUSE.reason}" in page
    english = (await see(site(whole, tmp_path / "q.db"), "/?lang=en")).text
    assert "The store cannot be written: the disk is full" in english
    assert '<span lang="en">' not in english
