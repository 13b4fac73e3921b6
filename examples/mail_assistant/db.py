"""The application's own tables. They are in the database that holds the jobs, so one transaction can change both."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from queue import Empty, LifoQueue
from typing import Any

JOB_TYPES = ("sync", "classify", "draft", "cleanup", "rework", "manual_draft", "agent_process")

SCHEMA = """
CREATE TABLE IF NOT EXISTS users (
    id TEXT PRIMARY KEY, email TEXT NOT NULL UNIQUE, gmail_token TEXT NOT NULL, is_active INTEGER NOT NULL,
    labels TEXT NOT NULL, settings TEXT NOT NULL, watch_expiration TEXT);
CREATE TABLE IF NOT EXISTS sync_state (
    user_id TEXT PRIMARY KEY, last_history_id TEXT NOT NULL, last_sync_at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS emails (
    user_id TEXT NOT NULL, gmail_thread_id TEXT NOT NULL, gmail_message_id TEXT NOT NULL,
    sender_email TEXT NOT NULL, subject TEXT NOT NULL, classification TEXT NOT NULL, reasoning TEXT NOT NULL,
    status TEXT NOT NULL, draft_id TEXT, rework_count INTEGER NOT NULL DEFAULT 0,
    last_rework_instruction TEXT, updated_at TEXT NOT NULL, PRIMARY KEY (user_id, gmail_thread_id));
CREATE TABLE IF NOT EXISTS email_events (
    id {serial}, user_id TEXT NOT NULL, gmail_thread_id TEXT NOT NULL, event_type TEXT NOT NULL,
    detail TEXT NOT NULL, job_id TEXT NOT NULL, created_at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS llm_calls (
    id {serial}, user_id TEXT NOT NULL, gmail_thread_id TEXT NOT NULL, call_type TEXT NOT NULL,
    model TEXT NOT NULL, prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
    latency_ms INTEGER NOT NULL, error TEXT, job_id TEXT NOT NULL, created_at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS agent_runs (
    job_id TEXT PRIMARY KEY, user_id TEXT NOT NULL, gmail_thread_id TEXT NOT NULL,
    gmail_message_id TEXT NOT NULL, profile TEXT NOT NULL, route_rule TEXT NOT NULL, status TEXT NOT NULL,
    tool_calls TEXT NOT NULL, iterations INTEGER NOT NULL, final_message TEXT, created_at TEXT NOT NULL,
    completed_at TEXT);
DROP VIEW IF EXISTS jobs;
CREATE VIEW jobs AS
SELECT id, task AS job_type, {user_id} AS user_id, args AS payload, CASE state {statuses} END AS status,
    attempt AS attempts, max_attempts, error AS error_message, created_at, started_at, finished_at AS completed_at
FROM {engine_jobs} WHERE task IN ({job_types})
"""

STATUSES = {
    "pending": "pending",
    "queued": "pending",
    "waiting": "pending",
    "paused": "pending",
    "running": "running",
    "succeeded": "completed",
    "failed": "failed",
    "timed_out": "failed",
    "cancelled": "failed",
}
"""The document's four words for every state. Only an operator pauses or cancels a job here."""


def now() -> str:
    return datetime.now(UTC).isoformat()


class Database:
    """Plain SQL with `?` on both databases, over a few connections that are kept open."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.is_sqlite = url.startswith("sqlite:")
        self._idle: LifoQueue[Any] = LifoQueue()

    def create(self) -> None:
        """Make what is missing. Several processes may start at once: one after the other."""
        text = SCHEMA.format(
            serial="INTEGER PRIMARY KEY" if self.is_sqlite else "BIGSERIAL PRIMARY KEY",
            user_id="json_extract(args, '$.user_id')" if self.is_sqlite else "args::jsonb->>'user_id'",
            engine_jobs="leasehold_jobs" if self.is_sqlite else "leasehold.jobs",
            job_types=", ".join(f"'{name}'" for name in JOB_TYPES),
            statuses=" ".join(f"WHEN '{state}' THEN '{word}'" for state, word in STATUSES.items()),
        )
        with self.transaction() as connection:
            if not self.is_sqlite:
                connection.execute("SELECT pg_advisory_xact_lock(726)")
                connection.execute("SET LOCAL client_min_messages = error")
            for statement in text.split(";"):
                connection.execute(statement)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        connection = self._take()
        try:
            if self.is_sqlite:
                connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.commit()
        except BaseException:
            connection.rollback()
            raise
        finally:
            self._idle.put(connection)

    def rows(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        connection = self._take()
        try:
            cursor = run(connection, statement, *values)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        finally:
            connection.rollback()
            self._idle.put(connection)

    def row(self, statement: str, *values: Any) -> dict[str, Any] | None:
        found = self.rows(statement, *values)
        return found[0] if found else None

    def write(self, statement: str, *values: Any) -> None:
        """One statement in a transaction of its own."""
        with self.transaction() as connection:
            run(connection, statement, *values)

    def close(self) -> None:
        while not self._idle.empty():
            self._idle.get().close()

    def _take(self) -> Any:
        try:
            return self._idle.get_nowait()
        except Empty:
            return self._connect()

    def _connect(self) -> Any:
        if self.is_sqlite:
            path = self.url.removeprefix("sqlite:///")
            return sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        import psycopg

        return psycopg.connect(self.url)


def run(connection: Any, statement: str, *values: Any) -> Any:
    """A statement with `?` over a connection of sqlite3 or psycopg: ours, or one that the engine lends."""
    if not isinstance(connection, sqlite3.Connection):
        statement = statement.replace("?", "%s")
    return connection.execute(statement, values)


def upsert(connection: Any, table: str, key: tuple[str, ...], values: dict[str, Any]) -> None:
    """Insert a row, or bring the row with this key up to date."""
    changes = ", ".join(f"{name} = excluded.{name}" for name in values if name not in key)
    run(
        connection,
        f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})"
        f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changes}",
        *values.values(),
    )


def log_event(connection: Any, user_id: str, thread_id: str, event: str, job_id: str, **detail: Any) -> None:
    run(
        connection,
        "INSERT INTO email_events (user_id, gmail_thread_id, event_type, detail, job_id, created_at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        *(user_id, thread_id, event, json.dumps(detail), job_id, now()),
    )
