"""The tokens behind a run's numbers, and what their ids mean.

How many runs of a target and task set keep theirs goes by what the run is worth to whoever looks into it, see KEPT. A
run takes the place of its own kind alone, so that none that tells nothing drives out the newest sound one.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Function, Integer, String, case, delete, func, select

from quantwatch.errors import StoreError
from quantwatch.flow.tokens import PromptSeen, PromptsShown, TokensSeen
from quantwatch.flow.tokens_json import UNREADABLE, prompt_json, prompt_of
from quantwatch.flow.verdict import BREACHES, Quality
from quantwatch.record.rows import has
from quantwatch.record.tables import DECISIONS, RUNS, TOKEN_EVIDENCE, TOKEN_TEXTS
from quantwatch.record.transactions import Transactions


class Kind(StrEnum):
    """What the tokens of a run are worth.

    BREACH: also one that was found, and then not believed of the baseline. BROKEN: broken numbers that were no breach,
    as they were seen once. OPEN: any other run that cannot decide, be it cut short.
    """

    BREACH = "breach"
    BROKEN = "broken"
    WARN = "warn"
    OPEN = "inconclusive"
    SOUND = "sound"
    REST = "rest"


KEPT = {Kind.BREACH: 100, Kind.BROKEN: 5, Kind.WARN: 5, Kind.OPEN: 5, Kind.SOUND: 1, Kind.REST: 1}
"""Runs of each kind of one target and task set that keep their tokens, the newest: 117 in all.

Those that decisions rest on come on top, but for SOUND and REST. Runs that warn come by the hundred, with one picture.
"""


def _of_report(name: str, kind: type[String] | type[Integer]) -> Function[Any]:
    return func.json_extract(RUNS.c.document, f"$.report.{name}", type_=kind)


KIND = case(
    (RUNS.c.quality.in_(BREACHES), Kind.BREACH.value),
    (RUNS.c.quality == Quality.OK, Kind.SOUND.value),
    (RUNS.c.quality == Quality.WARN, Kind.WARN.value),
    (_of_report("verdict", String).in_(sorted(BREACHES)), Kind.BREACH.value),
    (_of_report("corrupted_positions", Integer) > 0, Kind.BROKEN.value),
    (RUNS.c.quality == Quality.INCONCLUSIVE, Kind.OPEN.value),
    else_=Kind.REST.value,
)
"""The kind of a run in the store: by what it says, and where it says nothing by what its own numbers said."""

AT_ONCE = 500
"""Ids of one question: SQLite takes so many values at the least."""


class EvidenceRecords(Transactions):
    """The part of a store that is about single tokens."""

    def keep_tokens(self, run: str, seen: TokensSeen, *, tokenizer: str) -> bool:
        """Keep the tokens of a run that is kept, and drop those of older runs that need them no longer.

        tokenizer: whose ids they are. A run that is not kept, or whose tokens are, changes nothing. Gives whether the
        run is kept.
        """
        rows = [
            {
                "run": run,
                "place": place,
                "measured": seen.measured,
                "tokenizer": tokenizer,
                "prompt_id": one.prompt_id,
                "kl_mean": one.kl_mean,
                "document": prompt_json(one),
            }
            for place, one in enumerate(seen.prompts)
        ]
        with self._writing() as connection:
            known = has(connection, RUNS, run)
            if rows and known:
                connection.execute(TOKEN_EVIDENCE.insert().prefix_with("OR IGNORE"), rows)
                _drop_older(connection, run)
            return known

    def keep_texts(self, tokenizer: str, texts: Mapping[int, str]) -> None:
        """Keep what ids of a tokenizer mean, in place of what was kept before."""
        rows = [{"tokenizer": tokenizer, "id": key, "text": text} for key, text in texts.items()]
        with self._writing() as connection:
            if rows:
                connection.execute(TOKEN_TEXTS.insert().prefix_with("OR REPLACE"), rows)

    def without_text(self, tokenizer: str, ids: Sequence[int]) -> list[int]:
        """Those ids whose meaning is not kept, in their order."""
        with self._reading() as connection:
            known = _texts(connection, tokenizer, ids)
        return [key for key in ids if key not in known]


def _drop_older(connection: Connection, run: str) -> None:
    """Drop what a run's tokens take the place of: those of the oldest of its kind, target and task set."""
    own = select(RUNS.c.target, RUNS.c.task_set, KIND.label("kind")).where(RUNS.c.id == run)
    pair = connection.execute(own).one()
    same = (RUNS.c.target == pair.target, RUNS.c.task_set == pair.task_set)
    with_tokens = select(RUNS.c.id).where(*same, RUNS.c.id.in_(select(TOKEN_EVIDENCE.c.run)), pair.kind == KIND)
    if pair.kind not in (Kind.SOUND, Kind.REST):
        decided = select(DECISIONS.c.run).where(DECISIONS.c.run.is_not(None))
        with_tokens = with_tokens.where(RUNS.c.id.not_in(decided))
    older = with_tokens.order_by(RUNS.c.started.desc(), RUNS.c.id.desc()).offset(KEPT[Kind(pair.kind)])
    connection.execute(delete(TOKEN_EVIDENCE).where(TOKEN_EVIDENCE.c.run.in_(older)))


def tokens_kept(connection: Connection, run: str, *, shown: PromptsShown) -> TokensSeen | None:
    """The tokens of a run with as much as may be shown, None without any. Raises StoreError for an odd document."""
    if shown is PromptsShown.OFF:
        return None
    wanted = select(TOKEN_EVIDENCE).where(TOKEN_EVIDENCE.c.run == run).order_by(TOKEN_EVIDENCE.c.place)
    rows = connection.execute(wanted).mappings().all()
    if not rows:
        return None
    prompts = tuple(_prompt(run, row["document"]) for row in rows)
    ids = ids_in(prompts) if shown is PromptsShown.FULL else ()
    return TokensSeen(prompts, rows[0]["measured"], _texts(connection, rows[0]["tokenizer"], ids))


def _prompt(run: str, document: Any) -> PromptSeen:
    try:
        return prompt_of(document)
    except UNREADABLE as exc:
        raise StoreError(f"the tokens of the run {run} cannot be read") from exc


def ids_in(prompts: Iterable[PromptSeen]) -> tuple[int, ...]:
    """Every token id of some prompts once: first the golden ones, then those that servers listed."""
    tokens = [token for prompt in prompts for token in prompt.tokens]
    listed = (one.id for token in tokens for one in (*token.baseline, *token.node))
    return tuple(dict.fromkeys([*(token.id for token in tokens), *listed]))


def _texts(connection: Connection, tokenizer: str, ids: Sequence[int]) -> dict[int, str]:
    found: dict[int, str] = {}
    for start in range(0, len(ids), AT_ONCE):
        some = TOKEN_TEXTS.c.id.in_(ids[start : start + AT_ONCE])
        wanted = select(TOKEN_TEXTS.c.id, TOKEN_TEXTS.c.text).where(TOKEN_TEXTS.c.tokenizer == tokenizer, some)
        found |= {key: str(text) for key, text in connection.execute(wanted)}
    return found
