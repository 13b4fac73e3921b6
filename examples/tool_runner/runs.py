"""What the application does with tool runs: request, read, cancel."""

from __future__ import annotations

import contextlib
import json
import uuid
from typing import Any

from examples.tool_runner.app import app, settings
from examples.tool_runner.database import execute, query, transaction
from examples.tool_runner.tasks import retry, run_tool
from leasehold.errors import DuplicateJob, InvalidState, JobNotSucceeded

Run = dict[str, Any]
COLUMNS = "run_id, tool, argument, status, requested_at, started_at, finished_at, result, exit_code, error"


class RunExists(Exception):
    """This run_id was requested before."""


def enqueue_run(
    tool: str,
    argument: str,
    run_id: str | None = None,
    *,
    queue: str = "default",
    priority: int = 0,
    max_attempts: int = 1,
    timeout: float | None = None,
) -> Run:
    """The row and the job are stored in one transaction: there is never one without the other."""
    run_id = run_id or str(uuid.uuid4())
    with transaction() as connection:
        stored = execute(
            connection,
            "INSERT INTO tool_runs (run_id, tool, argument, status) VALUES (?, ?, ?, 'queued')"
            " ON CONFLICT DO NOTHING RETURNING run_id",
            *(run_id, tool, argument),
        )
        if not stored:
            raise RunExists(run_id)
        task = run_tool.using(
            tx=connection,
            queue=queue,
            priority=priority,
            retry=retry(max_attempts),
            timeout=timeout or settings.timeout,
        )
        task.enqueue(run_id=run_id, tool=tool, argument=argument)
    return read_run(run_id)


def run_at_once(tool: str, argument: str, run_id: str | None = None, *, timeout: float | None = None) -> Run:
    """Without a queue: cap and reject. Raises AtCapacity, and then nothing is stored. The mirror makes the row of a run
    that has begun; what it cannot know is added here."""
    run_id = run_id or str(uuid.uuid4())
    try:
        task = run_tool.using(timeout=timeout or settings.timeout)
        job = app.run_now(task, run_id=run_id, tool=tool, argument=argument)
    except DuplicateJob:
        raise RunExists(run_id) from None
    with transaction() as connection:
        execute(
            connection, "UPDATE tool_runs SET tool = ?, argument = ? WHERE run_id = ?", tool, argument, run_id
        )
    with contextlib.suppress(JobNotSucceeded):  # the row says how it ended
        job.result()
    return read_run(run_id)


def read_run(run_id: str) -> Run:
    """Raises KeyError."""
    for run in query(f"SELECT {COLUMNS} FROM tool_runs WHERE run_id = ?", run_id):
        return _shown(run)
    raise KeyError(run_id)


def list_runs(limit: int = 50) -> list[Run]:
    runs = query(f"SELECT {COLUMNS} FROM tool_runs ORDER BY requested_at DESC LIMIT ?", limit)
    return [_shown(run) for run in runs]


def _shown(run: Run) -> Run:
    """SQLite keeps JSON as text."""
    return run | {"result": json.loads(run["result"])} if isinstance(run["result"], str) else run


def cancel_run(run_id: str) -> Run:
    """A queued run is cancelled at once, a running one when its container has ended. One that has ended stays as it
    is."""
    for found in app.jobs(task="run_tool", tag=f"run:{run_id}").jobs:
        with contextlib.suppress(InvalidState):  # it has ended
            app.get(found.id).cancel("cancelled by the user")
    return read_run(run_id)
