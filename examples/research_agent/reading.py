"""query_sql: what was found, by SQL, and nothing but reading."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from . import database
from .app import app

MOST_ROWS = 200
_READING = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}


def query_sql(sql: str) -> dict[str, Any]:
    """At most 200 rows. Who may call this may read the whole database; on PostgreSQL a role with fewer rights
    would narrow it."""
    if database.on_postgres():
        import psycopg

        with psycopg.connect(app.url) as connection:
            connection.read_only = True
            connection.execute("SET statement_timeout = '10s'")
            # A prepared statement is a single one: no COMMIT can follow in the same text.
            return _reported(connection.execute(sql.encode(), prepare=True))
    place = Path(database.sqlite_path()).resolve().as_uri()
    with closing(sqlite3.connect(f"{place}?mode=ro", uri=True)) as connection:
        connection.set_authorizer(_may)  # no ATTACH, no PRAGMA
        return _reported(connection.execute(sql))


def _reported(cursor: Any) -> dict[str, Any]:
    if cursor.description is None:
        raise ValueError("only queries are answered here")
    columns = [column[0] for column in cursor.description]
    rows = [[_plain(value) for value in row] for row in cursor.fetchmany(MOST_ROWS)]
    return {"columns": columns, "rows": rows}


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str | None) else str(value)


def _may(action: int, *_: str | None) -> int:
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY
