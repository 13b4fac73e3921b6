"""Our own connections to the database that the jobs are in: SQLite or PostgreSQL, with the same statements."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from examples.tool_runner.app import app

ON_SQLITE = app.url.startswith("sqlite")


@contextmanager
def transaction() -> Iterator[Any]:
    """A connection whose transaction is committed at the end, and rolled back if something is raised."""
    if ON_SQLITE:
        connection: Any = sqlite3.connect(app.url.removeprefix("sqlite:///"), timeout=30)
    else:
        import psycopg

        connection = psycopg.connect(app.url)
    try:
        with connection:
            yield connection
    finally:
        connection.close()


def execute(connection: Any, statement: str, *values: Any) -> list[dict[str, Any]]:
    """Values are written as `?`; rows come back by the names of their columns."""
    cursor = connection.execute(statement if ON_SQLITE else statement.replace("?", "%s"), values)
    if cursor.description is None:
        return []
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def query(statement: str, *values: Any) -> list[dict[str, Any]]:
    with transaction() as connection:
        return execute(connection, statement, *values)
