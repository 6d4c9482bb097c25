"""The store: what would be wrong to lose in a crash. One process writes, every method is one transaction.

A method that returns has made its change durable. Every method raises StoreError when it could not, and then has
changed nothing. Methods that a caller tries again after an error (add_run, keep_tokens, decide, settle) do their work
once.
"""

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Self

from sqlalchemy import Engine, func, select

from quantwatch.clock import Clock
from quantwatch.errors import StoreError
from quantwatch.flow.decision import Action, Decision, Intent, Outcome
from quantwatch.flow.proposal import Proposal
from quantwatch.flow.run import RunRecord
from quantwatch.flow.state import Pause, SetState, TargetState, Transition
from quantwatch.record import proposals, references
from quantwatch.record.columns import moment_text
from quantwatch.record.documents import (
    StoredRun,
    decision_row,
    intent_of,
    intent_row,
    number_rows,
    outcome_row,
    run_row,
)
from quantwatch.record.engine import Pragmas, writer
from quantwatch.record.evidence import EvidenceRecords
from quantwatch.record.examine import set_aside
from quantwatch.record.notices import Change, Kept, change_notices, kept_notices
from quantwatch.record.place import MOUNTS, make_folder, only_writer, refuse_network
from quantwatch.record.pools import PoolRecords
from quantwatch.record.prune import prune
from quantwatch.record.references import StoredAnswer
from quantwatch.record.rows import add_transitions, has, latest_changes, latest_ended, newest, put
from quantwatch.record.steps import STEPS, Step, begin, migrate, version_in, version_of
from quantwatch.record.tables import (
    DECISIONS,
    INTENTS,
    META,
    NOTE,
    NUMBERS,
    PAUSES,
    RUNS,
    SET_STATES,
    TARGET_STATES,
)


@dataclass(frozen=True, slots=True)
class Options:
    """What tests and unusual machines change. mounts: the list of mounted file systems. steps: migrations."""

    pragmas: Pragmas = field(default_factory=Pragmas)
    mounts: Path = MOUNTS
    steps: Sequence[Step] = STEPS


class Store(PoolRecords, EvidenceRecords):
    """The writer's side of a store, made by Store.open. One thread at a time uses it; which one does not matter.

    recovered_from: where a damaged file was moved to when the store was opened, None when the file was sound.
    damage: what was seen of it.
    """

    def __init__(self, path: Path, *, engine: Engine, clock: Clock, holding: contextlib.ExitStack) -> None:
        super().__init__(path, engine)
        self.recovered_from: Path | None = None
        self.damage: str | None = None
        self._clock = clock
        self._holding = holding

    @classmethod
    def open(cls, path: Path, *, clock: Clock, options: Options | None = None) -> Self:
        """Open a store for writing, or begin one. Raises StoreError.

        A damaged file is moved aside, never deleted, and a new store is begun in its place: see recovered_from. A file
        of a newer quantwatch or of another program is left alone, and so is one that another process writes to.
        """
        chosen = options or Options()
        refuse_network(path, mounts=chosen.mounts)
        make_folder(path)
        with contextlib.ExitStack() as holding:
            holding.enter_context(only_writer(path))
            aside, damage = set_aside(path, at=clock.now(), version=version_of(chosen.steps))
            engine = writer(path, chosen.pragmas)
            holding.callback(engine.dispose)
            store = cls(path, engine=engine, clock=clock, holding=holding)
            store.recovered_from, store.damage = aside, damage
            store._prepare(chosen.steps)
            store._holding = holding.pop_all()
        return store

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and let another writer in."""
        with self._turn:
            self._closed = True
            self._holding.close()

    # ------------------------------------------------------------------ runs and states

    def add_run(self, record: RunRecord, state: SetState, transitions: Sequence[Transition] = ()) -> None:
        """Keep a run, its numbers, and where it leaves its task set. A run that is kept already changes nothing."""
        with self._writing() as connection:
            if has(connection, RUNS, record.id):
                return
            row = run_row(record)
            connection.execute(RUNS.insert(), row)
            if row["measured"]:
                connection.execute(NUMBERS.insert(), list(number_rows(record.id, row["document"]["report"])))
            put(connection, SET_STATES, state)
            add_transitions(connection, transitions)

    def save_target(
        self, state: TargetState, transitions: Sequence[Transition] = (), sets: Sequence[SetState] = ()
    ) -> None:
        """Keep where a target stands, and its task sets where these have changed with it."""
        with self._writing() as connection:
            put(connection, TARGET_STATES, state)
            for one in sets:
                put(connection, SET_STATES, one)
            add_transitions(connection, transitions)

    def set_states(self) -> list[SetState]:
        """Every pair that was ever measured, by target and task set."""
        with self._reading() as connection:
            rows = connection.execute(select(SET_STATES).order_by(SET_STATES.c.target, SET_STATES.c.task_set))
            return [SetState(**row) for row in rows.mappings()]

    def target_states(self) -> list[TargetState]:
        """Every target that was ever kept, by name."""
        with self._reading() as connection:
            rows = connection.execute(select(TARGET_STATES).order_by(TARGET_STATES.c.target))
            return [TargetState(**row) for row in rows.mappings()]

    def last_documents(self) -> dict[tuple[str, str], StoredRun]:
        """By target and task set the newest run that gave numbers."""
        with self._reading() as connection:
            pairs = connection.execute(select(SET_STATES.c.target, SET_STATES.c.task_set)).all()
            found = (newest(connection, target, task_set) for target, task_set in pairs)
            return {(run.target, run.task_set): run for run in found if run is not None}

    def last_changes(self) -> dict[tuple[str, str], datetime]:
        """By target and task set when its quality changed last."""
        with self._reading() as connection:
            return latest_changes(connection)

    # ------------------------------------------------------------------ decisions and intents

    def decide(
        self,
        decision: Decision,
        *,
        intent: Intent | None = None,
        state: TargetState | None = None,
        transitions: Sequence[Transition] = (),
        sets: Sequence[SetState] = (),
        proposal: Proposal | None = None,
    ) -> None:
        """Keep a decision, the intent or proposal that follows from it, and the new states: all of it or nothing."""
        with self._writing() as connection:
            if has(connection, DECISIONS, decision.id):
                return
            connection.execute(DECISIONS.insert(), decision_row(decision))
            if intent is not None:
                connection.execute(INTENTS.insert(), intent_row(intent))
            if proposal is not None:
                proposals.add(connection, proposal)
            if state is not None:
                put(connection, TARGET_STATES, state)
            for one in sets:
                put(connection, SET_STATES, one)
            add_transitions(connection, transitions)

    def close_proposal(
        self,
        closed: Proposal,
        *,
        intent: Intent | None = None,
        state: TargetState | None = None,
        transitions: Sequence[Transition] = (),
    ) -> None:
        """Write how a proposal ended, with the order that follows where it was approved: all of it or nothing.

        Raises StoreError where it is not open any more, so that one decision never leads to two orders.
        """
        with self._writing() as connection:
            proposals.close(connection, closed)
            if intent is not None:
                connection.execute(INTENTS.insert(), intent_row(intent))
            if state is not None:
                put(connection, TARGET_STATES, state)
            add_transitions(connection, transitions)

    def proposals(self) -> tuple[list[Proposal], list[Proposal]]:
        """What waits for a person, oldest first; and of each target and action the proposal that was closed last."""
        with self._reading() as connection:
            return proposals.open_ones(connection), proposals.latest_closed(connection)

    def begin_attempt(self, decision: str) -> int:
        """Count one more call before it is sent; the count, over all process lives. Raises StoreError if not open."""
        with self._writing() as connection:
            still_open = (INTENTS.c.decision == decision, INTENTS.c.result.is_(None))
            counted = INTENTS.update().where(*still_open).values(attempts=INTENTS.c.attempts + 1)
            if connection.execute(counted).rowcount == 0:
                raise StoreError(f"{self.path}: there is no open intent {decision}")
            return int(connection.execute(select(INTENTS.c.attempts).where(*still_open)).scalar_one())

    def settle(
        self,
        decision: str,
        outcome: Outcome,
        *,
        state: TargetState | None = None,
        transitions: Sequence[Transition] = (),
    ) -> None:
        """Write the outcome of an intent, once. Raises StoreError for an intent that is unknown or ended otherwise."""
        with self._writing() as connection:
            rows = connection.execute(select(INTENTS).where(INTENTS.c.decision == decision)).mappings()
            row = rows.first()
            if row is None:
                raise StoreError(f"{self.path}: there is no intent {decision}")
            if row["result"] is not None:
                if row["result"] is not outcome.result:
                    raise StoreError(f"{self.path}: the intent {decision} has ended as {row['result']} already")
                return
            connection.execute(INTENTS.update().where(INTENTS.c.decision == decision).values(**outcome_row(outcome)))
            if state is not None:
                put(connection, TARGET_STATES, state)
            add_transitions(connection, transitions)

    def open_intents(self) -> list[Intent]:
        """Orders without an outcome, oldest first."""
        with self._reading() as connection:
            rows = connection.execute(select(INTENTS).where(INTENTS.c.result.is_(None)).order_by(INTENTS.c.opened))
            return [intent_of(dict(row)) for row in rows.mappings()]

    def last_intents(self) -> list[Intent]:
        """The newest order of each target that has ended."""
        with self._reading() as connection:
            return latest_ended(connection)

    def actions_since(self, pool: str, moment: datetime) -> int:
        """How many isolations of a pool were ordered since then, however they ended."""
        with self._reading() as connection:
            wanted = (INTENTS.c.pool == pool, INTENTS.c.action == Action.ISOLATE, INTENTS.c.opened >= moment)
            return int(connection.execute(select(func.count()).select_from(INTENTS).where(*wanted)).scalar_one())

    # ------------------------------------------------------------------ pools, pauses and references

    def add_pause(self, pause: Pause) -> None:
        """Keep a pause; one with the same id is replaced."""
        with self._writing() as connection:
            put(connection, PAUSES, pause)

    def end_pause(self, pause: str, at: datetime, said: Sequence[Transition] = ()) -> None:
        """End a pause now. said: by whom and why. Raises StoreError when there is none of this id."""
        with self._writing() as connection:
            if connection.execute(PAUSES.update().where(PAUSES.c.id == pause).values(ended=at)).rowcount == 0:
                raise StoreError(f"{self.path}: there is no pause {pause}")
            add_transitions(connection, said)

    def add_changes(self, transitions: Sequence[Transition]) -> None:
        """Keep changes that come with no state."""
        with self._writing() as connection:
            add_transitions(connection, transitions)

    def pauses(self, now: datetime) -> list[Pause]:
        """Pauses that hold now, oldest first."""
        names = [one.name for one in dataclasses.fields(Pause)]
        running = (PAUSES.c.ended.is_(None), PAUSES.c.until.is_(None) | (PAUSES.c.until > now))
        with self._reading() as connection:
            rows = connection.execute(select(*(PAUSES.c[name] for name in names)).where(*running).order_by("since"))
            return [Pause(**row) for row in rows.mappings()]

    def keep_references(self, fingerprint: str, pool: str, answers: Sequence[StoredAnswer]) -> None:
        """Keep the baseline's answers to prompts of a pool; older answers to the same questions are superseded."""
        with self._writing() as connection:
            references.keep(connection, answers, fingerprint=fingerprint, pool=pool)

    def references(self, fingerprint: str, pool: str) -> list[StoredAnswer]:
        """The answers that count for this baseline and pool."""
        with self._reading() as connection:
            return references.kept(connection, fingerprint=fingerprint, pool=pool)

    def drop_references(self, *, at: datetime) -> int:
        """Let no answer count any longer, as after an accepted new baseline; how many did. They stay in the file."""
        with self._writing() as connection:
            return references.supersede(connection, at=at)

    # ------------------------------------------------------------------ notes

    def keep_note(self, key: str, text: str) -> None:
        """Keep a text under a key, in place of the last one."""
        name = NOTE + key
        with self._writing() as connection:
            if connection.execute(META.update().where(META.c.key == name).values(value=text)).rowcount == 0:
                connection.execute(META.insert(), {"key": name, "value": text})

    def note(self, key: str) -> str | None:
        """The text of a key, None without one."""
        with self._reading() as connection:
            return connection.execute(select(META.c.value).where(META.c.key == NOTE + key)).scalar_one_or_none()

    # ------------------------------------------------------------------ what people are told

    def notices(self) -> Kept:
        """What people were told last, and what is still to be told."""
        with self._reading() as connection:
            return kept_notices(connection)

    def tell(self, change: Change) -> None:
        """Keep what is to be told and forget what no longer is, all of it or nothing; twice is as good as once."""
        with self._writing() as connection:
            change_notices(connection, change)

    # ------------------------------------------------------------------ the file

    def prune(self, *, runs_before: datetime, decisions_before: datetime) -> int:
        """Forget what is older and not needed (record/prune.py); how many rows went."""
        with self._writing() as connection:
            return prune(connection, runs_before=runs_before, decisions_before=decisions_before)

    def ping(self) -> None:
        """Write something durably, to learn whether the store can be written."""
        with self._writing() as connection:
            now = moment_text(self._clock.now())
            connection.execute(META.update().where(META.c.key == "ping").values(value=now))

    def _prepare(self, steps: Sequence[Step]) -> None:
        with self._first() as connection:
            found = version_in(connection)
            if found == 0:
                begin(connection, created=self._clock.now(), version=version_of(steps))
            elif found < version_of(steps):
                migrate(connection, found=found, steps=steps)
