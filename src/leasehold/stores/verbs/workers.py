"""Workers as they tell of themselves, and what stands in which lane: what `why`, `lanes` and `queues` show."""

from __future__ import annotations

import json
from typing import Any

from leasehold.domain.checks.cursors import cursor_of, parts_of
from leasehold.domain.checks.numbers import check_page
from leasehold.domain.leases import LeasePage, LeaseRow
from leasehold.domain.states import State
from leasehold.domain.views import ExecutionRow, LaneHolder, WorkerCard
from leasehold.stores.base.rows import record_of
from leasehold.stores.verbs.writing import Verbs

SILENT_AFTER = 45.0
"""A worker tells of itself every 10 seconds; one that was silent for longer than this is not counted on."""


class WorkerVerbs(Verbs):
    def beat_worker(self, card: WorkerCard) -> None:
        self._database.single(
            lambda session: session.run(
                "beat_worker",
                worker=card.owner,
                queues=json.dumps(card.queues),
                tasks=json.dumps(card.kinds),
                sites=json.dumps(card.sites),
                tenants=json.dumps(card.tenants),
                concurrency=card.concurrency,
                running=card.running,
                draining=card.draining,
                version=card.version,
            )
        )

    def forget_worker(self, owner: str) -> None:
        self._database.single(lambda session: session.run("forget_worker", worker=owner))

    def forget_silent_workers(self, age: float = 3600.0) -> None:
        self._database.single(lambda session: session.run("forget_silent_workers", age=age))

    def list_workers(self, age: float = SILENT_AFTER, tenant: str | None = None) -> list[WorkerCard]:
        rows = self._database.read(lambda session: session.rows("list_workers", age=age))
        return [card for row in rows if (card := _card(row)).serves(tenant)]

    def list_leases(self, owner: str | None = None, limit: int = 50, cursor: str | None = None) -> LeasePage:
        check_page(limit)
        (after,) = (0,) if cursor is None else parts_of(cursor, int)
        asked = {"worker": owner, "after": after, "limit": limit + 1}
        rows = self._database.read(lambda session: session.rows("list_leases", **asked))
        more = cursor_of(rows[limit - 1]["seq"]) if len(rows) > limit else None
        return LeasePage([_lease(row) for row in rows[:limit]], more)

    def list_executions(self, limit: int = 500) -> list[ExecutionRow]:
        rows = self._database.read(lambda session: session.rows("list_executions", limit=limit))
        return [record_of(ExecutionRow, row) for row in rows]

    def list_lanes(self, limit: int = 500) -> list[LaneHolder]:
        rows = self._database.read(lambda session: session.rows("list_lanes", limit=limit))
        return [record_of(LaneHolder, row, state=State(row["state"])) for row in rows]

    def list_gates(self) -> list[tuple[str, str]]:
        rows = self._database.read(lambda session: session.tuples("list_gates"))
        return [(queue, kind) for queue, kind in rows]

    def lane_front(self, lane: str) -> tuple[str | None, str | None]:
        row = self._database.read(lambda session: session.rows("find_lane_head", lane=lane))[0]
        return row["head"], row["blocker"]


def _lease(row: dict[str, Any]) -> LeaseRow:
    del row["seq"]
    now = row.pop("now")
    return record_of(LeaseRow, row, expires_in=(row["expires_at"] - now).total_seconds())


def _card(row: dict[str, Any]) -> WorkerCard:
    texts = {name: tuple(json.loads(row[name])) for name in ("queues", "tasks", "sites", "tenants")}
    return record_of(WorkerCard, row, **texts)
