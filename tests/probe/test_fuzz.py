"""Damaged replies by the thousand: whatever a server sends, the outcome is a measurement, marks, or a ProbeError."""

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from quantwatch.errors import ProbeError
from quantwatch.flow.distribution import Distribution
from quantwatch.flow.divergence import Evidence
from quantwatch.flow.prompt import GoldenSequence, ProbeMode
from quantwatch.measure.compare import Pair, Scope, measure
from quantwatch.probe import reply
from quantwatch.probe.reply import Asked
from support.recordings import exchange

ROUNDS = 1500
ASKED = Asked(node="n", k=5)
JUNK: list[Any] = [
    None,
    0,
    -1,
    1e400,
    float("nan"),
    "x",
    "",
    [],
    {},
    True,
    10**30,
    -(10**400),
    1.5,
    "token_id:5",
    "-5",
    [[]],
]

Path = tuple[str | int, ...]


def paths(value: Any, here: Path = ()) -> Iterator[Path]:
    """Every place in a JSON document but the root."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*here, key)
        yield from paths(item, (*here, key))


def damage(document: Any, places: list[Path], rng: random.Random) -> None:
    """Replace, rename or drop one value; does nothing where an earlier damage took the place away."""
    place = rng.choice(places)
    try:
        holder = document
        for key in place[:-1]:
            holder = holder[key]
        kind = rng.random()
        if kind < 0.6:
            holder[place[-1]] = copy.deepcopy(rng.choice(JUNK))
        elif kind < 0.8 and isinstance(holder, dict):
            holder[str(rng.choice(JUNK))] = holder.pop(place[-1])
        else:
            del holder[place[-1]]
    except (KeyError, IndexError, TypeError):
        return


def damaged(body: bytes, rng: random.Random) -> bytes:
    document = json.loads(body)
    places = list(paths(document))
    for _ in range(rng.choice([1, 1, 2, 5])):
        damage(document, places, rng)
    changed = bytearray(json.dumps(document).encode())
    if rng.random() < 0.1:
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def scored(body: bytes) -> Distribution:
    sequence = GoldenSequence("s", tuple(exchange("c_ids_prompt_logprobs5").request["prompt"]), 10)
    choice = reply.read(body, ASKED, choices=1)[0]
    return reply.prompt_scoring(choice, sequence, ASKED, seconds=0.1)


def one_token(body: bytes) -> Distribution:
    prompts = exchange("c_batch_prefixes").request["prompt"]
    sequence = GoldenSequence("s", (*prompts[-1], 7), 2)
    choices = reply.read(body, ASKED, choices=len(prompts))
    lengths = [len(prompt) for prompt in prompts]
    return reply.one_token(choices, sequence, lengths, ASKED, mode=ProbeMode.ONE_TOKEN, seconds=0.1)


@pytest.mark.parametrize(("call", "read"), [("c_ids_prompt_logprobs5", scored), ("c_batch_prefixes", one_token)])
def test_a_damaged_reply_never_escapes_as_another_error(call: str, read: Callable[[bytes], Distribution]) -> None:
    body, rng = exchange(call).body, random.Random(call)
    whole, outcomes = read(body), set()
    for _ in range(ROUNDS):
        try:
            found = read(damaged(body, rng))
        except ProbeError as exc:
            outcomes.add(type(exc).__name__)
        else:
            outcomes.add("marked" if found.marks else "read")
            measure([Pair(whole, found)], scope=Scope.ALL, evidence=Evidence.CENSUS)

    assert {"ReplyInvalid", "marked", "read"} <= outcomes
