"""The release gate's load on a node of a real, small transformer."""

from pathlib import Path

import httpx

from quantwatch.net import Endpoint, Limits, Link
from quantwatch.probe.budget import Budget, Gate
from quantwatch.probe.load import LoadClient
from support.builders import FakeClock
from support.lab_nodes import lab_node


async def test_every_answer_is_as_long_as_agreed(tiny: Path) -> None:
    transport = httpx.ASGITransport(app=lab_node(tiny).app())
    async with Link(Endpoint("lab", "http://lab"), Limits(attempts=1), transport=transport) as link:
        gate = Gate(link, Budget(patience_seconds=0.0), FakeClock())
        client = LoadClient(link, gate=gate, output_tokens=12, metric="none", clock=FakeClock())
        client.model = "lab"
        assert await client.calm()
        found = [await client.complete([5 + i, 6, 7]) for i in range(3)]
    assert [one.error for one in found] == [None] * 3
