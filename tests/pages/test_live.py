"""The page over a watch that measures, with the store that it writes."""

from pathlib import Path

import pytest

from quantwatch.daemon.desk import Desk
from quantwatch.expose.calls import Reloaded
from quantwatch.pages.words import frame, merged
from support.pages import Read, see, site
from support.watching import watching


async def reload() -> Reloaded:
    raise AssertionError("nobody asked for it")


async def test_a_run_that_has_ended_is_on_every_page(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        desk, board = Desk(reload, watch=bench.watch), bench.watch.board()
        target, task_set = board.targets[0].state.target, board.task_sets[0]
        assert await desk.run_now(target, None) > 0
        await bench.watch.idle()
        golden = desk.golden(task_set.name)
        assert golden is not None
        assert len(golden) == task_set.prompts
        shown = {}
        for path in ("/", f"/nodes/{target}", f"/sets/{task_set.name}"):
            made = site(bench.watch.board, bench.folder / "q.db", golden=golden, now=bench.clock.now())
            reply = await see(made, path)
            assert reply.status_code == 200
            shown[path] = Read.of(reply.text)
        (run,) = {link for link in shown[f"/nodes/{target}"].links() if link.startswith("/runs/")}
    assert run in shown[f"/sets/{task_set.name}"].links()
    assert f"/nodes/{target}" in shown["/"].links()
    assert golden[0].id in shown[f"/sets/{task_set.name}"].text


async def test_prompts_are_not_known_while_the_daemon_starts(tmp_path: Path) -> None:
    assert Desk(reload).golden("math") is None
    async with watching(tmp_path) as bench:
        assert Desk(reload, watch=bench.watch).golden("none") is None


def test_no_file_of_words_says_what_another_has_said() -> None:
    with pytest.raises(ValueError, match=r"frame says again: .*frame\.skip"):
        merged((frame, frame))
