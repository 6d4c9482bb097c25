"""The steps from one version of the store's tables to the next: written out, and never changed once released."""

from collections.abc import Callable, Sequence
from datetime import datetime

from sqlalchemy import Connection, select

from quantwatch.record.columns import moment_text
from quantwatch.record.tables import APPLICATION, KEPT, META, SCHEMA

Step = Callable[[Connection], None]


def people_speak(connection: Connection) -> None:
    """Version 2: what people say about targets, and proposals that wait for them."""
    for column in ("human_author", "human_reason", "human_since", "human_until", "vouched"):
        connection.exec_driver_sql(f"ALTER TABLE target_states ADD COLUMN {column} VARCHAR")
    connection.exec_driver_sql("ALTER TABLE decisions ADD COLUMN author VARCHAR DEFAULT 'quantwatch' NOT NULL")
    connection.exec_driver_sql("ALTER TABLE decisions ADD COLUMN origin VARCHAR DEFAULT 'verdicts' NOT NULL")
    connection.exec_driver_sql(
        "CREATE TABLE proposals (decision VARCHAR NOT NULL, target VARCHAR NOT NULL, pool VARCHAR NOT NULL, "
        "action VARCHAR NOT NULL, reason VARCHAR NOT NULL, evidence VARCHAR NOT NULL, opened VARCHAR NOT NULL, "
        "expires VARCHAR NOT NULL, task_set VARCHAR, lane VARCHAR, objections VARCHAR NOT NULL, fate VARCHAR NOT NULL, "
        "closed VARCHAR, author VARCHAR, said VARCHAR, PRIMARY KEY (decision), "
        "FOREIGN KEY(decision) REFERENCES decisions (id) ON DELETE CASCADE)"
    )
    connection.exec_driver_sql("CREATE INDEX proposals_by_target ON proposals (target, opened)")
    connection.exec_driver_sql("CREATE UNIQUE INDEX proposals_open ON proposals (target) WHERE fate = 'open'")


def people_are_told(connection: Connection) -> None:
    """Version 3: what people were told, and what a channel has yet to be told."""
    connection.exec_driver_sql(
        "CREATE TABLE notices (key VARCHAR NOT NULL, standing BOOLEAN NOT NULL, at VARCHAR NOT NULL, "
        "document VARCHAR NOT NULL, PRIMARY KEY (key))"
    )
    connection.exec_driver_sql(
        "CREATE TABLE deliveries (number INTEGER NOT NULL, channel VARCHAR NOT NULL, notice VARCHAR NOT NULL, "
        "document VARCHAR NOT NULL, PRIMARY KEY (number))"
    )
    connection.exec_driver_sql("CREATE UNIQUE INDEX deliveries_by_notice ON deliveries (channel, notice)")


def the_past_is_forgiven(connection: Connection) -> None:
    """Version 4: since when a target that came back has been well, for isolations to be forgiven."""
    connection.exec_driver_sql("ALTER TABLE target_states ADD COLUMN well_since VARCHAR")


def tokens_are_kept(connection: Connection) -> None:
    """Version 5: the tokens behind a run's numbers, and what their ids mean."""
    connection.exec_driver_sql(
        "CREATE TABLE token_evidence (run VARCHAR NOT NULL, place INTEGER NOT NULL, measured INTEGER NOT NULL, "
        "tokenizer VARCHAR NOT NULL, prompt_id VARCHAR NOT NULL, kl_mean FLOAT, document BLOB NOT NULL, "
        "PRIMARY KEY (run, place), FOREIGN KEY(run) REFERENCES runs (id) ON DELETE CASCADE)"
    )
    connection.exec_driver_sql(
        "CREATE TABLE token_texts (tokenizer VARCHAR NOT NULL, id INTEGER NOT NULL, text VARCHAR NOT NULL, "
        "PRIMARY KEY (tokenizer, id))"
    )


STEPS: tuple[Step, ...] = (people_speak, people_are_told, the_past_is_forgiven, tokens_are_kept)
"""From version 1 to 2, from 2 to 3, and so on; never changed once released, never back."""


def version_of(steps: Sequence[Step] = STEPS) -> int:
    """The schema version that these steps lead to."""
    return 1 + len(steps)


def begin(connection: Connection, *, created: datetime, version: int) -> None:
    """Create all tables in an empty file."""
    SCHEMA.create_all(connection)
    for table in KEPT:
        connection.exec_driver_sql(
            f"CREATE TRIGGER {table}_stay BEFORE UPDATE ON {table} "
            f"BEGIN SELECT RAISE(ABORT, '{table} are never changed'); END"
        )
    connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION}")
    values = {"schema": str(version), "created": moment_text(created), "ping": ""}
    connection.execute(META.insert(), [{"key": key, "value": value} for key, value in values.items()])


def migrate(connection: Connection, *, found: int, steps: Sequence[Step]) -> None:
    """Bring a file of an older version to the newest, all steps in the caller's transaction."""
    for step in steps[found - 1 :]:
        step(connection)
    connection.execute(META.update().where(META.c.key == "schema").values(value=str(version_of(steps))))


def version_in(connection: Connection) -> int:
    """Schema version of the file, 0 for an empty one."""
    if connection.exec_driver_sql("SELECT count(*) FROM sqlite_master WHERE name = 'meta'").scalar_one() == 0:
        return 0
    return int(connection.execute(select(META.c.value).where(META.c.key == "schema")).scalar_one())
