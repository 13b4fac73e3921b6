"""queue_targets, get_status, stop_task and resolve_auth: what the document's tools do, apart from how
they are called."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from leasehold import State
from leasehold.types import GroupStatus, Notification

from . import database
from .app import STATES, app
from .options import Mode, Options, Reason, Scope
from .settings import FULL_WAIT, GRACEFUL_WAIT, PRIORITIES
from .store import close_auth_item
from .tasks import target_queue

KINDS = {"all_jobs": None, "target_queue_only": ["target_queue"]}
WAITS = {"graceful": GRACEFUL_WAIT, "immediate": 0.0, "full": FULL_WAIT}


class UnknownTask(LookupError):
    def __init__(self, task_id: str) -> None:
        super().__init__(f"no task {task_id!r}; make it with queue_targets")


def queue_targets(task_id: str, targets: list[str], options: Options) -> dict[str, Any]:
    """The task is active and its jobs are there, in one transaction. Targets that are queued or running
    are skipped."""
    if options.task_budget_pages is not None:
        app.group(task_id).budget(pages=options.task_budget_pages)
    now = datetime.now(UTC).isoformat()
    with database.transaction() as connection:
        database.execute(
            connection,
            "INSERT INTO tasks (task_id, status, created_at, updated_at) VALUES (?, 'active', ?, ?)"
            " ON CONFLICT (task_id) DO UPDATE SET status = 'active', reason = NULL, updated_at = ?",
            (task_id, now, now, now),
        )
        call = target_queue.using(tx=connection, group=task_id, priority=-PRIORITIES[options.priority])
        jobs = call.enqueue_many(
            {"task_id": task_id, "target": target, "options": options} for target in targets
        )
        made = [job.id for job in jobs if job.created]
    return {"ok": True, "queued_count": len(made), "target_ids": made}


async def get_status(task_id: str, wait: float = 0, since: int | None = None) -> dict[str, Any]:
    """Waiting costs nothing: one thread of the engine watches for all who wait, and is woken by the
    database."""
    task = await asyncio.to_thread(_task, task_id)
    status = await app.group(task_id).astatus(wait=wait, since=since, partial=True)
    if wait:
        task = await asyncio.to_thread(_task, task_id)
    return task | await asyncio.to_thread(_reported, status)


def stop_task(task_id: str, scope: Scope, mode: Mode, reason: Reason) -> dict[str, Any]:
    """Mode and reason are the engine's own. What is ours: the task is paused whatever the scope was, and
    questions of jobs outside the scope are closed as well."""
    _pause(task_id, reason)
    report = app.group(task_id).stop(KINDS[scope], mode=mode, reason=reason, wait=WAITS[mode])
    closed = _close_questions(task_id)
    return {
        "ok": True,
        "task_id": task_id,
        "status": "paused",
        "reason": reason,
        "scope": scope,
        "mode": mode,
        "cancelled_counts": {kind: _words(counts) for kind, counts in report.cancelled_counts.items()},
        "unaffected_tasks": sorted(report.unaffected_tasks),
        "still_running": len(report.still_running),
        "closed_auth_items": closed,
    }


def resolve_auth(job_id: str, domain: str, solution: str) -> dict[str, Any]:
    """A human has solved the CAPTCHA: the job goes on."""
    app.questions.answer(job_id, f"auth {domain}", {"solution": solution})
    return {"ok": True, "job_id": job_id}


@app.on("budget_exhausted")
def stop_when_exhausted(event: Notification) -> None:
    """Exhausting the task's budget is a stop with that reason: what runs finds no page left and ends by
    itself, what was found is still verified. An event may come twice, or late. What counts is whether
    the budget is exceeded now, so one that was raised since stops nothing."""
    if event.data["scope"] != "group":
        return
    lines = app.group(event.data["name"]).budget()
    if any(line.unit == "pages" and line.limit is not None and line.spent > line.limit for line in lines):
        stop_task(event.data["name"], "target_queue_only", "graceful", "budget_exhausted")


def _task(task_id: str) -> dict[str, Any]:
    found = database.read("SELECT status, reason FROM tasks WHERE task_id = ?", (task_id,))
    if not found:
        raise UnknownTask(task_id)
    return {"ok": True, "task_id": task_id, "status": found[0][0], "reason": found[0][1]}


def _reported(status: GroupStatus) -> dict[str, Any]:
    targets = status.counts.get("target_queue", {})
    pending = database.read(
        "SELECT q.job_id, q.domain, q.url, q.challenge FROM intervention_queue q JOIN jobs j ON j.id = q.job_id"
        " WHERE q.task_id = ? AND q.status = 'pending' AND j.state = 'awaiting_auth'",
        (status.name,),
    )
    lines = app.group(status.name).budget()
    return {
        "progress": f"{targets.get(State.SUCCEEDED, 0)}/{sum(targets.values())}",
        "live": status.live,
        "version": status.version,
        "changed": status.changed,
        "counts": {kind: _words(counts) for kind, counts in status.counts.items()},
        "searches": _searches(status.name),
        "results": [one.result for one in status.results if one.task == "target_queue"],
        "partial": [
            {"job_id": run.id, "pages": [event.data for event in run.emitted]}
            for run in status.running
            if run.task == "target_queue"
        ],
        "errors": [
            {"job_id": one.id, "kind": one.task, "error": (one.error or "").partition("\n")[0]}
            for one in status.errors
        ],
        "awaiting_auth": [
            dict(zip(("job_id", "domain", "url", "challenge"), row, strict=True)) for row in pending
        ],
        "budget": {line.unit: {"spent": line.spent, "limit": line.limit} for line in lines},
    }


def _searches(task_id: str, most: int = 100) -> list[dict[str, Any]]:
    found = database.read(
        "SELECT id, state, input FROM jobs WHERE task_id = ? AND kind = 'target_queue'"
        " ORDER BY created_at DESC LIMIT ?",
        (task_id, most),
    )
    return [{"target_id": id, "state": state, "target": _target(args)} for id, state, args in found]


def _target(args: Any) -> str:
    told = json.loads(args) if isinstance(args, str) else args
    return str(told["target"])


def _words(counts: Mapping[State, int]) -> dict[str, int]:
    told: dict[str, int] = {}
    for state, number in counts.items():
        told[STATES[state]] = told.get(STATES[state], 0) + number
    return told


def _pause(task_id: str, reason: str) -> None:
    _task(task_id)
    with database.transaction() as connection:
        database.execute(
            connection,
            "UPDATE tasks SET status = 'paused', reason = ?, updated_at = ? WHERE task_id = ?",
            (reason, datetime.now(UTC).isoformat(), task_id),
        )


def _close_questions(task_id: str) -> int:
    """The engine closes those of the jobs that it cancels. The others are told that nobody will answer,
    and go on."""
    left = app.questions.list(group=task_id)
    for question in left:
        with database.transaction() as connection:
            close_auth_item(connection, question.job_id, question.key.removeprefix("auth "), "cancelled")
        app.questions.answer(question.job_id, question.key, {"cancelled": True}, actor="stop_task")
    return len(left)
