"""The view `model_runs`, with the document's columns and words, over Leasehold's own view of its jobs.

It is read with plain SQL. Nobody writes through it: the engine holds the rows."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import Any

from .app import app

COLUMNS = (
    "id", "model", "status", "lease_owner", "lease_expires_at", "created_at", "started_at", "finished_at",
    "attempt_count", "result_ref", "last_error",
)  # fmt: skip

VIEW = """
{create} model_runs AS
SELECT j.id, {model} AS model,
    CASE j.state WHEN 'pending' THEN 'PENDING' WHEN 'queued' THEN 'PENDING' WHEN 'timed_out' THEN 'FAILED'
        ELSE upper(j.state) END AS status,
    j.worker AS lease_owner, j.lease_expires_at, j.created_at, j.first_started_at AS started_at, j.finished_at,
    j.attempt AS attempt_count, j.result_ref, j.error AS last_error
FROM {jobs} AS j WHERE j.task = 'model_run'
"""
SQLITE = {
    "create": "CREATE VIEW IF NOT EXISTS",
    "model": "json_extract(j.args, '$.model')",
    "jobs": "leasehold_jobs",
}
POSTGRES = {
    "create": "CREATE OR REPLACE VIEW",
    "model": "j.args::json ->> 'model'",
    "jobs": f'"{os.environ.get("LEASEHOLD_SCHEMA", "leasehold")}".jobs',
}
ON_SQLITE = app.url.startswith("sqlite:")


def prepare() -> None:
    """Once, before the first run: the engine's tables, then the view."""
    app.upgrade()
    execute(VIEW.format(**(SQLITE if ON_SQLITE else POSTGRES)))


def read_run(run_id: str) -> dict[str, Any] | None:
    """A row of the view, as JSON."""
    rows = execute(f"SELECT {', '.join(COLUMNS)} FROM model_runs WHERE id = ?", run_id)
    told = (value if value is None or isinstance(value, int) else str(value) for row in rows for value in row)
    return dict(zip(COLUMNS, told, strict=True)) if rows else None


def execute(statement: str, *values: Any) -> list[tuple[Any, ...]]:
    if ON_SQLITE:
        with (
            closing(sqlite3.connect(app.url.removeprefix("sqlite:///"), timeout=30)) as connection,
            connection,
        ):
            return connection.execute(statement, values).fetchall()
    import psycopg

    with psycopg.connect(app.url, autocommit=True) as connection:
        cursor = connection.execute(statement.replace("?", "%s").encode(), values or None)
        return cursor.fetchall() if cursor.description else []
