"""The steps from one version of the store's tables to the next: written out, and never changed once released."""

from collections.abc import Callable

from sqlalchemy import Connection

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
