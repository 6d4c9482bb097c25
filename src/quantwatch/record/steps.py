"""What changed in the tables from version to version. A step says it in words of its own, and is never changed again:

the tables of today are no help to a file of yesterday.
"""

from sqlalchemy import Connection


def add_notices(connection: Connection) -> None:
    """To version 2: what people were told, and what a channel has yet to be told."""
    for command in (
        "CREATE TABLE notices (key VARCHAR NOT NULL, standing BOOLEAN NOT NULL, at VARCHAR NOT NULL, "
        "document VARCHAR NOT NULL, PRIMARY KEY (key))",
        "CREATE TABLE deliveries (number INTEGER NOT NULL, channel VARCHAR NOT NULL, notice VARCHAR NOT NULL, "
        "document VARCHAR NOT NULL, PRIMARY KEY (number))",
        "CREATE UNIQUE INDEX deliveries_by_notice ON deliveries (channel, notice)",
    ):
        connection.exec_driver_sql(command)
