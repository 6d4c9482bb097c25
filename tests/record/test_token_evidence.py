"""The tokens behind runs: kept as long as somebody will look, given out as far as may be shown, lost with their run."""

import math
import sqlite3
from contextlib import closing
from pathlib import Path

from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.run import RunRecord
from quantwatch.flow.tokens import Candidate, PromptSeen, PromptsShown, TokenSeen, TokensSeen
from quantwatch.record.archive import Archive
from quantwatch.record.store import Store
from support.stored import after, opened, run

SOUND = TokenSeen(
    position=7,
    id=5,
    kl=0.25,
    logprob_baseline=-0.5,
    logprob_node=-1.25,
    baseline=(Candidate(5, -0.5), Candidate(9, -1.5)),
    node=(Candidate(9, -0.75), Candidate(5, -1.25)),
    tail_baseline=0.125,
    tail_node=0.0625,
)
BROKEN = TokenSeen(8, 6, None, -0.25, None, (Candidate(6, -0.25),), (), 0.5, 1.0, mark="non_finite: 2 of 2 values")


def prompt(name: str, kl: float, *tokens: TokenSeen) -> PromptSeen:
    return PromptSeen(name, ProbeMode.PROMPT_SCORING, 6, kl, kl, tokens or (SOUND,))


SEEN = TokensSeen((prompt("math-2", math.nan, BROKEN), prompt("math-1", 0.25, SOUND, BROKEN)), 24)


def kept(store: Store, record: RunRecord, seen: TokensSeen = SEEN) -> str:
    store.add_run(record, after(record))
    store.keep_tokens(record.id, seen, tokenizer="t")
    return record.id


def tokens(folder: Path, run_id: str, shown: PromptsShown = PromptsShown.IDS) -> TokensSeen | None:
    with Archive.open(folder / "q.db") as archive:
        return archive.tokens(run_id, shown=shown)


def with_tokens(folder: Path) -> list[str]:
    """Runs that have theirs, in the order of their ids."""
    with closing(sqlite3.connect(folder / "q.db")) as other:
        return [row[0] for row in other.execute("SELECT DISTINCT run FROM token_evidence ORDER BY run")]


def test_tokens_come_back_as_they_were_the_worst_prompt_first(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        made = kept(store, run(1))

    found = tokens(tmp_path, made)

    assert found is not None
    assert repr(found) == repr(SEEN)  # NaN equals nothing
    assert found.prompts[1] == SEEN.prompts[1]
    assert tokens(tmp_path, run(2).id) is None
