"""The tokens behind a run of real nodes, with the words that the baseline gives for their ids."""

import sqlite3
from contextlib import closing
from pathlib import Path

import httpx

from quantwatch.flow.tokens import PromptsShown
from quantwatch.flows.texts import learn
from quantwatch.record.evidence import ids_in
from support.lab_nodes import ask, lab_node
from support.watching import settings, watching

A_POSITION = 250
"""Bytes of a position in the store at the most; measured on answers of real models: about 150."""


async def test_tokens_of_two_nodes_of_one_model_with_their_words(tiny: Path, tmp_path: Path) -> None:
    baseline = lab_node(tiny, name="lab-baseline")
    async with watching(tmp_path, settings("a", expose={"prompts": "full"})) as bench:
        bench.wire.put("baseline", httpx.ASGITransport(baseline.app()))
        bench.wire.put("a", httpx.ASGITransport(lab_node(tiny, name="lab-a").app()))
        await bench.rounds(1)
        await learn(bench.watch)

        run = bench.runs("a")[-1].id
        with bench.archive() as archive:
            found = archive.tokens(run, shown=PromptsShown.FULL)
    assert found is not None
    assert max(one.kl_max for one in found.prompts) < 1e-6
    golden = {token.id for prompt in found.prompts for token in prompt.tokens}
    assert found.texts.keys() == set(ids_in(found.prompts))
    assert any("\ufffd" in text for text in found.texts.values())  # a byte of a character
    for one in sorted(golden)[:5]:
        assert (await ask(baseline, "/detokenize", {"tokens": [one]})).json() == {"prompt": found.texts[one]}
    with closing(sqlite3.connect(tmp_path / "q.db")) as store:
        size = store.execute("SELECT sum(length(document)) FROM token_evidence").fetchone()[0]
    assert size < A_POSITION * sum(len(one.tokens) for one in found.prompts)
