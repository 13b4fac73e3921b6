"""The workers' own reports, and the heads of lanes: what `why`, `lanes` and `queues` show."""

from __future__ import annotations

import json
from typing import Any

from leasehold.domain.checks.cursors import cursor_of, parts_of
from leasehold.domain.checks.numbers import check_page
from leasehold.domain.leases import LeasePage, LeaseRow
from leasehold.domain.records import ExecutionRow, LaneHolder, WorkerCard
from leasehold.domain.states import State
from leasehold.stores.database.rows import record_of
from leasehold.stores.database.wakeups import NearWakeups
from leasehold.stores.verbs.writing import Verbs

SILENT_AFTER = 45.0
"""A worker reports every 10 seconds; one that was silent for longer than this counts as gone."""


class WorkerVerbs(Verbs):
    """Workers, and what they hold."""

    def beat_worker(self, card: WorkerCard) -> None:
        """Store what a worker reports about itself. No decision depends on it."""
        self._run(
            "beat_worker",
            worker=card.name,
            queues=json.dumps(card.queues),
            tasks=json.dumps(card.tasks),
            sites=json.dumps(card.sites),
            tenants=json.dumps(card.tenants),
            concurrency=card.concurrency,
            running=card.running,
            draining=card.draining,
            version=card.version,
        )

    def forget_worker(self, worker: str) -> None:
        """Delete a worker's report."""
        self._run("forget_worker", worker=worker)

    def forget_silent_workers(self, age: float = 3600.0) -> None:
        """Delete reports that are older than `age` seconds."""
        self._run("forget_silent_workers", age=age)

    def list_workers(self, age: float = SILENT_AFTER, tenant: str | None = None) -> list[WorkerCard]:
        """Workers that reported in the last `age` seconds and serve this store, or this tenant of it."""
        return [card for row in self._rows("list_workers", age=age) if (card := _card(row)).serves(tenant)]

    def near_wakeups(self) -> NearWakeups:
        """`wakeups` for hints from this process only, without a connection or a thread."""
        return NearWakeups(self.label)

    def list_leases(self, worker: str | None = None, limit: int = 50, cursor: str | None = None) -> LeasePage:
        """Which worker runs which job, in the order of the jobs' arrival; `cursor` is the last page's `next`."""
        check_page(limit)
        (after,) = (0,) if cursor is None else parts_of(cursor, int)
        requested = {"worker": worker, "after": after, "limit": limit + 1}
        rows = self._rows("list_leases", **requested)
        more = cursor_of(rows[limit - 1]["seq"]) if len(rows) > limit else None
        return LeasePage([_lease(row) for row in rows[:limit]], more)

    def list_executions(self, limit: int = 500) -> list[ExecutionRow]:
        """Executions outside the workers, watched or orphaned, the oldest first."""
        return [record_of(ExecutionRow, row) for row in self._rows("list_executions", limit=limit)]

    def list_lanes(self, limit: int = 500) -> list[LaneHolder]:
        """Lanes that are held or halted, and the job that does so."""
        rows = self._rows("list_lanes", limit=limit)
        return [record_of(LaneHolder, row, state=State(row["state"])) for row in rows]

    def list_gates(self) -> list[tuple[str, str]]:
        """Every (queue, task) that ever had a job."""
        return [(queue, task) for queue, task in self._tuples("list_gates")]

    def lane_front(self, lane: str) -> tuple[str | None, str | None]:
        """The first job of the lane, and the job that blocks it."""
        row = self._rows("find_lane_head", lane=lane)[0]
        return row["head"], row["blocker"]


def _lease(row: dict[str, Any]) -> LeaseRow:
    del row["seq"]
    now = row.pop("now")
    return record_of(LeaseRow, row, expires_in=(row["expires_at"] - now).total_seconds())


def _card(row: dict[str, Any]) -> WorkerCard:
    texts = {name: tuple(json.loads(row[name])) for name in ("queues", "tasks", "sites", "tenants")}
    values = {name: value for name, value in row.items() if name != "worker"}
    return WorkerCard(**values | texts, name=row["worker"])
