"""Enqueue: stores jobs durably, each id once; a held unique key leads to its holder."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import Any

from leasehold.domain import operate
from leasehold.domain.errors import DuplicateJob, IdempotencyKeyReused, StoreError
from leasehold.domain.job import PLAIN, TIED, Enqueued, Job, NewJob
from leasehold.domain.lanes import Ticket
from leasehold.domain.states import State
from leasehold.domain.stop import StopMark
from leasehold.stores.database.database import Columns, Records, Row, Session
from leasehold.stores.results import Once
from leasehold.stores.verbs.dependencies import check_order, wait_for_parents
from leasehold.stores.verbs.groups import touch_groups
from leasehold.stores.verbs.limits import GateVerbs, gate_of
from leasehold.stores.verbs.locking import lock
from leasehold.stores.verbs.stop import (
    Marks,
    end_stopped,
    find_marks_of_running,
    find_stopping,
    stopped_follow_ups,
)
from leasehold.stores.verbs.writing import (
    Groups,
    Verbs,
    batches,
    bump_groups,
    find_key_owners,
    group_records,
    write_moves,
    write_outbox_of_groups,
    write_tickets,
)

_TRIES = 3
_BULK = 1000

LaneAt = Any
"""The `lane_at` of an inserted job, as the database returns instants; None without a lane."""

_NOTHING: Mapping[str, int] = {}


class EnqueueVerbs(GateVerbs):
    """Store new jobs."""

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store all of these jobs or none, in the given order; they are durable when the call returns. The same id
        twice makes one job. If another job holds a job's unique key, that job is returned, replaced (if it never
        started) or raised as DuplicateJob. A job with `after` waits until those parents have ended; a parent that has
        ended already counts at once, and a missing parent raises JobNotFound. The stores' own
        `enqueue` notifies waiting workers in every process."""
        check_order(jobs)
        self._make_gates(jobs)
        if not jobs:
            return []
        insert = _enqueue_plain if all(map(fits_fast_insert, jobs)) else enqueue_in

        def work(session: Session) -> list[Enqueued]:
            made = insert(session, jobs)
            if session.in_doubt:
                # A row with our id was inserted by an earlier try whose reply was lost.
                made = [
                    Enqueued(one.id, one.created or one.id == job.id)
                    for one, job in zip(made, jobs, strict=True)
                ]
            return made

        return self._database.transact(work, idempotent=True)


def enqueue_in(
    session: Session,
    jobs: Sequence[NewJob],
    groups: Mapping[str, int] = _NOTHING,
    marks: Marks | None = None,
    update: UpdateGroups | None = None,
) -> list[Enqueued]:
    """Enqueue inside an open transaction. Holders of keys that give way are cancelled first, so that the new jobs are
    stored in the order given; groups are notified last, once each, with the caller's changes. `marks` are the stops of
    the parents of follow-ups, if the caller knows them. `update` replaces `update_groups`."""
    stopped = _find_covered_by_stop(session, jobs, marks)
    store_full_names(session, jobs)
    changes = _GroupChanges(dict(groups))
    enqueued = _insert_all(session, _on_hold_where_needed(jobs, stopped), stopped, changes)
    related = [job for job in jobs if job.after or job.follow_up_of is not None]
    if related:
        changes.add(_relate(session, related, enqueued))
    if stopped:
        made_stopped = {job_id: mark for job_id, mark in stopped.items() if enqueued[job_id].created}
        changes.add(_cancel_stopped(session, made_stopped))
    (update or update_groups)(
        session, changes.live, changes.opened, changes.cancelled - changes.opened.keys()
    )
    return [enqueued[job.id] for job in jobs]


@dataclass(slots=True)
class _GroupChanges:
    live: Groups
    """The change of each group's number of live jobs."""
    opened: dict[str, bool] = field(default_factory=dict)
    """Groups with new jobs, and whether any of these jobs is not a follow-up."""
    cancelled: set[str] = field(default_factory=set)
    """Groups with new jobs that are cancelled at once."""

    def add(self, more: Mapping[str, int]) -> None:
        for name, live in more.items():
            self.live[name] = self.live.get(name, 0) + live

    def add_jobs(self, jobs: Sequence[NewJob], stopped: Collection[str]) -> None:
        live, opened = self.live, self.opened
        for job in jobs:
            if job.group is not None:
                live[job.group] = live.get(job.group, 0) + 1
                if job.id in stopped:
                    self.cancelled.add(job.group)
                else:
                    opened[job.group] = opened.get(job.group, False) or job.follow_up_of is None


def _find_covered_by_stop(
    session: Session, jobs: Sequence[NewJob], marks: Marks | None
) -> Mapping[str, StopMark]:
    """The follow-ups that a stop of their parent or of their group covers, by id."""
    follow_ups = [job for job in jobs if job.follow_up_of is not None]
    if not follow_ups:
        return {}
    if marks is None:
        marks = find_marks_of_running(session, [job.follow_up_of or "" for job in follow_ups])
    return stopped_follow_ups(follow_ups, marks, find_stopping(session, follow_ups))


def _on_hold_where_needed(jobs: Sequence[NewJob], stopped: Collection[str]) -> Sequence[NewJob]:
    """Jobs that wait for parents are inserted as held, until they are tied to them. So are stopped jobs,
    until they are cancelled; a stopped job replaces no holder of its key."""
    with_holds = [replace(job, hold=True) if job.after else job for job in jobs]
    if stopped:
        with_holds = [
            replace(j, hold=True, on_duplicate="return") if j.id in stopped else j for j in with_holds
        ]
    return with_holds


def _insert_all(
    session: Session, wanted: Sequence[NewJob], stopped: Collection[str], changes: _GroupChanges
) -> dict[str, Enqueued]:
    """Insert until each job is stored or leads to an existing job."""
    enqueued: dict[str, Enqueued] = {}
    for _ in range(_TRIES):
        changes.add(_replace_key_holders(session, wanted))
        inserted: dict[str, LaneAt] = {}
        for batch in batches(wanted, _BULK):
            inserted |= _insert(session, batch)
        enqueued |= {job_id: Enqueued(job_id, created=True) for job_id in inserted}
        made = [job for job in wanted if job.id in inserted]
        _write_tickets_and_tags(session, made, inserted)
        changes.add_jobs(made, stopped)
        wanted = _resolve_conflicts(session, [job for job in wanted if job.id not in inserted], enqueued)
        if not wanted:
            return enqueued
    raise StoreError(f"the unique key of {len(wanted)} job(s) kept changing hands; enqueue again")


UpdateGroups = Callable[[Session, Groups, Mapping[str, bool], set[str]], None]


def update_groups(session: Session, changed: Groups, opened: Mapping[str, bool], cancelled: set[str]) -> None:
    """Count new jobs in their groups: `cancelled` have only cancelled ones, `opened` others too. Follow-ups do
    not reopen a group: their parent may not know of the stop."""
    for reopens in (True, False):
        touched = {name: changed[name] for name, one in opened.items() if one is reopens}
        if touched:
            touch_groups(session, touched, reopens)
    if cancelled:
        records = group_records({name: changed[name] for name in cancelled})
        write_outbox_of_groups(session, session.tuples("add_cancelled_to_groups", groups=records), changed)
    counted = opened.keys() | cancelled
    bump_groups(session, {name: live for name, live in changed.items() if name not in counted})


def _cancel_stopped(session: Session, stopped: Mapping[str, StopMark]) -> Groups:
    """Cancel new jobs that a stop covers; returns the groups that this changes."""
    moves, now = end_stopped(session, stopped)
    return write_moves(session, moves, now) if now is not None else {}


def _relate(session: Session, jobs: Sequence[NewJob], enqueued: Mapping[str, Enqueued]) -> Groups:
    """Tie new jobs to their parents and to the job they follow; returns the groups that this changes. A job
    that existed before keeps its ties."""
    made = [job for job in jobs if enqueued[job.id] == Enqueued(job.id, created=True)]
    follow_ups = [{"parent_id": job.follow_up_of, "child_id": job.id} for job in made if job.follow_up_of]
    if follow_ups:
        session.run("insert_follow_ups", follow_ups=Records(follow_ups))
    moves, now = wait_for_parents(session, made, {job_id: one.id for job_id, one in enqueued.items()})
    return write_moves(session, moves, now) if now is not None else {}


def _write_tickets_and_tags(session: Session, jobs: Sequence[NewJob], inserted: Mapping[str, LaneAt]) -> None:
    write_tickets(session, _tickets(jobs, inserted))
    tags = [{"name": tag, "job_id": job.id} for job in jobs for tag in job.tags]
    if tags:
        session.run("insert_tags", tags=Records(tags))


def _tickets(jobs: Sequence[NewJob], inserted: Mapping[str, LaneAt]) -> list[Ticket]:
    """One ticket per lane and due time: only the first of the batch can be the lane's head by then."""
    first: dict[tuple[str, LaneAt], Ticket] = {}
    for job in jobs:
        if job.lane is not None and not job.hold:
            due = inserted[job.id]
            if (job.lane, due) not in first:
                first[job.lane, due] = Ticket(job.lane, gate_of(job), job.priority, due)
    return list(first.values())


def _resolve_conflicts(
    session: Session, refused: Sequence[NewJob], enqueued: dict[str, Enqueued]
) -> list[NewJob]:
    """Find out why rows were not inserted; returns the jobs to try again."""
    if not refused:
        return []
    repeated = {row["id"] for row in session.rows("find_ids", ids=sorted({job.id for job in refused}))}
    enqueued |= {job_id: Enqueued(job_id, created=False) for job_id in repeated if job_id not in enqueued}
    left = [job for job in refused if job.id not in enqueued]
    holders = _holders(session, left)
    retry: list[NewJob] = []
    for job in left:
        holder = holders.get((job.task, job.unique_key or ""))
        if holder is None:
            retry.append(job)
        elif job.on_duplicate == "raise":
            raise DuplicateJob(holder["id"], job.task, job.unique_key or "")
        else:
            enqueued[job.id] = Enqueued(holder["id"], created=False)
    return retry


def _holders(session: Session, jobs: Sequence[NewJob]) -> dict[tuple[str, str], Row]:
    keys = [(job.task, job.unique_key) for job in jobs if job.unique_key is not None]
    rows = find_key_owners(session, keys) if keys else []
    return {(row["task"], row["unique_key"]): row for row in rows}


def _replace_key_holders(session: Session, jobs: Sequence[NewJob]) -> Groups:
    """Cancel holders that have never started, for the first job that replaces them; returns the groups that
    this changes. Of several jobs with one key in a batch the first is stored, and the others lead to it."""
    replacing = [job for job in jobs if job.on_duplicate == "replace"]
    if replacing:
        # A repeat after a lost reply makes no job, so no holder has to give way to it.
        repeated = {row["id"] for row in session.rows("find_ids", ids=sorted(job.id for job in replacing))}
        replacing = [job for job in replacing if job.id not in repeated]
    by_holder: dict[str, NewJob] = {}
    for (task, key), row in _holders(session, replacing).items():
        by_holder[row["id"]] = next(job for job in replacing if (job.task, job.unique_key) == (task, key))
    if not by_holder:
        return {}
    locked, now = lock(session, by_holder)
    moves = [
        operate.cancel(job, now=now, reason=f"replaced by job {by_holder[job.id].id}")
        for job in locked.values()
        if now is not None and _gives_way(job, by_holder[job.id])
    ]
    return write_moves(session, moves, now) if moves and now is not None else {}


def _gives_way(holder: Job, job: NewJob) -> bool:
    never_started = holder.attempt == 0 and holder.state in (State.QUEUED, State.PENDING)
    return never_started and holder.unique_for != "ever" and holder.id != job.id


def special_of(job: NewJob) -> int:
    """TIED if the end of a new job has to touch other tables, else PLAIN. SQL reads this value too."""
    named = job.lane is not None or job.group is not None or job.unique_key is not None
    limited = bool(job.slots) or job.deadline is not None or job.start_by is not None
    return TIED if named or limited or job.policy.mirror else PLAIN


def fits_fast_insert(job: NewJob) -> bool:
    """Whether the enqueue writes only a row of `job` and one of `ready`, as for most jobs."""
    related = job.tags or job.after or job.follow_up_of is not None or job.retry_of is not None
    given = job.hold or job.at is not None or job.trace is not None or job.rate is not None
    return special_of(job) == PLAIN and not (related or given)


_SHAPE = (
    "task",
    "queue",
    "priority",
    "delay",
    "at",
    "hold",
    "lease_seconds",
    "policy",
    "unique_for",
    "group",
    "tags",
    "deadline",
    "start_by",
    "retry_of",
    "trace",
    "slots",
    "rate",
)
"""Fields that all jobs of one insert share; they may differ in ids, arguments, lanes and keys."""
_fields_of = attrgetter(*_SHAPE)


def _shape_of(job: NewJob) -> tuple[Any, ...]:
    return *_fields_of(job), job.lane is None, job.unique_key is None


def _insert(session: Session, jobs: Sequence[NewJob]) -> dict[str, LaneAt]:
    """One statement inserts adjacent jobs of one shape, so that seq follows the order given. The result
    leaves out jobs whose id is stored already (a repeat after a lost reply) or whose key is held."""
    inserted: dict[str, LaneAt] = {}
    for _, alike in groupby(_with_keys(session, jobs), _shape_of):
        inserted |= _insert_alike(session, list(alike))
    return inserted


def _enqueue_plain(session: Session, jobs: Sequence[NewJob]) -> list[Enqueued]:
    made = _insert_plain(session, jobs)
    # A job that is missing in `made` was stored before, with the same id.
    return [Enqueued(job.id, created=job.id in made) for job in jobs]


def _insert_plain(session: Session, jobs: Sequence[NewJob]) -> set[str]:
    made: set[str] = set()
    for batch in batches(jobs, _BULK):
        for _, alike in groupby(batch, _shape_of):
            made |= _insert_alike(session, list(alike)).keys()
    return made


def _with_keys(session: Session, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """Take the jobs' keys; returns jobs without a key and jobs that got their key. Keys are taken before the
    insert, so that a refused job leaves nothing behind."""
    keyed = [job for job in jobs if job.unique_key is not None]
    if not keyed:
        return jobs
    stored = {row["id"] for row in session.rows("find_ids", ids=sorted(job.id for job in keyed))}
    wanted = [job for job in keyed if job.id not in stored]
    keys = [
        {"task": j.task, "key": j.unique_key, "job_id": j.id, "for_ever": j.unique_for == "ever"}
        for j in sorted(wanted, key=lambda job: (job.task, job.unique_key))
    ]
    got = {row[0] for row in session.tuples("insert_keys", keys=Records(keys))} if keys else set()
    return [job for job in jobs if job.unique_key is None or job.id in got]


def _insert_alike(session: Session, jobs: Sequence[NewJob]) -> dict[str, LaneAt]:
    made = dict(session.tuples("insert_jobs", **parameters_for(jobs)))
    if not made:
        return {}
    job, seqs, special = jobs[0], sorted(made.values()), special_of(jobs[0])
    if job.hold:
        rows = session.tuples("insert_new_parked", seqs=seqs, special=special)
    elif job.lane is not None:
        rows = session.tuples("insert_new_lane_places", seqs=seqs, special=special)
    else:
        rows = session.tuples("insert_new_ready", seqs=seqs, special=special)
    if job.deadline is not None or job.start_by is not None:
        session.run("insert_new_time_limits", seqs=seqs)
    if job.group is not None:
        session.run("join_group", group=job.group, seqs=seqs)
    lane_at = dict(rows)
    return {job_id: lane_at[seq] for job_id, seq in made.items()}


def parameters_for(jobs: Sequence[NewJob]) -> dict[str, Any]:
    """The parameters of insert_jobs, for jobs of one shape."""
    job = jobs[0]
    return {
        "jobs": Columns(
            ids=[job.id for job in jobs],
            args=[job.args for job in jobs],
            lanes=[job.lane for job in jobs],
            keys=[job.unique_key for job in jobs],
        ),
        "task": job.task,
        "queue": job.queue,
        "gate": gate_of(job),
        "priority": job.priority,
        "policy": job.policy.dump(),
        "at": job.at,
        "delay": job.delay or None,
        "lease_seconds": job.lease_seconds,
        "unique_for_ever": True if job.unique_for == "ever" and job.unique_key is not None else None,
        "group_name": job.group,
        "tags": json.dumps(job.tags) if job.tags else None,
        "deadline": job.deadline,
        "start_by": job.start_by,
        "retry_of": job.retry_of,
        "trace": job.trace,
    }


# -- with an idempotency key -------------------------------------------------------------------------------------------
# The key is taken first, in the transaction that stores the jobs, so both are stored or neither. Of two
# requests at the same moment, in any processes, the second waits for the first.

KEYS_KEPT_FOR = 86_400.0
"""Seconds that a key is remembered."""
KEYS_FORGOTTEN_AT_ONCE = 10
"""Old keys that each new key deletes."""


class EnqueueOnceVerbs(EnqueueVerbs):
    """Enqueue for requests that a client may repeat."""

    def enqueue_once(self, jobs: Sequence[NewJob], key: str, fingerprint: str) -> Once:
        """Enqueue once per key: for a day, the same key and fingerprint return the jobs that the first call made,
        whatever their state, and make nothing. Another fingerprint raises IdempotencyKeyReused. Of two calls at the
        same moment, one makes the jobs and the other returns them."""
        check_order(jobs)
        self._make_gates(jobs)

        def work(session: Session) -> Once:
            if not session.tuples(
                "take_idempotency_key", key=key, fingerprint=fingerprint, seconds=KEYS_KEPT_FOR
            ):
                return _repeat(session, key, fingerprint)
            made = enqueue_in(session, jobs)
            session.run("answer_request", key=key, answer=json.dumps(made))
            session.run("forget_requests", key=key, seconds=KEYS_KEPT_FOR, limit=KEYS_FORGOTTEN_AT_ONCE)
            return Once(made, repeated=False)

        return self._database.transact(work, idempotent=True)


def _repeat(session: Session, key: str, fingerprint: str) -> Once:
    (row,) = session.rows("find_request", key=key)
    if row["fingerprint"] != fingerprint:
        raise IdempotencyKeyReused
    enqueued = json.loads(row["answer"])
    return Once([Enqueued(job_id, created) for job_id, created in enqueued], repeated=True)


# -- names that are too long to be stored in full ----------------------------------------------------------------------


class FullNameVerbs(Verbs):
    """Names that are stored shortened."""

    def full_names(self, names: Sequence[str]) -> dict[str, str]:
        """The full form of each name that is stored shortened; other names are left out."""
        return dict(self._tuples("find_full_names", names=list(names)))


def store_full_names(session: Session, jobs: Iterable[NewJob]) -> None:
    """Store the full form of the jobs' long names, in the transaction that stores the jobs."""
    names = {name: full for job in jobs for name, full in job.full_names}
    if names:
        records = [{"name": name, "whole": full} for name, full in sorted(names.items())]
        session.run("insert_full_names", names=Records(records))
