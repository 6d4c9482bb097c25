"""Why two servers that have both introduced themselves cannot be compared, and what to do."""

from collections.abc import Iterator
from dataclasses import dataclass

from quantwatch.flow.handshake import Point, Seen
from quantwatch.flow.identity import Identity
from quantwatch.probe.tokenizers import first_difference


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A reason why two servers cannot be compared, and what to do."""

    point: Point
    reason: str
    advice: str

    def __str__(self) -> str:
        return f"{self.reason}. {self.advice}"

    @property
    def seen(self) -> Seen:
        """The obstacle as a point of the handshake."""
        return Seen(self.point, ok=False, detail=self.reason, advice=self.advice)


def obstacles(baseline: Identity, node: Identity) -> list[Obstacle]:
    """Why these two cannot be compared; an empty list when they can."""
    found = (_same_server(baseline, node), _tokenizers(baseline, node), _vocabularies(baseline, node))
    return [one for one in found if one is not None]


def against(baseline: Identity, node: Identity) -> tuple[Seen, ...]:
    """Both held against each other, point by point."""
    found = {one.point: one.seen for one in obstacles(baseline, node)}
    agreed = {one.point: one for one in _agreed(baseline, node)}
    return tuple((agreed | found).values())


def _agreed(baseline: Identity, node: Identity) -> Iterator[Seen]:
    """What there is to say where nothing is in the way."""
    apart = baseline.same_process(node) is False
    said = "two processes" if apart else "two addresses; whether they are two processes is not told"
    yield Seen(Point.TWO_SERVERS, ok=True if apart else None, detail=said)
    yield Seen(Point.TOKENIZER, ok=True, detail="the same as at the baseline")
    if baseline.vocabulary is not None and node.vocabulary is not None:
        yield Seen(Point.VOCABULARY, ok=True, detail="the same as at the baseline")
    if (baseline.engine, baseline.version) != (node.engine, node.version):
        said = f"the baseline's is {baseline.version or 'not told'}; a small part of a divergence can come from that"
        yield Seen(Point.VERSION, ok=True, detail=said)
    if baseline.max_model_len is not None and node.max_model_len is not None:
        shorter = min(baseline.max_model_len, node.max_model_len)
        yield Seen(Point.LENGTH, ok=True, detail=f"sequences of {shorter} tokens or more are skipped")


def _same_server(baseline: Identity, node: Identity) -> Obstacle | None:
    if baseline.url != node.url and not baseline.same_process(node):
        return None
    return Obstacle(
        Point.TWO_SERVERS,
        "same server: baseline and node are one process",
        "Give two addresses; comparing a server with itself always looks healthy",
    )


def _tokenizers(baseline: Identity, node: Identity) -> Obstacle | None:
    if baseline.tokenizer == node.tokenizer or baseline.tokenizer is None or node.tokenizer is None:
        return None
    where = first_difference(baseline.tokenizer, node.tokenizer)
    return Obstacle(
        Point.TOKENIZER,
        f"the tokenizers differ on awkward texts, {where}",
        "Serve both models with the same tokenizer files; other ids make every number meaningless",
    )


def _vocabularies(baseline: Identity, node: Identity) -> Obstacle | None:
    if baseline.vocabulary == node.vocabulary or baseline.vocabulary is None or node.vocabulary is None:
        return None
    return Obstacle(
        Point.VOCABULARY,
        f"the vocabularies differ: {baseline.vocabulary} ids at the baseline, {node.vocabulary} at the node",
        "Serve a quantized copy of the baseline's own model; a resized embedding makes it another one",
    )
