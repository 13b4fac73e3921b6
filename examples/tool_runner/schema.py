"""The tables of the application: `tool_runs`, which is ours, and the view `tool_run_jobs` over the rows of Leasehold.

`make_schema` may be called at any time, also to bring an older installation up to date.
"""

from __future__ import annotations

from examples.tool_runner.app import app
from examples.tool_runner.database import ON_SQLITE, execute, transaction
from examples.tool_runner.tasks import run_tool

STATUSES = {
    "pending": "queued",
    "queued": "queued",
    "waiting": "queued",
    "paused": "queued",
    "running": "running",
    "succeeded": "succeeded",
    "failed": "failed",
    "timed_out": "timed_out",
    "cancelled": "cancelled",
}
"""The document's word for every state. Tool runs are never pending or waiting; one that an operator has paused will run
again when it is resumed, so it is queued."""

TOOL_RUNS = """
CREATE TABLE IF NOT EXISTS tool_runs (
    run_id       {uuid} PRIMARY KEY,
    tool         TEXT,
    argument     TEXT,
    status       TEXT NOT NULL CHECK (status IN ('queued', 'running', 'succeeded', 'failed', 'timed_out', 'cancelled')),
    requested_at {instant},
    started_at   {instant},
    finished_at  {instant},
    result       {json},
    exit_code    INTEGER,
    error        TEXT
)"""

STATUS = "CASE state " + " ".join(f"WHEN '{ours}' THEN '{word}'" for ours, word in STATUSES.items()) + " END"

VIEW = f"""
CREATE VIEW tool_run_jobs AS
SELECT id, {{run_id}} AS run_id, {STATUS} AS status, queue, priority,
    (SELECT count(*) FROM {{prefix}}execution AS x JOIN {{prefix}}job AS j ON j.seq = x.job WHERE j.id = jobs.id)
        AS attempts,
    max_attempts, available_at, worker AS locked_by, lease_expires_at AS locked_until,
    {{last_error}} AS last_error, created_at, updated_at, first_started_at AS started_at, finished_at
FROM {{prefix}}jobs AS jobs WHERE task = 'run_tool'"""

ON_THIS_DATABASE = (
    {
        "prefix": "leasehold_",
        "run_id": "json_extract(args, '$.run_id')",
        "last_error": "substr(error, 1, instr(error || char(10), char(10)) - 1)",
    }
    if ON_SQLITE
    else {
        "prefix": "leasehold.",
        "run_id": "CAST(args ->> 'run_id' AS uuid)",
        "last_error": "split_part(error, chr(10), 1)",
    }
)


def make_schema() -> None:
    """The view goes first and comes last: an upgrade may change what it looks at."""
    with transaction() as connection:
        execute(connection, "DROP VIEW IF EXISTS tool_run_jobs")
    app.upgrade()
    types = {"uuid": "TEXT", "instant": "TEXT", "json": "TEXT"}
    if not ON_SQLITE:
        types = {"uuid": "uuid", "instant": "timestamptz", "json": "jsonb"}
    with transaction() as connection:
        execute(connection, TOOL_RUNS.format(**types))
    make_mirror()
    with transaction() as connection:
        execute(connection, VIEW.format(**ON_THIS_DATABASE))


def make_mirror() -> None:
    """From here on triggers write the row of a run in the transaction that moves its job, whoever moves it. `insert` is
    for runs without a queue, whose job begins before anything else could be stored."""
    app.mirrors.add(
        run_tool,
        table="tool_runs",
        key="run_id",
        argument="run_id",
        status="status",
        states=STATUSES,
        columns={
            "requested": "requested_at",
            "started": "started_at",
            "finished": "finished_at",
            "result": "result",
            "exit_code": "exit_code",
            "error": "error",
        },
        insert=True,
    )
