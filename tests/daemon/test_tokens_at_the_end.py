"""What waits when a daemon ends: tokens of a run that is written are written too."""

import asyncio
import contextlib
from pathlib import Path

from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.tokens import PromptSeen, PromptsShown, TokensSeen
from quantwatch.flows.keeper import Keeper
from quantwatch.flows.late_tokens import Late
from quantwatch.record.archive import Archive
from quantwatch.record.documents import StoredRun
from support.daemons import Site, inside, site
from support.runs import node
from support.served import served
from support.tiny_node import TinyNode

SEEN = TokensSeen((PromptSeen("letters-1", ProbeMode.PROMPT_SCORING, 2, 0.1, 0.1, ()),), 6)


def only_run(where: Site) -> StoredRun:
    with Archive.open(where.store) as archive:
        return archive.history(limit=None)[0]


async def cut_off(keeper: Keeper, run: str) -> None:
    """A turn that is cut off while its order goes on."""
    begun = asyncio.Event()

    async def turn() -> None:
        async with keeper.tokens.after(asyncio.Event().wait) as own:
            own.append(Late(run, SEEN, "t"))
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(turn())
    await begun.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_tokens_that_wait_are_written_before_a_daemon_ends(tmp_path: Path) -> None:
    with served(TinyNode()) as baseline, served(node()) as url:
        where = site(tmp_path, baseline, {"a": url}, expose={"prompts": "off"})
        async with inside(where) as daemon:
            assert daemon.desk.watch is not None
            await daemon.desk.run_now("a", None)
            await daemon.desk.watch.idle()
            await cut_off(daemon.desk.watch.keeper, only_run(where).id)
            assert daemon.desk.watch.keeper.tokens.waiting == 1

    with Archive.open(where.store) as archive:
        assert archive.tokens(only_run(where).id, shown=PromptsShown.IDS) is not None


async def test_tokens_that_can_no_longer_be_written_when_a_daemon_ends_are_counted_as_lost(tmp_path: Path) -> None:
    with served(TinyNode()) as baseline, served(node()) as url:
        where = site(tmp_path, baseline, {"a": url}, expose={"prompts": "off"})
        async with inside(where) as daemon:
            assert daemon.desk.watch is not None
            keeper = daemon.desk.watch.keeper
            await cut_off(keeper, "r-1")
            keeper.trouble = "the disk is full"
            where.store.unlink()  # so that no try at the end can succeed

        assert keeper.tokens.waiting == 0
        assert daemon.meters.registry.get_sample_value("quantwatch_store_lost_tokens_total") == 1
