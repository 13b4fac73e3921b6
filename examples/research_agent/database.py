"""Our own tables, in the same database as the jobs: SQLite or PostgreSQL, with the same few statements."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from .app import STATES, app, set_limits

Row = tuple[Any, ...]

TABLES = """
CREATE TABLE IF NOT EXISTS tasks (
    task_id TEXT PRIMARY KEY, status TEXT NOT NULL, reason TEXT, created_at TEXT NOT NULL, updated_at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS pages (
    task_id TEXT NOT NULL, url TEXT NOT NULL, job_id TEXT NOT NULL, domain TEXT NOT NULL, title TEXT NOT NULL,
    text TEXT NOT NULL, PRIMARY KEY (task_id, url));
CREATE TABLE IF NOT EXISTS papers (
    task_id TEXT NOT NULL, paper_id TEXT NOT NULL, job_id TEXT NOT NULL, title TEXT NOT NULL, url TEXT NOT NULL,
    PRIMARY KEY (task_id, paper_id));
CREATE TABLE IF NOT EXISTS fragments (
    fragment_id TEXT PRIMARY KEY, task_id TEXT NOT NULL, job_id TEXT NOT NULL, url TEXT NOT NULL,
    domain TEXT NOT NULL, text TEXT NOT NULL, embedding TEXT);
CREATE TABLE IF NOT EXISTS claims (
    claim_id TEXT PRIMARY KEY, task_id TEXT NOT NULL, job_id TEXT NOT NULL, url TEXT NOT NULL,
    domain TEXT NOT NULL, text TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS edges (
    fragment_id TEXT NOT NULL, claim_id TEXT NOT NULL, task_id TEXT NOT NULL, job_id TEXT NOT NULL,
    relation TEXT NOT NULL, score DOUBLE PRECISION NOT NULL, UNIQUE (fragment_id, claim_id));
CREATE TABLE IF NOT EXISTS cites (
    task_id TEXT NOT NULL, citing_id TEXT NOT NULL, cited_id TEXT NOT NULL, job_id TEXT NOT NULL,
    UNIQUE (task_id, citing_id, cited_id));
CREATE TABLE IF NOT EXISTS auth_items (
    job_id TEXT NOT NULL, domain TEXT NOT NULL, task_id TEXT NOT NULL, url TEXT NOT NULL, challenge TEXT NOT NULL,
    outcome TEXT, PRIMARY KEY (job_id, domain));
CREATE INDEX IF NOT EXISTS fragments_of_task ON fragments (task_id);
CREATE INDEX IF NOT EXISTS claims_of_job ON claims (job_id);
"""

VIEWS = {
    "jobs": """
        SELECT CAST(id AS TEXT) AS id, task AS kind, {states} AS state, group_name AS task_id, -priority AS priority,
            args AS input, result AS output, error AS error_message, created_at, started_at, finished_at
        FROM {engine_jobs}""",
    "intervention_queue": """
        SELECT a.job_id, a.task_id, a.domain, a.url, a.challenge,
            COALESCE(a.outcome, CASE WHEN j.state IN ('cancelled', 'failed') THEN 'cancelled' ELSE 'pending' END)
                AS status
        FROM auth_items a JOIN jobs j ON j.id = a.job_id""",
}
"""What the engine knows, under the document's names. Nothing is written twice, so nothing can disagree."""


def on_postgres() -> bool:
    return app.url.startswith("postgres")


def sqlite_path() -> str:
    return app.url.removeprefix("sqlite:///")


@contextmanager
def transaction() -> Iterator[Any]:
    """A connection with an open transaction: committed at the end of the block, or rolled back."""
    if on_postgres():
        import psycopg

        with psycopg.connect(app.url) as session:
            yield session
    else:
        with closing(sqlite3.connect(sqlite_path(), timeout=30)) as connection, connection:
            yield connection


def execute(connection: Any, statement: str, values: Sequence[Any] = ()) -> list[Row]:
    """Statements are written with `?`, which psycopg calls `%s`."""
    if not isinstance(connection, sqlite3.Connection):
        statement = statement.replace("?", "%s")
    cursor = connection.execute(statement, tuple(values))
    return [tuple(row) for row in cursor.fetchall()] if cursor.description else []


def execute_many(connection: Any, statement: str, rows: Sequence[Sequence[Any]]) -> None:
    """One statement for many rows, without a round trip for each: a transaction that ends a job has five seconds."""
    if not isinstance(connection, sqlite3.Connection):
        statement = statement.replace("?", "%s")
    connection.cursor().executemany(statement, [tuple(row) for row in rows])


def read(statement: str, values: Sequence[Any] = ()) -> list[Row]:
    with transaction() as connection:
        return execute(connection, statement, values)


def set_up() -> None:
    """Tables of the engine and our own, and the limits. May be repeated."""
    app.upgrade()
    words = " ".join(f"WHEN '{state}' THEN '{word}'" for state, word in STATES.items())
    schema = os.environ.get("LEASEHOLD_SCHEMA", "leasehold")
    fields = {
        "states": f"CASE CAST(state AS TEXT) {words} END",
        "engine_jobs": f'"{schema}".jobs' if on_postgres() else "leasehold_jobs",
    }
    create = "CREATE OR REPLACE VIEW" if on_postgres() else "CREATE VIEW IF NOT EXISTS"
    with transaction() as connection:
        for statement in TABLES.split(";"):
            if statement.strip():
                execute(connection, statement)
        for name, query in VIEWS.items():
            execute(connection, f"{create} {name} AS {query.format(**fields)}")
    set_limits()
