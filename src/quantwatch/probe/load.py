"""Load for the release gate: whole completions of a fixed length, timed, and the node's memory beside them.

Nothing here measures quality; the request carries no log-probabilities. The same neutral sampling as every probe, and
`ignore_eos`, so that two nodes do the same work for the same request.
"""

from collections.abc import Sequence

from quantwatch.clock import Clock
from quantwatch.errors import (
    Misconfigured,
    NodeBusy,
    NodeFailed,
    NodeRestarted,
    NodeTimeout,
    NodeUnreachable,
    OverBudget,
    OverCap,
    ProbeError,
    ReplyInvalid,
)
from quantwatch.flow.acceptance import Footprint, Timed
from quantwatch.net import Link
from quantwatch.probe import reply
from quantwatch.probe.budget import GLANCE_SECONDS, Gate
from quantwatch.probe.node_metrics import read_footprint
from quantwatch.probe.refusal import refuse
from quantwatch.probe.vllm import NEUTRAL

KINDS: tuple[tuple[type[ProbeError], str], ...] = (
    (NodeTimeout, "timeout"),
    (NodeUnreachable, "unreachable"),
    (NodeBusy, "busy"),
    (NodeFailed, "failed"),
    (Misconfigured, "misconfigured"),
    (OverBudget, "refused"),
    (OverCap, "refused"),
    (ReplyInvalid, "invalid"),
)


def kind_of(error: ProbeError) -> str:
    """A failed request in one word; broken numbers, which a request without numbers does not show, count as failed."""
    return next((kind for known, kind in KINDS if isinstance(error, known)), "failed")


class LoadClient:
    """Sends load to one server. The link must not try again: a second try would hide the first one's failure.

    model: its name at the server, to be set before the first request.
    """

    def __init__(self, link: Link, *, gate: Gate, output_tokens: int, metric: str, clock: Clock) -> None:
        self._link = link
        self._gate = gate
        self.model = ""
        self._output_tokens = output_tokens
        self._metric = metric
        self._clock = clock

    async def calm(self) -> bool:
        """Wait until the node has room, as every probe does; whether it has. Never raises."""
        try:
            async with self._gate.turn(0):  # load that a plan asks for is no probe, and has a budget of its own
                return True
        except (NodeBusy, NodeRestarted):
            return False

    async def complete(self, ids: Sequence[int]) -> Timed:
        """One completion of exactly the agreed length: how long it took, or how long until it failed. Never raises."""
        length = self._output_tokens
        wanted = {"prompt": list(ids), "max_tokens": length, "min_tokens": length, "ignore_eos": True}
        started = self._clock.monotonic()
        try:
            answer = await self._link.post("/v1/completions", {"model": self.model, **NEUTRAL, **wanted})
            seconds = self._clock.monotonic() - started
            if answer.status != 200:
                refuse(answer, node=self._link.name)
            choice = reply.read(answer.body, reply.Asked(node=self._link.name, k=0, raw_proven=False), choices=1)[0]
        except ProbeError as exc:
            return Timed(self._clock.monotonic() - started, kind_of(exc))
        whole = choice.token_ids is not None and len(choice.token_ids) == length
        return Timed(seconds, None if whole else "short")

    async def footprint(self) -> Footprint:
        """The node's memory right now; nothing where it does not tell. Never raises."""
        try:
            answer = await self._link.glance("/metrics", seconds=GLANCE_SECONDS)
        except ProbeError:
            return Footprint()
        return read_footprint(answer.body, self._metric) if answer.status == 200 else Footprint()
