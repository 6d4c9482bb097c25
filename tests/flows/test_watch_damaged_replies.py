"""Whatever a node sends, in enforce mode: it is isolated for broken numbers seen twice, or not at all.

Only damage that no healthy server could have meant is done here. A reply whose digits say other valid numbers is a
measurement, and what it leads to is tested elsewhere. QUANTWATCH_FUZZ=watch:3 runs one watch alone.
"""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import httpx

from quantwatch.flow.decision import Action, Lane
from quantwatch.flow.state import Routing
from quantwatch.flow.verdict import Quality
from support.mangle import MALFORMED, Mangle, broken_value, mangled
from support.watching import Bench, settings, watching
from support.wellformed import shows_broken_numbers

WATCHES = 10
ROUNDS = 24
BROKEN = 3
"""Each so manyth watch also sees values that only broken numbers explain."""

ALONE = os.environ.get("QUANTWATCH_FUZZ", "watch:").removeprefix("watch:")


class Damaged(httpx.AsyncBaseTransport):
    """A node whose replies are damaged on their way. share: of the replies of these paths, once it is above 0."""

    def __init__(self, node: httpx.AsyncBaseTransport, rng: Random, ways: Sequence[Mangle]) -> None:
        self._node = node
        self._rng = rng
        self._ways = ways
        self.share = 0.0
        self.paths: tuple[str, ...] = ()
        self.signs = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass the request on, and the reply back as it may be now."""
        reply = await self._node.handle_async_request(request)
        if self._rng.random() >= self.share or not request.url.path.endswith(self.paths):
            return reply
        body = mangled(await reply.aread(), self._rng, self._ways)
        self.signs += shows_broken_numbers(body)
        return httpx.Response(reply.status_code, content=body, request=request)


async def damaged_rounds(bench: Bench, wire: Damaged, rng: Random) -> Counter[str]:
    """Rounds until the node is isolated, or all of them; gives how often each quality was found."""
    found = Counter[str]()
    for number in range(ROUNDS):
        wire.share, wire.signs = rng.choice([1.0, 1.0, 0.5, 0.1]), 0
        wire.paths = rng.choice([("",), ("/completions",), ("/completions",), ("/completions", "/metrics")])
        before = len(bench.runs("a"))
        await bench.rounds(1, "a")
        if number % 2 == 0:
            await bench.round("b")  # a pool needs a second backend that is known to be sound, or nothing is isolated
        found += Counter(run.quality.value for run in bench.runs("a")[before:])
        if bench.routing() is not Routing.IN:
            justify(bench, wire)
            found["isolated"] += 1
            break
    assert found["degraded"] == 0, "damage is never a bad quality"
    return found


def justify(bench: Bench, wire: Damaged) -> None:
    """The node went out because broken numbers were sent twice in this round."""
    (made,) = [one for one in bench.decisions("a") if one.action is Action.ISOLATE and one.intent is not None]
    assert made.lane == Lane.CORRUPTED
    evidence = next(run for run in bench.runs("a") if run.id == made.run)
    assert evidence.quality is Quality.CORRUPTED
    assert evidence.reason.endswith("(seen twice)")
    assert wire.signs >= 2


async def test_damaged_replies_isolate_nobody_but_for_broken_numbers_seen_twice(tmp_path: Path) -> None:
    found = Counter[str]()
    for number in [int(ALONE)] if ALONE else range(WATCHES):
        rng, folder = Random(f"watch:{number}"), tmp_path / str(number)
        folder.mkdir()
        try:
            async with watching(folder, settings("a", "b", task_set={"draw": 5})) as bench:
                await bench.rounds(1)
                ways = (*MALFORMED, *[broken_value] * 10) if number % BROKEN == 0 else MALFORMED
                wire = Damaged(bench.wire.host("a"), rng, ways)
                bench.wire.put("a", wire)
                found += await damaged_rounds(bench, wire, rng)
        except BaseException as exc:
            exc.add_note(f"case QUANTWATCH_FUZZ=watch:{number}")
            raise
    assert ALONE or {"isolated", "ok", "invalid", "unknown"} <= set(found)
