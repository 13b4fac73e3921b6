"""Metrics: the workers' counts, added up in rows, and gauges read from the places of jobs."""

from __future__ import annotations

import json
from collections.abc import Sequence

from leasehold.domain.errors import StoreError
from leasehold.domain.metrics import (
    KEPT_MINUTES,
    Gauges,
    Histogram,
    Labels,
    LeaseAge,
    ReadyAge,
    Rollup,
    SlotUse,
    bounded,
)
from leasehold.stores.database.database import Database, Records, Row, Session
from leasehold.stores.database.places import record_of
from leasehold.stores.verbs.writing import Verbs, reading


class MetricVerbs(Verbs):
    """What workers count, and gauges of the present moment."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._labelled: set[tuple[str, str]] = set()
        """Pairs of queue and task in the totals, which never lose a pair."""

    def add_rollups(self, rollups: Sequence[Rollup], *, tenant: str | None = None) -> None:
        """Add these counts to the present minute and to the totals, all or none. It raises only if nothing
        was written: if that is unknown, the counts are taken as written, so that nothing counts twice. Above
        a limit on pairs of queue and task, the other pairs are added up as one. `tenant` is the tenant of the
        counts, for a store of several tenants."""
        if not rollups:
            return
        written = False

        def work(session: Session) -> None:
            nonlocal written
            written = False
            self._add(session, rollups)
            written = True

        try:
            self._database.transact(work)
        except StoreError:
            if not written:
                raise
            # Only the reply to the commit may be missing: another try could count twice.

    def _add(self, session: Session, rollups: Sequence[Rollup]) -> None:
        if all((one.queue, one.task) in self._labelled for one in rollups):
            records = rollups
        else:
            session.run("lock_rollups")
            labels = Labels((queue, task) for queue, task in session.tuples("list_rollup_labels"))
            self._labelled |= labels.known
            records = bounded(rollups, labels)
        session.run("add_rollups", rollups=Records([_record(one) for one in records]))

    def prune_rollups(self, age: float = KEPT_MINUTES * 60.0) -> None:
        """Delete the minutes older than `age` seconds; the totals stay."""
        self._run("prune_rollups", age=age)

    def totals(self) -> list[Rollup]:
        """The counts since the store exists. They only grow."""
        return [_rollup(row) for row in self._rows("read_totals")]

    def list_rollups(self, age: float, queue: str | None = None, task: str | None = None) -> list[Rollup]:
        """The counts by minute of the last `age` seconds, the oldest first."""
        return [_rollup(row) for row in self._rows("list_rollups", age=age, queue=queue, task=task)]

    @reading
    def gauges(self, session: Session, cap: int = 10_000) -> Gauges:
        """The gauges, by a few statements whatever the number of jobs. Finished jobs are not read."""
        return Gauges(
            ready=[ReadyAge(**row) for row in session.rows("list_ready_ages")],
            leases=[record_of(LeaseAge, row) for row in session.rows("list_lease_ages")],
            slots=[
                SlotUse(row["name"], row["used"], row["lim"])
                for row in session.rows("read_slots", names=None)
            ],
            open_questions=int(session.tuples("count_open_questions", cap=cap)[0][0]),
        )


def _record(one: Rollup) -> Row:
    return {
        "queue": one.queue,
        "task": one.task,
        "outcome": one.outcome,
        "runs": one.attempts,
        "wait_seconds": one.wait.seconds,
        "run_seconds": one.duration.seconds,
        "wait_buckets": one.wait.buckets,
        "run_buckets": one.duration.buckets,
    }


def _rollup(row: Row) -> Rollup:
    return Rollup(
        row["queue"],
        row["task"],
        row["outcome"],
        row["runs"],
        Histogram(tuple(json.loads(row["wait_buckets"])), row["wait_seconds"]),
        Histogram(tuple(json.loads(row["run_buckets"])), row["run_seconds"]),
        row.get("minute"),
    )
