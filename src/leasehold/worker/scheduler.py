"""The scheduler: enqueues the jobs of due schedules. Every worker has one; the database lets one of them win."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from leasehold.domain.errors import StoreError
from leasehold.domain.records import ScheduleRow
from leasehold.domain.schedules import Schedule, turn
from leasehold.stores.results import Fired
from leasehold.tasks.definition import TaskDefinition
from leasehold.tasks.schedule import tick_job
from leasehold.worker.service import Service

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

logger = logging.getLogger("leasehold.schedules")

READ_EVERY, READ_SELDOM = 5.0, 10.0
"""Most seconds between two reads, so that changes at run time are noticed; the longer one if there is no schedule."""


TENANT_AGAIN = 1.0
"""Seconds until the schedules of a tenant in trouble are looked at again."""


class Scheduler(Service):
    def __init__(
        self,
        store: JobStore,
        worker: str,
        tasks: Mapping[str, TaskDefinition],
        declared: Callable[[], Sequence[Schedule]],
        starting: bool = True,
    ) -> None:
        super().__init__("scheduler", self.beat, slowest=1.0)
        self._store = store
        self._worker = worker
        self._tasks = tasks
        self._declared = declared
        self._starting = starting
        """Whether the worker's start may be the start of a fleet, for `at_start`."""
        self._registered: frozenset[str] | None = None
        self._stopped = False

    def retire(self) -> None:
        """Make no more ticks: the worker drains."""
        self._stopped = True

    def stop(self) -> None:
        self.retire()
        super().stop()
        self.leave()

    def once(self) -> None:
        """Handle everything that is due, and leave."""
        while self._look() <= 0.0:
            pass  # a long outage is made up for in pieces
        self.leave()

    def leave(self) -> None:
        """Sign off: this worker no longer counts as declaring its schedules."""
        if self._registered:
            try:
                self._store.leave_schedules(self._worker)
            except StoreError as error:
                logger.debug("could not sign off: %s", error)

    def beat(self) -> float:
        """Handle what is due; returns seconds until the next look."""
        return max(0.01, self._look())

    def _look(self) -> float:
        """Return 0 or less if more is due by now."""
        if self._stopped:
            return READ_SELDOM
        if self._registered is None:
            self._register()
        rows = [row for row in self._store.list_schedules() if self._serves(row)]
        pause = READ_EVERY if rows else READ_SELDOM
        for row in rows:
            try:
                next_at = self._fire(row)
            except StoreError:
                if row.tenant is None:
                    raise  # the database is away: no schedule can be handled
                next_at = row.now + timedelta(seconds=TENANT_AGAIN)
            except Exception:
                # Its task may have changed, or its arguments no longer fit: other schedules must not suffer.
                logger.exception("schedule %s: its tick failed; trying again at the next one", row.name)
                next_at = self._pass_over(row)
            pause = min(pause, (next_at - row.now).total_seconds())
        return pause

    def _register(self) -> None:
        declared = list(self._declared())
        for found in self._store.register_schedules(self._worker, declared, self._starting):
            (schedule,) = (one for one in declared if one.name == found.name)
            if found.change == "changed":
                logger.warning("schedule %s has changed: %s", found.name, _change(schedule, found.before))
            elif found.change == "new":
                logger.info("schedule %s is new: %s", found.name, schedule.when)
            if found.starts:
                logger.info("schedule %s: one job now, because the fleet has just started", found.name)
        self._registered = frozenset(schedule.name for schedule in declared)

    def _serves(self, row: ScheduleRow) -> bool:
        """Whether this worker can make the schedule's job; a schedule from code must also be declared in its own
        code."""
        if row.task not in self._tasks or row.paused:
            return False
        return row.source == "set" or row.name in (self._registered or ())

    def _fire(self, row: ScheduleRow) -> datetime:
        """Make the jobs of the ticks that are due; returns when it is due again."""
        if row.next_at > row.now or self._stopped:
            return row.next_at
        schedule = schedule_of(row)
        due = turn(schedule, row.next_at, row.now)
        jobs = [tick_job(self._tasks[schedule.task], schedule, tick) for tick in due.ticks]
        fired = self._store.fire(row.name, row.next_at, jobs, due.next_at, due.passed, tenant=row.tenant)
        if fired is not None:
            self._log(row, fired, due.passed)
        return due.next_at

    def _pass_over(self, row: ScheduleRow) -> datetime:
        try:
            due = turn(schedule_of(row), row.next_at, row.now)
        except Exception:
            # Not even the due time can be computed here: its time zone may be unknown on this machine.
            return row.now + timedelta(seconds=READ_EVERY)
        passed = due.passed + len(due.ticks)
        self._store.fire(row.name, row.next_at, [], due.next_at, passed, tenant=row.tenant)
        return max(due.next_at, row.now + timedelta(seconds=1))

    def _log(self, row: ScheduleRow, fired: Fired, passed: int) -> None:
        if fired.jobs:
            self._store.notify_workers()
            logger.debug("schedule %s: enqueued job %s", row.name, ", ".join(fired.jobs))
        if fired.replaced is not None:
            logger.info("schedule %s: stopping job %s to replace it", row.name, fired.replaced)
        if fired.overlapped:
            logger.info(
                "schedule %s: no job this time, because %s of the previous tick has not ended",
                row.name,
                row.last_job,
            )
        if passed:
            logger.warning("schedule %s: skipped %d or more missed tick(s)", row.name, passed)


def _change(schedule: Schedule, before: str) -> str:
    same = schedule.when == before
    return f"still {before}, with new settings" if same else f"{schedule.when}, was {before}"


def schedule_of(row: ScheduleRow) -> Schedule:
    return Schedule(**{field.name: getattr(row, field.name) for field in fields(Schedule)})
