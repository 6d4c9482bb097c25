"""Handshakes by themselves: is every node comparable with the baseline, before anything is measured?"""

import asyncio
from collections.abc import Collection, Sequence

from quantwatch.flow.handshake import Handshake, Point, Seen
from quantwatch.flow.prompt import ProbeMode
from quantwatch.flows.ask import Server
from quantwatch.probe.contract import Prober
from quantwatch.probe.obstacles import against


async def handshakes(
    baseline: Prober, nodes: Sequence[Prober], *, k: int, modes: Collection[ProbeMode]
) -> list[Handshake]:
    """Meet the baseline and every node; the baseline's comes first. What cannot be had is written down, never raised.

    k, modes: how they would be asked.
    """
    servers = [Server(one) for one in (baseline, *nodes)]
    await asyncio.gather(*(one.greet(k, modes) for one in servers))
    first, *others = servers
    return [first.ledger.result(first.name), *(handshake(one, first) for one in others)]


def handshake(node: Server, baseline: Server) -> Handshake:
    """What was seen of a node, alone and against its baseline."""
    own = node.ledger.result(node.name, *_against(node, baseline))
    return own if own.ok is False or baseline.introduction is not None else _without(own, baseline)


def _against(node: Server, baseline: Server) -> tuple[Seen, ...]:
    if node.introduction is None or baseline.introduction is None:
        return ()
    return against(baseline.introduction.identity, node.introduction.identity)


def _without(own: Handshake, baseline: Server) -> Handshake:
    """A node's handshake where the baseline's did not come to its end: what stopped it decides."""
    last = baseline.ledger.seen[-1] if baseline.ledger.seen else Seen(Point.MODEL, None, "it did not answer")
    met = Seen(Point.BASELINE, last.ok if last.ok is False else None, f"{baseline.name}: {last.detail}", last.advice)
    return Handshake(own.server, (*own.seen, met), complete=False, tokens=own.tokens)
