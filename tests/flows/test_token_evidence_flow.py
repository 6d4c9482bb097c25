"""From a run to the tokens that people look at: written after the run, read back as far as they may be shown."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response

from quantwatch.errors import ReplyInvalid
from quantwatch.flow.tokens import PromptsShown, TokensSeen
from quantwatch.flow.verdict import BREACHES, Quality
from quantwatch.flows.stored import StoredBaseline
from quantwatch.flows.texts import AT_ONCE, learn
from quantwatch.record.evidence import ids_in
from support.references import reference
from support.watching import Bench, restarted, settings, watching

FULL = {"expose": {"prompts": "full"}}
BAD = 1.0


def tokens(bench: Bench, target: str = "a", shown: PromptsShown = PromptsShown.FULL) -> TokensSeen | None:
    """What is given out of a target's latest run."""
    with bench.archive() as archive:
        return archive.tokens(bench.runs(target)[-1].id, shown=shown)


def kept(bench: Bench, target: str = "a") -> TokensSeen:
    found = tokens(bench, target)
    assert found is not None
    return found


def answering(path: str, answer: Callable[[], Response]) -> Callable[[str], Response | None]:
    """A node that answers one path in its own way."""
    return lambda asked: answer() if asked == path else None


async def test_a_run_leaves_its_worst_tokens(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)

        run = next(one for one in bench.runs("a") if one.document["trigger"] == "schedule")
        with bench.archive() as archive:
            found = archive.tokens(run.id, shown=PromptsShown.FULL)
        assert run.quality in BREACHES
        assert found is not None
        assert len(found.prompts) == min(8, found.measured)
        means = [one.kl_mean for one in found.prompts]
        assert means == sorted(means, reverse=True)
        assert max(one.kl_max for one in found.prompts) == pytest.approx(run.numbers["kl_max"], rel=1e-4)
        golden = {tuple(one["prompt"]) for one in bench.nodes["a"].completions() if "prompt_logprobs" in one}
        for prompt in found.prompts:
            continuation = tuple(one.id for one in prompt.tokens)
            assert any(ids[prompt.prompt_length :][: len(continuation)] == continuation for ids in golden)
        assert found.texts == {}
        assert bench.baseline.detokenized == []


async def test_a_node_whose_numbers_break_is_seen_with_its_marks(tmp_path: Path) -> None:
    def broken(reply: dict[str, Any]) -> dict[str, Any]:
        for choice in reply["choices"]:
            for row in (choice.get("prompt_logprobs") or [])[-3:-1]:
                for one in row.values():
                    one["logprob"] = -9999.0
        return reply

    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        bench.nodes["a"].edit = broken
        await bench.rounds(1, "a")

        assert {run.quality for run in bench.runs("a")[1:]} == {Quality.CORRUPTED}
        marked = [one for prompt in kept(bench).prompts for one in prompt.tokens if one.mark]
        assert marked
        assert all(one.mark is not None and one.mark.startswith("sentinel: -9999 within the top") for one in marked)
        assert all((one.kl, one.node) == (None, ()) for one in marked)


async def test_off_keeps_nothing_and_shows_nothing_of_before(tmp_path: Path) -> None:
    async with watching(tmp_path, settings("a", **FULL)) as bench:
        await bench.rounds(1)
        before = bench.runs("a")[-1]
        await bench.reload(settings("a", expose={"prompts": False}))  # as YAML reads a bare off
        await bench.rounds(1)
        await learn(bench.watch)

        assert bench.baseline.detokenized == []
        assert tokens(bench) is None
        with bench.archive() as archive:
            assert archive.tokens(before.id, shown=PromptsShown.OFF) is None
            assert archive.tokens(before.id, shown=PromptsShown.IDS) is not None


async def test_a_run_that_was_skipped_leaves_the_tokens_of_the_last_one(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        before = kept(bench)
        bench.nodes["a"].waiting = 5
        await bench.rounds(1, "a")

        assert bench.runs("a")[-1].quality is Quality.SKIPPED
        assert tokens(bench) is None
        with bench.archive() as archive:
            assert archive.tokens(bench.runs("a")[0].id, shown=PromptsShown.IDS) == before


# ------------------------------------------------------------------ texts


async def test_words_are_learned_beside_the_runs_and_once(tmp_path: Path) -> None:
    async with watching(tmp_path, settings("a", **FULL)) as bench:
        await bench.rounds(1)
        assert kept(bench).texts == {}
        await learn(bench.watch)

        found, wanted = kept(bench), ids_in(kept(bench).prompts)
        asked = [one["tokens"] for one in bench.baseline.detokenized]
        assert asked == [[one] for one in wanted]
        assert found.texts == {one: bytes([one % 256]).decode("utf-8", "replace") for one in wanted}
        assert "\ufffd" in found.texts.values()
        assert tokens(bench, shown=PromptsShown.IDS) == TokensSeen(found.prompts, found.measured)

        await bench.rounds(1)
        await learn(bench.watch)
        again = [one["tokens"][0] for one in bench.baseline.detokenized[len(asked) :]]
        assert set(again).isdisjoint(wanted)
        assert bench.watch.generation.users == 0


async def test_more_words_than_are_asked_at_a_stretch_are_all_learned_in_the_end(tmp_path: Path) -> None:
    """Also when no other run brings these ids again."""
    async with watching(tmp_path, settings("a", **FULL)) as bench:
        await bench.rounds(1)
        wanted = ids_in(kept(bench).prompts)
        stretches: list[int] = []
        while bench.watch.turns.texts.unread:
            before = len(bench.baseline.detokenized)
            await learn(bench.watch, most=50)
            stretches.append(len(bench.baseline.detokenized) - before)

        assert kept(bench).texts.keys() == set(wanted)
        assert stretches == [50, 50, len(wanted) - 100]


@pytest.mark.parametrize("answer", [lambda: Response("no such page", 404), lambda: JSONResponse({"prompt": 5})])
async def test_trouble_with_words_ends_the_attempt_and_touches_nothing_else(
    tmp_path: Path, answer: Callable[[], Response]
) -> None:
    async with watching(tmp_path, settings("a", **FULL)) as bench:
        await bench.rounds(1)
        calls = len(bench.wire.calls)
        bench.baseline.replace = answering("/detokenize", answer)
        await learn(bench.watch)

        assert len(bench.wire.calls) - calls < 20
        assert kept(bench).texts == {}
        assert bench.runs("a")[-1].quality is Quality.OK
        bench.baseline.replace = lambda _: None
        await bench.rounds(1)
        await learn(bench.watch)
        assert kept(bench).texts


async def test_words_of_another_model_are_not_taken_for_ours(tmp_path: Path) -> None:
    async with watching(tmp_path, settings("a", **FULL)) as bench:
        await bench.rounds(1)
        bench.baseline.name = "another"
        await learn(bench.watch)

        assert bench.baseline.detokenized == []
        assert not bench.watch.turns.texts.unread


async def test_a_store_in_trouble_learns_no_words_and_fails_nothing(tmp_path: Path) -> None:
    async with watching(tmp_path, settings("a", **FULL)) as bench:
        await bench.rounds(1)
        (tmp_path / "q.db").rename(tmp_path / "gone.db")
        await learn(bench.watch)

        assert bench.keeper.trouble is not None


async def test_a_baseline_at_rest_is_left_alone_and_asked_later(tmp_path: Path) -> None:
    async with watching(tmp_path, settings("a", **FULL)) as bench:
        await bench.rounds(1)
        account = bench.built.builder.accounts.of("http://baseline")
        account.row, account.rest_until = 1, bench.clock.time + 60.0
        await learn(bench.watch)
        assert bench.baseline.detokenized == []

        await bench.advance(61)
        await learn(bench.watch)
        assert kept(bench).texts


async def test_enrolled_answers_have_no_words() -> None:
    with pytest.raises(ReplyInvalid, match="no tokenizer"):
        await StoredBaseline(reference("letters-0")).token_text(5)


async def test_what_was_learned_before_time_was_up_is_kept(tmp_path: Path) -> None:
    async with watching(tmp_path, settings("a", **FULL)) as bench:
        await bench.rounds(1)
        await learn(bench.watch, seconds=0.0)
        assert len(bench.watch.turns.texts.unread) == 1

        asked: list[str] = []
        bench.wire.hear = lambda request: asked.append(request.url.path)

        def slow(path: str) -> Response | None:
            if path == "/detokenize" and asked.count(path) > AT_ONCE:
                bench.wire.held["baseline"] = asyncio.Event()
            return None

        bench.baseline.replace = slow
        await learn(bench.watch, seconds=1.5)
        assert len(kept(bench).texts) == AT_ONCE
