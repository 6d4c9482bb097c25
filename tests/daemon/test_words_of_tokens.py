"""A daemon that may show words learns them by itself; one round that acts learns them before it ends."""

from pathlib import Path
from random import Random

from quantwatch.clock import SystemClock
from quantwatch.daemon.chores import LEARN_SECONDS
from quantwatch.daemon.once import Once
from quantwatch.flow.tokens import PromptsShown, TokensSeen
from quantwatch.record.archive import Archive
from support.daemons import Site, inside, site, until
from support.runs import node
from support.served import served
from support.tiny_node import TinyNode


class Hurried(SystemClock):
    """A clock on which it is soon time to look ids up again."""

    async def sleep(self, seconds: float) -> None:
        """Wait, or hardly."""
        await super().sleep(0.01 if seconds == LEARN_SECONDS else seconds)


def seen(where: Site) -> TokensSeen | None:
    """The tokens of the only run."""
    with Archive.open(where.store) as archive:
        found = archive.history(limit=None)
        return archive.tokens(found[0].id, shown=PromptsShown.FULL) if found else None


async def test_a_daemon_learns_words_beside_its_runs(tmp_path: Path) -> None:
    asked = TinyNode()
    with served(asked) as baseline, served(node()) as url:
        where = site(tmp_path, baseline, {"a": url}, expose={"prompts": "full"})
        async with inside(where, clock=Hurried()) as daemon:
            await daemon.desk.run_now("a", None)
            await until(lambda: asked.detokenized)
            await until(lambda: daemon.desk.watch is not None and daemon.desk.watch.generation.users == 0)

    found = seen(where)
    assert found is not None
    assert found.texts


async def test_one_round_learns_words_before_it_ends(tmp_path: Path) -> None:
    with served(TinyNode()) as baseline, served(node()) as url:
        where = site(tmp_path, baseline, {"a": url}, expose={"prompts": "full"})
        await Once(where.file, where.settings(), cache=where.cache, random=Random(3)).act()

    found = seen(where)
    assert found is not None
    assert found.texts
