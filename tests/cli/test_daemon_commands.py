"""`quantwatch status`, pause, resume, reload, accept-baseline: against a running daemon, and without one."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from quantwatch.cli.main import main
from quantwatch.cli.status import age, local, show_status
from quantwatch.expose.as_json import board_json
from quantwatch.flow.board import BaselineBoard, Board
from quantwatch.flow.pool import PoolStanding, PoolState
from quantwatch.flow.reference import ReferenceStanding, ReferenceState
from quantwatch.flow.state import Human, Pause, Routing
from quantwatch.flow.verdict import Quality
from support.boards import AT, board, isolated, measured, rich_board, starting, target_board
from support.daemons import Running, Site, site, started
from support.gateway import Gateway, served_gateway
from support.runs import node
from support.served import served
from support.tiny_node import TinyNode

TOKEN = "t0ken-value"  # noqa: S105, of a daemon that lives for a test
NOW = AT + timedelta(minutes=3)
STANDS = PoolStanding(
    "chat",
    PoolState.STORM,
    since=AT,
    until=AT + timedelta(minutes=30),
    reason="2 of 3 members breach at once (a, b), and nothing is proven",
)


@dataclass(slots=True)
class Daemons:
    """One daemon without a token and one with, over the same nodes: a is sound, b is damaged."""

    open: Running
    guarded: Running


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    with ExitStack() as stack:
        urls = [stack.enter_context(served(one)) for one in (TinyNode(), node(), node(1.5))]
        sites = []
        for name in ("open", "guarded"):
            where = site(tmp_path_factory.mktemp(name), urls[0], {"a": urls[1], "b": urls[2]})
            sites.append(where)
        sites[1].content["server"] |= {"admin_token": "env:QUANTWATCH_TEST_TOKEN"}
        both = [stack.enter_context(started(one.write(), QUANTWATCH_TEST_TOKEN=TOKEN)) for one in sites]
        yield Daemons(*(one.ready() for one in both))


def said(capsys: pytest.CaptureFixture[str], where: Site, *arguments: object, code: int = 0) -> str:
    """What a command says, standard output and error together, on one line."""
    command, *more = map(str, arguments)
    capsys.readouterr()
    assert main([command, "--config", str(where.file), *more]) == code
    out, err = capsys.readouterr()
    return " ".join((out + err).split())


def pauses(where: Site) -> list[dict[str, Any]]:
    """The pauses in force."""
    found: list[dict[str, Any]] = httpx.get(f"{where.admin}/api/v1/pauses").json()["pauses"]
    return found


def measure_now(daemon: Running, target: str) -> None:
    """Let a target run and wait for what came of it."""
    done = sum(f"letters on {target}" in one for one in daemon.events())
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    httpx.post(f"{daemon.site.admin}/api/v1/runs", json={"target": target}, headers=bearer).raise_for_status()
    daemon.until(f"letters on {target}", times=done + 1)


def test_status_before_any_run_cannot_tell_and_ends_with_2(
    daemons: Daemons, capsys: pytest.CaptureFixture[str]
) -> None:
    out = said(capsys, daemons.open.site, "status", code=2)

    assert "a chat unknown in - no task set has a fresh result letters: no run yet" in out
    assert "baseline: not checked yet" in out
    assert "pool chat: mode observe, 0 of 2 out of traffic" in out


def test_status_of_a_breach_ends_with_1_and_says_which_limit(
    daemons: Daemons, capsys: pytest.CaptureFixture[str]
) -> None:
    measure_now(daemons.open, "a")
    measure_now(daemons.open, "b")
    daemons.open.until("letters on b", times=2)

    out = said(capsys, daemons.open.site, "status", code=1)

    assert "a chat ok in - letters: all numbers are within their limits" in out
    assert "b chat degraded in - letters: breach 2 in a row: mean KL" in out
    assert "letters: degraded, breaches in a row: 2, last run" in out
    assert "baseline: sound, checked" in out


def test_status_as_json_is_the_whole_board(
    daemons: Daemons, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "status.json"
    capsys.readouterr()
    code = main(["status", "--config", str(daemons.open.site.file), "--json", "-"])
    out = json.loads(capsys.readouterr().out)
    shown = said(capsys, daemons.open.site, "status", "--json", file, code=code)

    assert code in (1, 2)
    assert {one["target"] for one in out["targets"]} == {"a", "b"}
    assert json.loads(file.read_text())["own"]["config_digest"] == out["own"]["config_digest"]
    assert "pool chat" in shown


def test_a_pause_is_shown_and_ended_by_the_command_that_it_names(
    daemons: Daemons, capsys: pytest.CaptureFixture[str]
) -> None:
    where = daemons.open.site
    told = said(capsys, where, "pause", "--reason", "rollout of v2", "--hours", 2, "--author", "ada")
    (pause,) = pauses(where)

    assert f"to end it: quantwatch resume --config {where.file} {pause['id']}" in told
    assert "by ada: rollout of v2" in said(capsys, where, "status", code=_code(where))
    assert said(capsys, where, "resume", pause["id"], "--author", "ada") == f"resumed: {pause['id']}"
    assert pauses(where) == []


def _code(where: Site) -> int:
    """What `status` ends with now."""
    qualities = {one["quality"] for one in httpx.get(f"{where.admin}/api/v1/status").json()["targets"]}
    return 1 if "degraded" in qualities else 2 if qualities != {"ok"} else 0


def test_a_pause_without_an_end_lasts_until_somebody_resumes_it(
    daemons: Daemons, capsys: pytest.CaptureFixture[str]
) -> None:
    where = daemons.open.site
    told = said(capsys, where, "pause", "--reason", "x", "--scope", "target:a")
    (pause,) = pauses(where)
    said(capsys, where, "resume", pause["id"])

    assert "paused target:a until somebody resumes it" in told
    assert (pause["scope"], pause["until"]) == ("target:a", None)
    assert pause["author"]


def test_a_pause_of_what_is_not_configured_is_refused(daemons: Daemons, capsys: pytest.CaptureFixture[str]) -> None:
    told = said(capsys, daemons.open.site, "pause", "--reason", "x", "--scope", "pool:chta", code=3)

    assert "must be all, pool:NAME or target:NAME, of a pool or target that is configured" in told
    assert pauses(daemons.open.site) == []


def test_resuming_what_is_not_paused_is_refused(daemons: Daemons, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no pause of this id" in said(capsys, daemons.open.site, "resume", "p-1 x", code=3)


def test_reload_shows_what_changed(daemons: Daemons, capsys: pytest.CaptureFixture[str]) -> None:
    where = daemons.open.site
    same = said(capsys, where, "reload")
    where.content["task_sets"]["letters"]["draw"] = 41
    changed = said(capsys, where.write(), "reload")

    assert same == "the configuration has been taken over; nothing in it has changed"
    assert changed == "the configuration has been taken over: task_sets.letters.draw: 40 -> 41"


def test_a_wrong_file_is_refused_and_the_commands_still_find_the_daemon(
    daemons: Daemons, capsys: pytest.CaptureFixture[str]
) -> None:
    where = daemons.open.site
    good = where.file.read_text()
    where.file.write_text(good.replace("scheme: int8", "scheme: int9"))
    refused = said(capsys, where, "reload", code=3)
    shown = said(capsys, where, "status", code=_code(where))
    where.file.write_text(good)

    assert "found 'int9'" in refused
    assert "the configuration on disk was refused; an older one runs" in shown
    assert "the configuration has been taken over" in said(capsys, where, "reload")


def test_accepting_the_baseline_says_what_came_of_it(daemons: Daemons, capsys: pytest.CaptureFixture[str]) -> None:
    measure_now(daemons.open, "a")
    told = said(capsys, daemons.open.site, "accept-baseline", "--reason", "new weights")

    assert told.startswith("accepted: ")
    assert "the baseline that the next runs meet gives new ones" in told
    assert daemons.open.until("baseline accepted as it is now")["reason"] == "new weights"


def test_what_is_not_isolated_cannot_be_released(daemons: Daemons, capsys: pytest.CaptureFixture[str]) -> None:
    told = said(capsys, daemons.open.site, "release", "b", "--reason", "x", code=3)

    assert "b is not isolated by quantwatch" in told


def test_with_the_right_token_every_command_works(
    daemons: Daemons, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUANTWATCH_TEST_TOKEN", TOKEN)
    where = daemons.guarded.site
    said(capsys, where, "status", code=2)
    told = said(capsys, where, "pause", "--reason", "x")
    said(capsys, where, "resume", told.rpartition(" ")[2])
    said(capsys, where, "reload")
    measure_now(daemons.guarded, "a")
    said(capsys, where, "accept-baseline", "--reason", "x")

    assert "resumed" in daemons.guarded.events()


@pytest.mark.parametrize(
    "command",
    [
        ("status",),
        ("pause", "--reason", "x"),
        ("resume", "p-1"),
        ("reload",),
        ("accept-baseline", "--reason", "x"),
        ("release", "b", "--reason", "x"),
    ],
)
def test_with_a_wrong_token_every_command_is_refused_with_a_hint(
    daemons: Daemons, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("QUANTWATCH_TEST_TOKEN", "an0ther-value")

    told = said(capsys, daemons.guarded.site, *command, code=3)

    assert "refused (HTTP 401): this listener needs the admin_token, or one of its tokens" in told
    assert "Is the token that was sent one of server.admin_token and server.tokens" in told
    assert "an0ther-value" not in told


def test_without_the_token_at_hand_its_place_is_named(
    daemons: Daemons, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("QUANTWATCH_TEST_TOKEN", raising=False)

    told = said(capsys, daemons.guarded.site, "status", code=3)

    assert told.startswith("no token can be read here, and QUANTWATCH_TOKEN_FILE names none: server.admin_token: ")
    assert told.endswith("the environment variable QUANTWATCH_TEST_TOKEN is not set or empty")


def test_without_a_daemon_the_address_and_its_key_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = site(tmp_path, "http://127.0.0.1:9", {"a": "http://127.0.0.1:10"})

    told = said(capsys, where, "status", code=3)

    address = where.content["server"]["admin_listen"]
    assert told.startswith(f"no daemon answers on {address} (server.admin_listen of {where.file}): cannot connect")
    assert "Is it running?" in told


@pytest.mark.parametrize("text", ["hello", "[1, 2]"])
def test_another_program_on_the_address_is_not_taken_for_quantwatch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    where = site(tmp_path, "http://127.0.0.1:9", {"a": "http://127.0.0.1:10"})
    with served(_Other(text)) as url:
        where.content["server"]["admin_listen"] = url.removeprefix("http://")
        told = said(capsys, where.write(), "status", code=3)

    assert "is not quantwatch: HTTP 200" in told


class _Other(TinyNode):
    """Another program, which answers every request with one text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/{path:path}", lambda _: PlainTextResponse(self.text))])


def test_a_file_without_a_section_server_means_the_default_address(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = site(tmp_path, "http://127.0.0.1:9", {"a": "http://127.0.0.1:10"})
    del where.content["server"]
    with socket.socket() as one:
        if one.connect_ex(("127.0.0.1", 9470)) == 0:
            pytest.skip("something listens on the default address")

    assert "no daemon answers on 127.0.0.1:9470" in said(capsys, where.write(), "status", code=3)


def test_a_fault_in_the_section_server_is_told_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = site(tmp_path, "http://127.0.0.1:9", {"a": "http://127.0.0.1:10"})
    where.content["server"]["admin_lisen"] = "127.0.0.1:1"
    line = next(i for i, one in enumerate(where.write().file.read_text().splitlines(), 1) if "admin_lisen" in one)

    told = said(capsys, where, "status", code=3)

    assert f"{where.file}:{line}: " in told
    assert "did you mean admin_listen?" in told


def shown(picture: Board, *, width: int = 80, now: datetime = NOW) -> str:
    """A board as a terminal of so many columns shows it."""
    console = Console(width=width, record=True, file=None, highlight=False, color_system=None)
    with console.capture() as caught:
        show_status(json.loads(json.dumps(board_json(picture))), console, now=now)
    return caught.get()


def test_a_terminal_of_80_columns_is_wide_enough() -> None:
    reason = "mean KL 0.2 is over 0.05 " * 12
    full = isolated("llama-8b-int8-rack-4-n17", pool="chat-and-completion", reason=reason)
    longer = target_board(
        "llama-3.1-8b-instruct-int8-node-17", quality=Quality.INCONCLUSIVE, routing=Routing.CONTRADICTED, since=AT
    )

    lines = shown(board(full, longer), now=AT + timedelta(days=40)).splitlines()

    assert max(map(len, lines)) <= 80
    assert lines[1].split()[:4] == ["llama-8b-int8-rack-4-n17", "chat-and-co…", "degraded", "out"]
    assert "llama-3.1-8b-instruct-int8-node-17" in lines
    assert [line.split()[0] for line in lines if "inconclusive" in line] == ["chat"]


def test_a_target_is_a_line_with_its_reason_below() -> None:
    lines = shown(board(target_board("node-a"), isolated("node-b"))).splitlines()

    assert lines[0].split() == ["target", "pool", "quality", "routing", "since"]
    assert lines[1].split() == ["node-a", "chat", "ok", "in", "-"]
    assert lines[2].strip() == "fine"
    assert lines[3].split()[:4] == ["node-b", "chat", "degraded", "out"]
    assert lines[4].strip() == "mean KL 0.2 is over 0.05"
    assert lines[5].strip() == "by decision d-1"


def test_a_ladder_shows_its_rung_and_who_has_not_all_of_its_weight() -> None:
    text = " ".join(shown(rich_board()).split())

    assert "pool chat: traffic on rung int8 of int8 -> baseline" in text
    assert "50% of its weight" in text
    assert "rung" not in shown(board())


def test_a_bad_set_tells_how_old_its_last_run_is_and_a_good_one_tells_nothing() -> None:
    sick = measured(task_set="code", quality=Quality.DEGRADED, breaches=3)
    old = measured(task_set="chat", fresh=False)
    text = shown(board(target_board("node-a", measured(), sick, old)))

    assert "code: degraded, breaches in a row: 3, last run 3 min ago, due every 10 min (r-1)" in " ".join(text.split())
    assert "chat: ok, last run 3 min ago, too old to count, due every 10 min" in text
    assert "math:" not in text


def test_a_person_s_word_is_shown() -> None:
    assert "a person has said: forced_in" in shown(board(target_board("node-a", human=Human.FORCED_IN)))


def test_everything_that_stands_in_the_way_is_shown() -> None:
    pause = Pause("p-7", "pool:chat", "rollout", "ada", AT, AT + timedelta(hours=2))
    picture = board(
        target_board("node-a"),
        pauses=(pause,),
        reload_ok=False,
        store_trouble="disk full",
        unwritten=4,
        open_intents=2,
        gateway_trouble="HTTP 503",
    )
    stormy = replace(
        picture,
        pools=(replace(picture.pools[0], storm=True, stands=STANDS),),
        baseline=BaselineBoard(sound=False, trouble="its answers have changed"),
    )
    text = " ".join(shown(stormy).split())

    for words in (
        "not ready: the store cannot be written: disk full",
        "the configuration on disk was refused; an older one runs, and the log says why",
        "runs that wait for the store: 4; nothing acts meanwhile",
        "gateway: HTTP 503",
        "orders to the gateway that are still open: 2",
        "baseline: not sound, so nothing acts: its answers have changed",
        "pool chat: mode enforce, 0 of 1 out of traffic, at most 1",
        f"pool chat: storm since {local(AT.isoformat(), NOW)}; {STANDS.reason}",
        f"it has calmed; its cooldown ends at {local((AT + timedelta(minutes=30)).isoformat(), NOW)}",
        "by ada: rollout (p-7)",
    ):
        assert words in text


def test_a_baseline_that_nothing_has_proven_yet_is_said_to_be_so() -> None:
    unproven = replace(board(), baseline=BaselineBoard(sound=None, checked=AT))

    assert "baseline: not proven by a clean run yet, so nothing acts" in " ".join(shown(unproven).split())


def test_enrolled_answers_are_shown_with_what_keeps_them_from_being_used() -> None:
    stored = ReferenceStanding("math", ReferenceState.STORED, made=AT)
    bad = ReferenceStanding("code", ReferenceState.MISSING, trouble="reference_missing: run `quantwatch enroll`")
    picture = board()
    text = " ".join(shown(replace(picture, baseline=BaselineBoard(references=(stored, bad), answers=False))).split())

    assert "reference of code: reference_missing: run `quantwatch enroll`" in text
    assert "references: enrolled answers for 1 task sets, the oldest made" in text
    assert "the baseline does not answer, and need not" in text
    assert "references:" not in shown(picture)


def test_an_expected_rollout_is_shown_as_such() -> None:
    pause = Pause("p-7", "rollout:pool:chat", "weights of May", "ada", AT, AT + timedelta(hours=2))
    text = " ".join(shown(board(pauses=(pause,))).split())

    assert "rollout expected: pool:chat until" in text
    assert "by ada: weights of May (p-7)" in text
    assert "paused" not in text


def test_a_daemon_that_starts_says_so() -> None:
    text = shown(starting(Board(rich_board().own, BaselineBoard())))

    assert text.startswith("not ready: the recorded state has not been read yet")
    assert "target" not in text


def test_names_from_outside_are_not_taken_for_markup() -> None:
    pause = Pause("p-7", "all", "[red]not red[/red]", "ada", AT, None)

    text = shown(board(target_board("node-a", reason="[bold]mean KL[/]"), pauses=(pause,)))

    assert "[bold]mean KL[/]" in text
    assert "[red]not red[/red]" in text


def test_a_return_is_shown_before_and_after_it() -> None:
    later = AT + timedelta(hours=2)
    out = target_board("node-a", routing=Routing.OUT, owner="d-9", ejections=3, hold_until=later)
    back = target_board("node-b", ejections=2, probation_until=later)

    text = shown(board(out, back), now=AT)

    assert f"stays out until {local(later.isoformat(), AT)} at least, isolation 3" in text
    assert f"on probation until {local(later.isoformat(), AT)}, isolated 2 times" in text


def test_targets_that_the_gateway_does_not_have_are_named() -> None:
    whole = board()

    def missing(*names: str) -> str:
        return shown(replace(whole, pools=tuple(replace(one, missing=names) for one in whole.pools)))

    assert "pool chat: by the gateway's own list no traffic goes to node-a, node-c" in missing("node-a", "node-c")
    assert "own list" not in missing()


def test_a_pause_without_an_end_is_shown_with_a_time_to_look_at_it_again() -> None:
    own = Pause("p-7", "all", "the store was corrupt", "quantwatch", AT, None)

    text = shown(board(target_board("node-a"), pauses=(own,)), now=AT, width=200)

    review = local((AT + timedelta(days=1)).isoformat(), AT)
    assert f"paused all until resumed (review {review}), by quantwatch: the store was corrupt" in text


def test_routing_states_are_shown_as_they_are() -> None:
    text = shown(board(target_board("node-a", routing=Routing.CONTRADICTED, owner="d-9")))

    assert "contradicted" in text
    assert "by decision d-9" in text


@pytest.mark.parametrize(
    ("before", "pattern"),
    [
        (timedelta(0), "%H:%M"),
        (timedelta(days=40), "{day} %b %H:%M"),
        (timedelta(days=400), "%Y-%m-%d"),
    ],
)
def test_a_time_is_as_short_as_it_can_be(before: timedelta, pattern: str) -> None:
    now = datetime(2026, 6, 15, 12, 0, tzinfo=UTC)
    there = (now - before).astimezone()

    assert local((now - before).isoformat(), now) == there.strftime(pattern.replace("{day}", str(there.day)))


def test_no_time_is_a_dash() -> None:
    assert local(None, NOW) == "-"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (-5, "0 s"), (119, "119 s"), (120, "2 min"), (3600, "1 h"), (5400, "90 min"), (4 * 86_400, "4 d")],
)
def test_an_age_has_its_largest_fitting_unit(seconds: float, words: str) -> None:
    assert age(seconds) == words


def test_a_target_that_left_while_it_was_out_is_released_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway = Gateway()
    with ExitStack() as stack:
        server = stack.enter_context(served_gateway(gateway))
        urls = [stack.enter_context(served(one)) for one in (TinyNode(), node(), node(1.5))]
        acting = {
            "pools": {"chat": {"mode": "enforce", "max_isolated": "50%", "fallback": "baseline"}},
            "gateway": {"driver": "webhook", "url": f"{server.url}/act", "state_url": f"{server.url}/state"},
        }
        where = site(tmp_path, urls[0], {"a": urls[1], "b": urls[2]}, **acting)
        daemon = stack.enter_context(started(where)).ready()
        measure_now(daemon, "a")
        measure_now(daemon, "b")
        daemon.until("isolate: verified")
        where.content["targets"].pop()
        said(capsys, where.write(), "reload")
        left = said(capsys, where, "status", code=2)

        told = said(capsys, where, "release", "b", "--reason", "sold", "--author", "ada")

        line = daemon.until("release: verified")
        assert told == f"release ordered: {line['decision_id']}"
        assert "its isolation stays until a person releases it" in left
        assert "b chat" not in said(capsys, where, "status")
    assert gateway.changes == [(urls[2], True), (urls[2], False)]
