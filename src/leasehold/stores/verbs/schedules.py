"""Schedules: the transaction that advances `next_at` handles the tick and stores its jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from leasehold.domain import operate
from leasehold.domain.errors import InvalidInput, ScheduleNotFound
from leasehold.domain.job import Job, NewJob
from leasehold.domain.records import ScheduleRow
from leasehold.domain.schedules import Schedule, Source
from leasehold.domain.states import LIVE, State
from leasehold.stores.database.database import Records, Row, Session
from leasehold.stores.database.places import record_of
from leasehold.stores.results import Fired, Registered
from leasehold.stores.verbs.audit import changed
from leasehold.stores.verbs.enqueue import EnqueueVerbs, enqueue_in
from leasehold.stores.verbs.locking import lock
from leasehold.stores.verbs.workers import SILENT_AFTER
from leasehold.stores.verbs.writing import Groups, transaction, write_moves

_SPEC = ("args", "every", "cron", "tz", "missed", "overlap", "at_start")


class ScheduleVerbs(EnqueueVerbs):
    """Jobs that are enqueued on a schedule."""

    def register_schedules(
        self, worker: str, schedules: Sequence[Schedule], starting: bool = True
    ) -> list[Registered]:
        """Declare the schedules in a worker's code. New schedules are stored. A schedule whose declaration changed is
        updated; if it is due at other times, its next tick counts from now. With `starting`, a schedule with `at_start`
        is due now if no other live worker declares it: once for all workers that start together."""
        if not schedules:
            return []
        wanted = {schedule.name: schedule for schedule in schedules}

        def work(session: Session) -> list[Registered]:
            session.run("forget_schedule_hosts", age=SILENT_AFTER)
            now = session.rows("store_now")[0]["now"]
            known = _locked(session, list(wanted))
            new = [schedule for schedule in wanted.values() if schedule.name not in known]
            if new:
                session.run("insert_schedules", schedules=Records([_record(s, "code", now) for s in new]))
                # Another worker may have inserted them meanwhile, with another declaration.
                known |= _locked(session, [schedule.name for schedule in new])
            # After the lock: of two workers that start together the second sees the first.
            others = {"names": sorted(wanted), "worker": worker, "age": SILENT_AFTER}
            shared = {row[0] for row in session.tuples("find_schedule_hosts", **others)}
            made = {schedule.name for schedule in new}
            found = [
                _declare(session, wanted[name], row, name in made, starting and name not in shared)
                for name, row in sorted(known.items())
            ]
            session.run("join_schedules", worker=worker, names=sorted(wanted))
            return found

        return self._database.transact(work)

    def leave_schedules(self, worker: str) -> None:
        """Withdraw the declarations of a worker that ends."""
        self._run("leave_schedules", worker=worker)

    def list_schedules(self) -> list[ScheduleRow]:
        """All schedules with their next tick."""
        return [record_of(ScheduleRow, row) for row in self._rows("list_schedules", age=SILENT_AFTER)]

    def set_schedule(self, schedule: Schedule) -> ScheduleRow:
        """Create or change a schedule at run time. Raises InvalidInput if the code of a live worker declares it."""

        def work(session: Session) -> None:
            now = session.rows("store_now")[0]["now"]
            known = _locked(session, [schedule.name]).get(schedule.name)
            if known is None:
                session.run("insert_schedules", schedules=Records([_record(schedule, "set", now)]))
                known = _locked(session, [schedule.name])[schedule.name]
            _refuse_declared(session, known)
            if _spec(schedule) != _spec_of(known) or known["source"] != "set":
                _change(session, schedule, "set", _next_at(schedule, known))

        self._database.transact(work)
        return self._schedule(schedule.name)

    @transaction
    def delete_schedule(self, session: Session, name: str) -> None:
        """Delete a schedule. Raises ScheduleNotFound, and InvalidInput if the code of a live worker declares it."""
        _refuse_declared(session, _found(session, name))
        session.run("delete_schedule", name=name)

    def pause_schedule(self, name: str, actor: str | None = None, reason: str | None = None) -> None:
        """Stop the ticks until `resume_schedule`. Raises ScheduleNotFound."""
        parameters = {"name": name, "actor": actor, "reason": reason}
        paused = self._database.single(
            lambda session: changed(session.tuples("pause_schedule", **parameters))
        )
        if not paused:
            raise ScheduleNotFound(name)

    @transaction
    def resume_schedule(self, session: Session, name: str) -> bool:
        """Continue a paused schedule. Ticks during the pause are dropped: if there were any, the next tick counts from
        now. False: the schedule was not paused."""
        row = _found(session, name)
        ahead = row["next_at"] > row["now"]
        next_at = row["next_at"] if ahead else _schedule(row).next_after(row["now"])
        return changed(bool(session.tuples("resume_schedule", name=name, next_at=next_at)))

    def fire(
        self,
        name: str,
        seen: datetime,
        jobs: Sequence[NewJob],
        next_at: datetime,
        passed: int,
        *,
        tenant: str | None = None,
    ) -> Fired | None:
        """Handle the ticks from `seen` up to but not including `next_at`: store these jobs in the same transaction,
        unless the previous tick's job is still live and the schedule does not allow an overlap. None: another worker
        handled `seen`, or the schedule was paused, changed or deleted. `tenant` is the row's tenant, for a store of
        several tenants."""
        self._make_gates(jobs)

        def work(session: Session) -> Fired | None:
            row = _locked(session, [name]).get(name)
            if row is None or row["next_at"] != seen or row["paused"]:
                return None
            fired = _made(session, row, jobs)
            session.run(
                "move_schedule",
                name=name,
                next_at=next_at,
                last_at=jobs[-1].at if fired.jobs else None,
                last_job=fired.jobs[-1] if fired.jobs else None,
                passed=passed + (len(jobs) if fired.overlapped else 0),
            )
            return fired

        return self._database.transact(work)

    @transaction
    def record_manual_job(self, session: Session, name: str, job_id: str) -> None:
        """Record a job of the schedule that was enqueued by hand: `overlap` checks this job at the next tick."""
        row = _found(session, name)
        moved = {"next_at": row["next_at"], "last_at": None, "last_job": job_id, "passed": 0}
        session.run("move_schedule", name=name, **moved)

    def _schedule(self, name: str) -> ScheduleRow:
        for row in self.list_schedules():
            if row.name == name:
                return row
        raise ScheduleNotFound(name)


def _made(session: Session, row: Row, jobs: Sequence[NewJob]) -> Fired:
    """Store the jobs of one `fire`, or none. The schedule's last job decides once whether they overlap."""
    before = _living(session, row["last_job"]) if jobs and row["overlap"] != "allow" else None
    replaced = None
    groups: Groups = {}
    if before is not None:
        if row["overlap"] == "skip":
            return Fired([], None, overlapped=True)
        replaced = before.id
        if before.state is State.RUNNING:
            # The running job gets a stop request and may take a moment: the next job waits for its end.
            jobs = [replace(job, after=(replaced,), on_parent_failure="run") for job in jobs]
        reason = f"replaced by the next tick of schedule {row['name']!r}"
        groups = write_moves(session, [operate.cancel(before, now=row["now"], reason=reason)], row["now"])
    made = enqueue_in(session, jobs, groups) if jobs else []
    return Fired([one.id for one in made], replaced, overlapped=False)


def _living(session: Session, job_id: str | None) -> Job | None:
    if job_id is None:
        return None
    job = lock(session, [job_id])[0].get(job_id)
    return job if job is not None and job.state in LIVE else None


def _declare(session: Session, schedule: Schedule, row: Row, new: bool, starts: bool) -> Registered:
    starts = starts and schedule.at_start
    same = _spec(schedule) == _spec_of(row) and row["source"] == "code"
    if starts or not same:
        next_at = _next_at(schedule, row)
        if starts:
            # With "all", ticks missed while no worker ran replace the tick of the start: none of them is dropped.
            next_at = min(next_at, row["now"]) if schedule.missed == "all" else row["now"]
        _change(session, schedule, "code", next_at)
    if new:
        return Registered(schedule.name, "new", "", starts)
    return Registered(schedule.name, "same" if same else "changed", _schedule(row).when, starts)


def _next_at(schedule: Schedule, row: Row) -> datetime:
    """The next tick. A deploy that changes only arguments or policies neither delays it nor drops a due tick."""
    return row["next_at"] if schedule.same_ticks(_schedule(row)) else schedule.next_after(row["now"])


def _locked(session: Session, names: Sequence[str]) -> dict[str, Row]:
    return {row["name"]: row for row in session.rows("lock_schedules", names=sorted(names))}


def _found(session: Session, name: str) -> Row:
    row = _locked(session, [name]).get(name)
    if row is None:
        raise ScheduleNotFound(name)
    return row


def _refuse_declared(session: Session, row: Row) -> None:
    """Raises InvalidInput if a live worker's code declares the schedule: its next start would undo the change."""
    hosts = session.tuples("find_schedule_hosts", names=[row["name"]], worker="", age=SILENT_AFTER)
    if row["source"] == "code" and hosts:
        raise InvalidInput(
            "name",
            f"schedule {row['name']!r} stands in the code of a live worker",
            "change it there, or pause it",
        )


def _change(session: Session, schedule: Schedule, source: Source, next_at: datetime) -> None:
    session.run("change_schedule", name=schedule.name, source=source, next_at=next_at, **_spec(schedule))


def _record(schedule: Schedule, source: Source, now: datetime) -> dict[str, Any]:
    return {"name": schedule.name, **_spec(schedule), "source": source, "next_at": schedule.next_after(now)}


def _spec(schedule: Schedule) -> dict[str, Any]:
    return {"task": schedule.task, **{name: getattr(schedule, name) for name in _SPEC}}


def _spec_of(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in ("task", *_SPEC)}


def _schedule(row: Row) -> Schedule:
    return record_of(Schedule, _spec_of(row), name=row["name"])
