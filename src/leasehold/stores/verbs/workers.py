"""Workers' reports, leases, lanes and executions, and the doctor's checks of a store."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime
from typing import Any

from leasehold.domain.checks.numbers import check_page
from leasehold.domain.checks.payload import cursor_of, parts_of
from leasehold.domain.records import (
    ExecutionRow,
    LaneHolder,
    LeasePage,
    LeaseRow,
    QueueCount,
    WorkerCard,
    WorkerProblem,
)
from leasehold.domain.states import State
from leasehold.stores.database.places import record_of
from leasehold.stores.database.wakeups import LocalWakeups
from leasehold.stores.verbs.writing import Verbs

SILENT_AFTER = 45.0
"""A worker reports every 10 seconds; one that was silent for longer than this counts as gone."""


class WorkerVerbs(Verbs):
    """Workers, and what they hold."""

    def report_worker(self, card: WorkerCard) -> None:
        """Store what a worker reports about itself. No decision depends on it."""
        self._run(
            "report_worker",
            worker=card.name,
            queues=json.dumps(card.queues),
            tasks=json.dumps(card.tasks),
            sites=json.dumps(card.sites),
            tenants=json.dumps(card.tenants),
            concurrency=card.concurrency,
            running=card.running,
            draining=card.draining,
            version=card.version,
            problems=json.dumps([[one.tenant, one.text] for one in card.problems]),
        )

    def forget_worker(self, worker: str) -> None:
        """Delete a worker's report."""
        self._run("forget_worker", worker=worker)

    def forget_silent_workers(self, age: float = 3600.0) -> None:
        """Delete reports that are older than `age` seconds."""
        self._run("forget_silent_workers", age=age)

    def list_workers(self, age: float = SILENT_AFTER, tenant: str | None = None) -> list[WorkerCard]:
        """Workers that reported in the last `age` seconds and serve this store, or this tenant of it, whose readers see
        no other tenant's problems."""
        cards = [card for row in self._rows("list_workers", age=age) if (card := _card(row)).serves(tenant)]
        if tenant is None:
            return cards
        own = (None, tenant)
        return [
            replace(card, problems=tuple(one for one in card.problems if one.tenant in own)) for card in cards
        ]

    def local_wakeups(self) -> LocalWakeups:
        """`wakeups` for hints from this process only, without a connection or a thread."""
        return LocalWakeups(self.label)

    def list_leases(self, worker: str | None = None, limit: int = 50, cursor: str | None = None) -> LeasePage:
        """Which worker runs which job, in the order of the jobs' arrival; `cursor` is the last page's `next`."""
        check_page(limit)
        (after,) = (0,) if cursor is None else parts_of(cursor, int)
        parameters = {"worker": worker, "after": after, "limit": limit + 1}
        rows = self._rows("list_leases", **parameters)
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
    problems = tuple(WorkerProblem(*one) for one in json.loads(row["problems"]))
    return WorkerCard(**values | texts | {"problems": problems}, name=row["worker"])


# -- the doctor's checks -----------------------------------------------------------------------------------------------
# No decision depends on these checks.

_NAMED = re.compile(
    r"\b(?:CREATE (?:UNIQUE )?(?P<made>TABLE|VIEW|INDEX)|(?P<check>CONSTRAINT)(?: TRIGGER)?) "
    r"(?:IF NOT EXISTS )?(?:leasehold\.)?\"?(?P<name>[a-z_]+)"
)
_KEYED = re.compile(
    r"^CREATE TABLE leasehold\.([a-z_]+) \((?:(?!^\)).)*?\bPRIMARY KEY\b", re.DOTALL | re.MULTILINE
)
"""A table of PostgreSQL, where a primary key is a constraint that can be dropped alone, named after its table."""

JOBS_EXAMINED = 200_000
"""Jobs that the search for misplaced ones looks at, the newest first. A server ends a statement that takes too long."""
_MISPLACED = {
    "nowhere": "job {} is in no place",
    "twice": "job {} is in more than one place",
    "no_job": "there is a place for number {}, but no such job",
    "group": "group {!r} miscounts its jobs that live",
}


class DatabaseCheckVerbs(Verbs):
    """Checks of the store itself."""

    def now(self) -> datetime:
        """The time on the store's own clock."""
        found: datetime = self._rows("store_now")[0]["now"]
        return found

    def count_by_queue(self, cap: int = 10_000) -> list[QueueCount]:
        """The number of jobs by queue, task and state, each state read up to `cap`, without final states."""
        rows = self._rows("count_by_queue", cap=cap)
        return [QueueCount(row["queue"], row["task"], State(row["state"]), row["jobs"]) for row in rows]

    def stuck_lanes(self, limit: int = 20) -> list[str]:
        """Lanes that no job blocks, whose head is due, and that have no ticket. There must be none."""
        return [row["lane"] for row in self._rows("list_stuck_lanes", limit=limit)]

    def stuck_children(self, limit: int = 20) -> list[str]:
        """Jobs that wait for others although none of those can still end. There must be none."""
        return [row["id"] for row in self._rows("list_stuck_children", limit=limit)]

    def long_expired(self, age: float, limit: int = 20) -> list[str]:
        """Jobs whose lease expired more than `age` seconds ago and that no worker has taken over."""
        return [row["id"] for row in self._rows("list_long_expired", age=age, limit=limit)]

    def misplaced(self, limit: int = 20) -> list[str]:
        """Jobs in no place or in two, and groups that miscount their jobs, as sentences. There must be none."""
        rows = self._rows("list_misplaced", rows=JOBS_EXAMINED, limit=limit)
        return [_MISPLACED[row["what"]].format(row["id"]) for row in rows]


def named_objects(text: str) -> set[str]:
    """The objects that a piece of DDL creates, such as "index job_claim"."""
    named = {
        f"{(found['made'] or found['check']).lower()} {found['name']}" for found in _NAMED.finditer(text)
    }
    return named | {f"constraint {table}_pkey" for table in _KEYED.findall(text)}
