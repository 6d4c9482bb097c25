"""`quantwatch watch`: pictures at two widths, what is told of a change, and the command at a socket and a terminal."""

import asyncio
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from quantwatch.cli.main import main
from quantwatch.cli.watch import Watching
from quantwatch.cli.watch_facts import differences, facts
from quantwatch.cli.watch_frame import Page, frame, worst_first
from quantwatch.cli.watch_marks import cell, room, share
from quantwatch.cli.watch_past import KEPT_VALUES, Past
from quantwatch.expose.as_json import board_json
from quantwatch.flow.board import BaselineBoard, Board, TargetBoard
from quantwatch.flow.decision import Action
from quantwatch.flow.pool import PoolStanding, PoolState
from quantwatch.flow.proposal import Proposal
from quantwatch.flow.state import Human, Pause, Routing
from quantwatch.flow.verdict import Metric, Quality
from support.boards import AT, board, isolated, measured, numbers, rich_board, starting, target_board
from support.builders import FakeClock
from support.stored import after, opened, run
from support.watched_board import WatchedBoard, watched_board

PATIENCE = 60.0
TOKEN = "t0ken"  # noqa: S105, of a listener that lives for a test


def later(seconds: float) -> datetime:
    return AT + timedelta(seconds=seconds)


def well(name: str = "node-a", task_set: str = "math", **given: Any) -> TargetBoard:
    """A target with numbers far inside the limits."""
    values = {"kl_mean": 0.001, "perplexity_ratio": 1.001, "top1_agreement": 0.99}
    return target_board(name, measured(name, task_set, numbers=numbers(**values)), **given)


def drawn(past: Past, width: int, *, height: int | None = None, top: int = 0, plain: bool = False) -> list[str]:
    """The lines of a picture as a recording console has them."""
    page = Page(width, height, "127.0.0.1:9470", 2.0, top=top, plain=plain)
    console = Console(width=width, record=True, file=open(os.devnull, "w"), highlight=False)  # noqa: SIM115
    for line in frame(past, page, now=later(60)):
        console.print(line)
    console.file.close()
    return console.export_text().splitlines()


def seen(*boards: Board) -> Past:
    """What has been seen after some boards, two seconds apart."""
    past = Past()
    for i, one in enumerate(boards):
        past.take(board_json(one), later(2 * i))
    return past


# The picture


@pytest.mark.parametrize("width", [80, 140])
def test_a_picture_holds_the_three_axes_the_reason_and_the_numbers(width: int) -> None:
    lines = drawn(seen(board(well()), rich_board()), width)
    whole = "\n".join(lines)

    assert max(map(len, lines)) <= width
    assert re.search(r"node-b +degraded +out +forced_out until \d\d:\d\d by ada", whole)
    assert "mean KL 0.2 is over 0.05" in whole
    assert "running: math, 2 more due" in whole
    assert re.search(r"math +KL 0\.05 .*PPL 0\.13 .*top-1 0\.17", whole)
    assert ("/0.05" in whole) == (width == 140)
    assert "1 of 2 out of traffic, at most 1" in whole
    assert "baseline: sound" in whole
    assert "paused pool:chat until resumed" in whole
    assert "waits for approval until" in whole
    assert re.search(r"\d\d:\d\d:\d\d  node-a: 50% of its weight", whole)


def test_the_worst_target_stands_first() -> None:
    near = target_board("near", measured("near", numbers=numbers(kl_mean=0.04, perplexity_ratio=1.0, top1_agreement=1)))
    held = well("held", human=Human.HELD, human_author="ada")
    targets = board_json(board(well("far"), near, held, isolated("away", quality=Quality.OK), isolated("bad")))[
        "targets"
    ]

    assert [one["target"] for one in worst_first(targets)] == ["bad", "away", "held", "near", "far"]


@pytest.mark.parametrize("height", [12, 16, 24, 50])
def test_a_picture_keeps_to_the_height_and_counts_what_it_leaves_out(height: int) -> None:
    past = seen(board(*(well(f"node-{i:02}") for i in range(30))))
    lines = drawn(past, 80, height=height)
    shown = sum(line.startswith("node-") for line in lines)
    left = next(int(found[1]) for line in lines if (found := re.match(r"\((\d+) more below", line)))

    assert len(lines) <= height
    assert shown + left == 30


def test_moving_down_shows_the_last_target_and_what_is_above() -> None:
    past = seen(board(*(well(f"node-{i:02}") for i in range(30))))
    lines = drawn(past, 80, height=16, top=29)

    assert "(29 above)" in lines
    assert any(line.startswith("node-29") for line in lines)
    assert not any("more below" in line for line in lines)


def test_a_long_name_has_a_line_of_its_own_and_a_long_reason_is_folded() -> None:
    target = well("n" * 200, reason="because " * 30)
    lines = drawn(seen(board(target)), 80, height=30)

    assert max(map(len, lines)) <= 80
    assert sum("because" in line for line in lines) == 3
    assert sum("because" in line for line in drawn(seen(board(target)), 80)) > 3


def test_what_a_server_says_cannot_steer_the_terminal() -> None:
    evil = "bad\x1b[2Jname\r\n"
    past = seen(board(well("a", reason=evil), well(evil)))
    past.miss(evil, later(3))

    assert "\x1b" not in "".join(drawn(past, 140))
    assert r"bad\x1b[2Jname" in "\n".join(drawn(past, 140))


def test_a_daemon_that_is_silent_is_told_above_what_was_seen_last() -> None:
    past = seen(board(well()))
    past.miss("cannot connect", later(10))
    lines = drawn(past, 80)

    assert re.match(r"NO DAEMON ANSWERS since \d\d:\d\d:\d\d, 50 s: cannot connect", lines[1])
    assert "below is what was seen last" in lines[2]
    assert any(line.startswith("node-a") for line in lines)


def test_before_the_first_answer_there_is_only_the_trouble() -> None:
    past = Past()
    assert drawn(past, 80)[0].startswith("quantwatch watch")
    past.miss("cannot connect", later(0))

    assert "NO DAEMON ANSWERS" in drawn(past, 80)[1]


def test_a_plain_terminal_gets_ascii() -> None:
    assert "".join(drawn(seen(board(well())), 140, plain=True)).isascii()


# Bars and past values


@pytest.mark.parametrize(
    ("metric", "value", "limit", "gone"),
    [
        (Metric.KL_MEAN, 0.025, 0.05, 0.5),
        (Metric.PERPLEXITY_RATIO, 1.01, 1.02, 0.5),
        (Metric.TOP1_AGREEMENT, 0.97, 0.94, 0.5),
        (Metric.TOP1_AGREEMENT, 0.9, 0.95, 2.0),
        (Metric.PERPLEXITY_RATIO, 0.99, 1.02, -0.5),
        (Metric.KL_MEAN, 0.0, 0.0, 0.0),
        (Metric.KL_MEAN, 0.1, 0.0, 1.0),
    ],
)
def test_a_bar_is_the_way_from_perfect_to_the_limit(metric: Metric, value: float, limit: float, gone: float) -> None:
    assert share(metric, value, limit) == pytest.approx(gone)


def cell_of(value: float | None, past: Sequence[float] = (), columns: int = 130, **limit: float | None) -> str:
    one = {"numbers": {"kl_mean": value}, "limits": {"kl_mean": limit} if limit else {}}
    return cell(one, Metric.KL_MEAN, past, room(columns, plain=False)).plain


def test_a_cell_draws_value_limit_bar_and_past() -> None:
    at = room(130, plain=False)
    text = cell_of(0.025, [0.0, 0.025, 0.05], warn=0.03, critical=0.05)

    assert text.startswith("KL 0.025    /0.05")
    assert "█" * (at.bar // 2) in text
    assert text.endswith(("▁▅█", "▁▄█"))


@pytest.mark.parametrize(
    "text",
    [
        cell_of(None, critical=0.05),
        cell_of(0.01),
        cell_of(9.0, [9.0], critical=0.05),
        cell_of(0.1, warn=0.2, critical=None),
    ],
)
def test_every_cell_of_a_row_is_equally_wide(text: str) -> None:
    assert len(text) == len(cell_of(0.025, [0.1] * 99, critical=0.05))


def test_a_narrow_row_has_no_room_for_bars() -> None:
    assert (room(40, plain=False).bar, room(40, plain=False).past) == (0, 0)


# What changes


def told(before: Board, after: Board) -> list[str]:
    return [said for said, _ in differences(facts(board_json(before), AT), facts(board_json(after), AT))]


PAUSE = Pause("p-1", "pool:chat", "rollout", "ada", AT, None)
WISH = Proposal("d-9", "node-a", "chat", Action.ISOLATE, "math is degraded", "r-1", AT, AT)
STORM = PoolStanding("chat", PoolState.STORM, since=AT, reason="2 of 3 members breach at once")


def _of(whole: Board, **changes: Any) -> Board:
    return replace(whole, pools=(replace(whole.pools[0], **changes),))


CHANGES: list[tuple[Board, str]] = [
    (board(well(quality=Quality.DEGRADED, reason="mean KL 0.2")), "node-a: degraded: mean KL 0.2"),
    (board(isolated("node-a", quality=Quality.OK)), "node-a: routing out by decision d-1, verified: yes"),
    (
        board(well(human=Human.HELD, human_author="ada", human_reason="fan")),
        "node-a: a person has said held until released, by ada: fan",
    ),
    (board(well(weight=50)), "node-a: 50% of its weight"),
    (board(well("node-b")), "node-a: no longer shown"),
    (board(target_board("node-a", measured(run="r-2"))), "math on node-a: ok (r-2)"),
    (board(well(), pauses=(PAUSE,)), "paused: pool:chat until resumed, by ada: rollout (p-1)"),
    (
        board(well(), pauses=(replace(PAUSE, scope="rollout:all"),)),
        "rollout expected: all until resumed, by ada: rollout (p-1)",
    ),
    (_of(board(well()), stands=STORM), "pool chat: storm; 2 of 3 members breach at once"),
    (_of(board(well()), isolated=1), "pool chat: 1 out of traffic, 1 allowed"),
    (_of(board(well()), missing=("node-a",)), "pool chat: by the gateway's own list no traffic goes to node-a"),
    (_of(board(well()), rungs=("int8",), rung="int8"), "pool chat: traffic on rung int8"),
    (board(well(), reload_ok=False), "the configuration on disk was refused; an older one runs"),
    (board(well(), gateway_trouble="502"), "gateway: 502"),
    (board(well(), unwritten=3), "runs wait for the store (3); nothing acts meanwhile"),
    (board(well(), store_trouble="disk full"), "not ready: the store cannot be written: disk full"),
    (board(well(), started=later(9)), "the daemon has been started"),
    (board(well(), config_digest="d"), "another configuration is in force"),
    (
        replace(board(well()), baseline=BaselineBoard(sound=False, trouble="it has moved")),
        "baseline: not sound, so nothing acts: it has moved",
    ),
    (replace(board(well()), baseline=BaselineBoard()), "baseline: not proven yet, so nothing acts"),
]


@pytest.mark.parametrize(("after", "said"), CHANGES, ids=[said for _, said in CHANGES])
def test_a_change_is_told_and_its_end_as_well(after: Board, said: str) -> None:
    calm = board(well())

    assert said in told(calm, after)
    assert told(after, calm) != []
    assert told(after, after) == []


def test_a_proposal_is_told_with_its_end() -> None:
    waiting = replace(board(well()), proposals=(WISH,))

    assert any(one.startswith("waits for approval until") for one in told(board(well()), waiting))
    assert told(waiting, board(well())) == ["waits no more: isolate node-a (d-9)"]


def test_probation_is_told_and_its_end() -> None:
    on = board(well(probation_until=later(99)))

    assert any("node-a: on probation until" in one for one in told(board(well()), on))
    assert told(on, board(well())) == ["node-a: probation is over"]


def test_of_a_first_board_only_what_is_not_as_usual_is_told() -> None:
    assert [one.said for one in Past().take(board_json(board(well())), AT)] == []
    assert any("node-b: degraded" in one.said for one in Past().take(board_json(board(isolated("node-b"))), AT))


def test_a_restart_is_told_once_and_its_empty_first_board_takes_nothing_away() -> None:
    past = seen(board(well()))
    assert [one.said for one in past.miss("cannot connect", later(4))] == ["no answer: cannot connect"]
    assert past.miss("cannot connect", later(6)) == []
    again = starting(Board(board(started=later(8)).own, BaselineBoard()))
    back = [one.said for one in past.take(board_json(again), later(10))]
    after = [one.said for one in past.take(board_json(board(well(), started=later(8))), later(12))]

    assert back[0] == "a daemon answers again, after 6 s"
    assert "the daemon has been started" in back
    assert not any("no longer shown" in one for one in [*back, *after])
    assert past.series("node-a", "math", Metric.KL_MEAN) == [0.001]


def test_a_daemon_that_is_still_starting_takes_nothing_of_what_is_remembered() -> None:
    past = Past()
    past.remember("node-a", "math", run="earlier", numbers={"kl_mean": 0.5})
    again = board_json(starting(Board(board().own, BaselineBoard())))
    past.take(again, later(0))
    past.take(again, later(2))
    past.take(board_json(board(well())), later(4))

    assert past.series("node-a", "math", Metric.KL_MEAN) == [0.5, 0.001]


def test_values_are_kept_once_a_run_and_not_for_ever() -> None:
    past = Past()
    for i in range(KEPT_VALUES + 5):
        values = numbers(kl_mean=float(i))
        whole = board(target_board("node-a", measured(success=later(i), numbers=values)))
        past.take(board_json(whole), later(i))
        past.take(board_json(whole), later(i))

    assert past.series("node-a", "math", Metric.KL_MEAN) == [float(i) for i in range(5, KEPT_VALUES + 5)]
    past.take(board_json(board(well("node-b"))), later(99))
    assert past.series("node-a", "math", Metric.KL_MEAN) == []


# The command


def test_once_prints_a_picture_and_ends_as_status_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with watched_board(tmp_path, token=TOKEN) as listener:
        assert main(["watch", "--config", str(listener.file), "--once"]) == 0
        assert "node-a" in capsys.readouterr().out
        listener.shown = board(isolated("node-b"))
        assert main(["watch", "--config", str(listener.file), "--once"]) == 1
        listener.shown = starting(board())
        assert main(["watch", "--config", str(listener.file), "--once"]) == 2
    capsys.readouterr()
    assert main(["watch", "--config", str(listener.file), "--once"]) == 2
    assert "NO DAEMON ANSWERS" in capsys.readouterr().out


def test_once_says_when_the_daemon_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with watched_board(tmp_path, token=TOKEN) as listener:
        file = listener.file
        (tmp_path / "token").write_text("other")
        assert main(["watch", "--config", str(file), "--once"]) == 2
    assert "admin_token" in " ".join(capsys.readouterr().out.split())


def test_a_configuration_that_is_not_there_is_a_fault_of_usage(tmp_path: Path) -> None:
    assert main(["watch", "--config", str(tmp_path / "none.yaml")]) == 3


def test_values_of_the_store_are_drawn_from_the_beginning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with opened(tmp_path) as store:
        for i in range(4):
            record = run(i, 0.01 * i)
            store.add_run(record, after(record))
    name, task_set = record.target, record.task_set
    with watched_board(tmp_path, shown=board(well(name, task_set))) as listener:
        assert main(["watch", "--config", str(listener.file), "--once", "--store", str(tmp_path / "q.db")]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith(f"  {task_set}"))
    assert len(re.findall("[▁▂▃▄▅▆▇█]+", row.partition("PPL")[0])[-1]) >= 4


async def test_a_picture_is_drawn_until_a_key_ends_it(tmp_path: Path) -> None:
    with watched_board(tmp_path, shown=board(*(well(f"node-{i}") for i in range(9)))) as listener:
        watching = Watching(listener.file, 0.2, FakeClock())
        await watching.look()
    for key, top in (("j", 1), ("j", 2), ("k", 1), (" ", 8), ("k", 7), ("x", 7)):
        watching.press(key)
        assert watching.top == top


@contextmanager
def command(listener: WatchedBoard, **given: Any) -> Iterator[subprocess.Popen[bytes]]:
    """The command as a process of its own; killed at the end if it lives then."""
    arguments = [sys.executable, "-m", "quantwatch", "watch", "--config", str(listener.file), "--interval", "0.2"]
    process = subprocess.Popen(arguments, stderr=subprocess.STDOUT, **given)  # noqa: S603, our own command
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE)
        if process.stdout is not None:
            process.stdout.close()


def reader(number: int) -> Callable[[str], str]:
    """Reads a file descriptor until a text comes; gives everything since the text before."""
    kept = ""

    def until(wanted: str) -> str:
        nonlocal kept
        late = time.monotonic() + PATIENCE
        while wanted not in kept:
            assert time.monotonic() < late, f"never {wanted!r} in {kept!r}"
            if select.select([number], [], [], 0.1)[0]:
                more = os.read(number, 65536).decode()
                assert more, f"ended without {wanted!r}: {kept!r}"
                kept += more
        found, _, kept = kept.partition(wanted)
        return found + wanted

    return until


def test_without_a_terminal_each_change_is_a_line_through_a_restart(tmp_path: Path) -> None:
    with watched_board(tmp_path, shown=board(well())) as listener, command(listener, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        until = reader(process.stdout.fileno())
        listener.stop()
        until("no answer: cannot connect")
        listener.start()
        until("a daemon answers again")
        listener.shown = board(isolated("node-a"), started=later(5))
        line = until("node-a: degraded: mean KL 0.2 is over 0.05\n").splitlines()[-1]
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} ", line)
        assert "\x1b" not in line
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0


def test_when_nobody_reads_any_more_it_ends(tmp_path: Path) -> None:
    bad = board(isolated("node-a"))
    with watched_board(tmp_path, shown=bad) as listener, command(listener, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        reader(process.stdout.fileno())("node-a")
        process.stdout.close()
        listener.shown = board(well("node-b"))
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("by", ["q", "signal"])
def test_on_a_terminal_it_draws_until_it_is_ended_and_leaves_the_terminal_as_it_was(tmp_path: Path, by: str) -> None:
    with watched_board(tmp_path, shown=board(well(), isolated("node-b"))) as listener:
        mine, its = pty.openpty()
        before = termios.tcgetattr(its)
        environment = os.environ | {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
        with command(listener, stdin=its, stdout=its, env=environment) as process:
            until = reader(mine)
            until("\x1b[?1049h")
            until("node-b")
            os.write(mine, b"j")
            until("(1 above)")
            listener.stop()
            until("NO DAEMON ANSWERS")
            if by == "q":
                os.write(mine, b"q")
            else:
                process.send_signal(signal.SIGINT)
            until("\x1b[?1049l")
            assert process.wait(PATIENCE) == 0
        assert termios.tcgetattr(its) == before
        os.close(mine)
        os.close(its)


def test_a_fault_of_ours_is_not_hidden_behind_a_standing_picture(tmp_path: Path) -> None:
    class Broken(FakeClock):
        async def sleep(self, seconds: float) -> None:  # noqa: ARG002, the name is the clock's
            raise ZeroDivisionError

    with watched_board(tmp_path) as listener:
        watching = Watching(listener.file, 0.2, Broken())
        console = Console(file=open(os.devnull, "w"), force_terminal=True, width=80, height=24)  # noqa: SIM115
        with pytest.raises(ZeroDivisionError):
            asyncio.run(watching.live(console))
        console.file.close()


def test_routing_values_are_the_words_shown() -> None:
    assert any("routing contradicted" in one for one in told(board(well()), board(well(routing=Routing.CONTRADICTED))))
