"""Workers page: the live workers, their leases, and executions outside of workers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from leasehold.domain.checks.times import seconds
from leasehold.domain.frozen import frozen
from leasehold.domain.job import DEFAULT_LEASE
from leasehold.domain.records import ExecutionRow, LeaseRow, WorkerCard
from leasehold.operations import workers
from leasehold.surfaces.dashboard.page import Action, DashboardPage
from leasehold.surfaces.dashboard.page_request import PageRequest
from leasehold.surfaces.dashboard.render import Badge, mark

ROWS = 50
MOST_EXECUTIONS = 500
SILENT_AFTER = 25.0
"""Seconds. A worker reports every 10 s; after 45 s without a report it no longer counts as live, and is not listed."""


@frozen
class Held:
    """A lease, and its length as far as we know it."""

    row: LeaseRow
    length: float
    missed: bool


def read(page_request: PageRequest) -> dict[str, Any]:
    """The values of the page. Workers are about all queues: a caller who may see only some queues gets none."""
    operations = page_request.operations
    worker = page_request.request.query_params.get("worker") or None
    cursor = page_request.request.query_params.get("cursor") or None
    limited = bool(page_request.caller.access.queues)
    cards = [] if limited else page_request.caller.workers()
    page = operations.call(workers.list_leases, worker, ROWS, cursor)
    running = operations.call(workers.list_executions, MOST_EXECUTIONS)
    executions = page_request.caller.visible_rows(running)
    now = operations.now()
    return {
        "now": now,
        "mark": mark,
        "limited": limited,
        "workers": [(card, look_of(card, now)) for card in sorted(cards, key=lambda card: card.name)],
        "draining": sum(card.draining for card in cards),
        "used": sum(card.running for card in cards),
        "places": sum(card.concurrency for card in cards),
        "sites": {site for card in cards for site in card.sites},
        "worker": worker,
        "leases": [_held(page_request, row) for row in page_request.caller.visible_rows(page.leases)],
        "next": page.next,
        "cursor": cursor,
        "executions": _without_worker_first(executions),
        "without_worker": sum(row.worker is None for row in executions),
    }


def look_of(card: WorkerCard, now: datetime) -> Badge:
    if card.seen_at is not None and (now - card.seen_at).total_seconds() > SILENT_AFTER:
        return Badge("warn", "silent", "it should report every 10 s; after 45 s it no longer counts as live")
    if card.problems:
        return Badge("warn", "in trouble", "what it reported last stands below")
    if card.draining:
        return Badge("stopping", "draining", "it takes no new jobs, and ends after its last job")
    return Badge("running", "working") if card.running else Badge("ok", "ready")


def _held(page_request: PageRequest, row: LeaseRow) -> Held:
    """A lease with its length: that of its task's settings, if the task is known here. A call may have set another."""
    task = page_request.caller.app.__internals__.tasks.definitions.get(row.task)
    length = DEFAULT_LEASE if task is None else seconds(task.settings.lease, "lease")
    return Held(row, max(length, row.expires_in), row.expires_in < 0)


def _without_worker_first(rows: list[ExecutionRow]) -> list[ExecutionRow]:
    return sorted(rows, key=lambda row: row.worker is not None)


PAGE = DashboardPage("workers", "workers", "workers.html", read)
ACTIONS: tuple[Action, ...] = ()
"""The page of a job has the button to abandon an execution without a worker."""
