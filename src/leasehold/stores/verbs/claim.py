"""Claim: finds groups of due jobs and takes from them by source; or claims one job, by its id or new."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from leasehold.domain import operate
from leasehold.domain.errors import InvalidState, RunningJob, state_reported
from leasehold.domain.job import Enqueued, Grant, Job, NewJob, Sighting, has_run_out
from leasehold.domain.lanes import DueGroup, DueGroups, Source
from leasehold.domain.limits import Need, retry_hint
from leasehold.domain.outcome import Expired, Lost, clean_error
from leasehold.domain.records import claimable_in
from leasehold.domain.settle import settle, settle_lost, time_is_over
from leasehold.domain.states import State
from leasehold.stores.database.database import Records, Row, Session
from leasehold.stores.results import ClaimDenied, Full, Order
from leasehold.stores.verbs.dependencies import without_locked_children
from leasehold.stores.verbs.enqueue import EnqueueVerbs, enqueue_in
from leasehold.stores.verbs.limits import (
    MOST_LIMITED_GROUPS,
    Admitted,
    ClaimGroup,
    LimitVerbs,
    lock_limits,
    why_not,
)
from leasehold.stores.verbs.locking import find_progress, lock, lock_held_skip_locked, lock_skip_locked
from leasehold.stores.verbs.writing import batches, find_key_owners, postpone, try_places, write

logger = logging.getLogger("leasehold.worker")

POSTPONED_FOR = 300.0
"""Seconds until a job is tried again that can neither be claimed nor fail."""

SEES_TICKETS = 200
"""Tickets that every claim looks at, even with little room: a small worker clears many stale ones at once."""

ROUNDS = 4
"""Rounds of find and take in one claim. A refiled ticket belongs to another group, which only the next round
finds. An empty result must mean that there is nothing to do: the worker sleeps after it."""

NOTHING = Need()

_UNREAD = tuple(Grant._field_defaults.values())[Grant._fields.index("waited") - len(Grant._fields) + 1 :]
"""The defaults of a grant's fields that a claim does not read."""


# -- many jobs: strategies -------------------------------------------------------------------------------------------
class Taken(NamedTuple):
    grants: list[Grant]
    cleared: bool = False
    """A take claimed no job, but deleted stale tickets. Other jobs may wait behind them."""


class Take(Protocol):
    """A strategy: claims at most `room` jobs from due groups of one source."""

    def take(self, groups: list[DueGroup], open_gates: list[int], room: int) -> Taken: ...


class TakeFromEach(Protocol):
    """A strategy for several queues with nothing but plain jobs: claims at most `share` jobs of each, best first."""

    def take_from_each(self, queues: list[list[DueGroup]], share: int) -> list[Grant]: ...


class Strategies(Protocol):
    def of(self, source: Source) -> Take: ...

    def shared(self) -> TakeFromEach: ...


Admit = Callable[[Any, Sequence[DueGroup], int, ClaimGroup], Admitted]
"""As `LimitVerbs._admit`, with a session of the dialect."""


@dataclass(slots=True)
class LimitedTake:
    """Claims the jobs that slots and rates admit. A transaction takes from few groups: it locks their limits."""

    transact: Callable[[Callable[[Any], Admitted]], Admitted]
    admit: Admit
    claim_group: Callable[[Any, DueGroup, int], list[Grant]]
    waits: list[float]
    """Collects the seconds until rates open again."""

    def take(self, groups: list[DueGroup], open_gates: list[int], room: int) -> Taken:
        grants: list[Grant] = []
        for some in batches(groups, MOST_LIMITED_GROUPS):
            admitted, opening = self._admit_some(some, room - len(grants))
            grants += admitted
            self.waits += opening
            if len(grants) >= room:
                break
        return Taken(grants)

    def _admit_some(self, groups: Sequence[DueGroup], room: int) -> Admitted:
        def work(session: Any) -> Admitted:
            return self.admit(
                session, groups, room, lambda group, fits: self.claim_group(session, group, fits)
            )

        return self.transact(work)


Where = Mapping[str, list[str] | None]
"""Queues and tasks, as parameters of a statement."""


# -- many jobs: one claim --------------------------------------------------------------------------------------------
class ClaimRequest(NamedTuple):
    """The parameters of a worker's claim."""

    worker: str
    queues: Sequence[str]
    tasks: Sequence[str] | None
    limit: int
    order: Order

    @property
    def is_mixed(self) -> bool:
        """Whether the jobs of all queues are taken in one common order."""
        return self.order == "mixed" or len(self.queues) < 2

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for claims that find the same groups. Queues that take turns come in another order each time."""
        queues = tuple(self.queues) if self.is_mixed else frozenset(self.queues)
        return queues, None if self.tasks is None else tuple(self.tasks)

    @property
    def where(self) -> Where:
        return {"queues": list(self.queues), "tasks": None if self.tasks is None else list(self.tasks)}


class Claim:
    """One claim in progress."""

    def __init__(
        self,
        request: ClaimRequest,
        strategies: Strategies,
        find: Callable[[], DueGroups],
        queues_of: Callable[[DueGroups], Mapping[int, str]],
    ) -> None:
        self.grants: list[Grant] = []
        """The jobs claimed so far."""
        self.room = request.limit
        """How many more jobs it may claim."""
        self._request = request
        self._strategies = strategies
        self.find = find
        self._queues_of = queues_of

    def find_and_take(self, found: DueGroups | None = None) -> None:
        """Find due groups and take from them, until there is no room or nothing left; begin with `found` if given."""
        before: set[tuple[int, int]] = set()
        rounds = 0
        while rounds < ROUNDS:
            found = found or self.find()
            taken = self.take_from(found)
            if self.room <= 0:
                break
            lanes, found = found.lane_groups, None
            stuck = not taken.grants and not taken.cleared and lanes == before
            if not lanes or stuck:
                break
            before = lanes
            rounds += not taken.cleared  # not counted otherwise: stale tickets come to an end

    def take_from(self, found: DueGroups) -> Taken:
        if self._request.is_mixed:
            return self._take_in_turn(found, self.room)
        return self._take_by_queue(found, self._queues_of(found))

    def _take_in_turn(self, found: DueGroups, most: int) -> Taken:
        """Take from the groups, best first, until `most` jobs are taken."""
        grants: list[Grant] = []
        cleared = False
        for source, groups in found.in_turn():
            if len(grants) < most:
                taken = self._take(source, groups, found.open_gates, most - len(grants))
                grants += taken.grants
                cleared |= taken.cleared
        return Taken(grants, cleared)

    def _take_by_queue(self, found: DueGroups, queue_of: Mapping[int, str]) -> Taken:
        """Give each queue an equal share of the room; queues that used up their share divide what the others
        left. With a strict order, a queue must be empty before the next gets its turn."""
        tickets = found.unsorted_tickets()
        if tickets and self._take("lane", tickets, [], self.room).cleared:
            # The tickets are filed under their heads' own gates now, and the next look knows their queues.
            return Taken([], cleared=True)
        strict = self._request.order == "strict"
        parts = found.by_queue(queue_of)
        waiting = [(queue, parts[queue]) for queue in dict.fromkeys(self._request.queues) if queue in parts]
        grants: list[Grant] = []
        cleared = False
        while waiting and self.room > 0:
            turn = waiting[: 1 if strict else self.room]
            share = self.room // len(turn)
            taken = self._take_shares([part for _, part in turn], share)
            grants += taken.grants
            cleared |= taken.cleared
            waiting = waiting[len(turn) :]
            if not strict:
                gave = Counter(grant.queue for grant in taken.grants)
                waiting += [(queue, part) for queue, part in turn if gave[queue] >= share]
        return Taken(grants, cleared)

    def _take_shares(self, queues: list[DueGroups], share: int) -> Taken:
        """Take a share from each queue. Queues without lanes and limits share a statement: with any number of
        queues a claim is a few statements."""
        plain = [part.plain for part in queues if part.only_plain]
        together = len(plain) > 1
        grants = self._strategies.shared().take_from_each(plain, share) if together else []
        self.grants += grants
        self.room -= len(grants)
        cleared = False
        for part in queues:
            if not (together and part.only_plain):
                taken = self._take_in_turn(part, share)
                grants += taken.grants
                cleared |= taken.cleared
        return Taken(grants, cleared)

    def _take(self, source: Source, groups: list[DueGroup], open_gates: list[int], room: int) -> Taken:
        taken = self._strategies.of(source).take(groups, open_gates, room)
        self.grants += taken.grants
        self.room -= len(taken.grants)
        return taken


def grants_of(rows: Iterable[tuple[Any, ...]]) -> list[Grant]:
    """Build grants from rows with a grant's columns up to `waited`. The tuple's own constructor is used
    because Grant's takes twice as long, and this runs for every job."""
    new = tuple.__new__
    return [new(Grant, row + _UNREAD) for row in rows]


# -- one job ---------------------------------------------------------------------------------------------------------
class ClaimVerbs(LimitVerbs):
    def _fail_refused(self, request: ClaimRequest) -> bool:
        """After the database has refused a claim: find the jobs whose rows it refuses, and fail them. False: there is
        none among the due jobs."""
        due = [row[0] for row in self._tuples("list_claimable", limit=2 * request.limit, **request.where)]
        refused: list[tuple[str, Exception]] = []
        for some in batches(due):
            self._past_refusals(
                some,
                lambda ids: self._try_claims(ids, request.worker),
                lambda job_id, error: refused.append((job_id, error)),
            )
        return [self._refuse_start(job_id, request.worker, error) for job_id, error in refused] != []

    def _try_claims(self, ids: Sequence[str], worker: str) -> list[str]:
        """Claim in a transaction that is rolled back. Locked jobs are left out."""

        def work(session: Session) -> None:
            jobs, now = lock_skip_locked(session, ids)
            if now is not None:
                queued = [job for job in jobs.values() if job.state is State.QUEUED]
                try_places(session, [operate.claim(job, worker=worker, now=now) for job in queued], now)
            raise _Tried

        with suppress(_Tried):
            self._database.transact(work)
        return []

    def _refuse_start(self, job_id: str, worker: str, error: Exception) -> RefusedStart:
        """Fail a queued job that the database does not let start. If it refuses that too (a mirror's table may refuse
        the word for `failed`), the job waits where it stands, and others go ahead of it."""
        why = f"the database refuses to start it: {_first_line(error)}"
        try:
            state = self._database.transact(lambda session: _refuse(session, job_id, why, worker))
        except Exception as problem:
            if not self._database.refuses_row(problem):
                raise
            why += f"; and to fail it: {_first_line(problem)}"
            state = self._database.transact(
                lambda session: postpone(session, job_id, POSTPONED_FOR, why, worker)
            )
        what = "failed" if state is State.FAILED else f"is tried again in {POSTPONED_FOR / 60:.0f} min"
        if state is not None:
            logger.error("job %s %s: %s", job_id, what, why)
        return RefusedStart(state, why)

    def claim_by_id(
        self, job_id: str, worker: str, sites: Sequence[str] = (), sighting: Sighting | None = None
    ) -> Grant | ClaimDenied:
        """Claim one job, whatever its queue. An expired lease is first reaped (after two looks, as its task
        says), then claimed or adopted, all in one transaction. A job whose time is over ends and is denied;
        an orphan is granted nevertheless, so that its execution can be stopped."""
        self._make_worker_name(worker)
        monotonic = self._database.clock.monotonic()
        ripe = sighting if sighting is not None and sighting.ripe(monotonic) else None
        adoptable = Adoptable(sites, self._database.identity()) if sites else NOT_ADOPTABLE

        try:
            return self._claim_by_id(job_id, worker, adoptable, ripe, monotonic)
        except Exception as error:
            if not self._database.refuses_row(error):
                raise
            state, why = self._refuse_start(job_id, worker, error)
            if state is None:
                raise
            return ClaimDenied(job_id, state, why)

    def _claim_by_id(
        self, job_id: str, worker: str, adoptable: Adoptable, ripe: Sighting | None, monotonic: float
    ) -> Grant | ClaimDenied:
        def work(session: Session, need: Need = NOTHING) -> Grant | ClaimDenied | Need:
            if need:
                lock_limits(session, [need])
            jobs, now = lock(session, [job_id])
            job = jobs.get(job_id)
            if job is None or now is None:
                return ClaimDenied(job_id, None, "no such job")
            needed = self._needs_of(session, [job.gate]).get(job.gate, NOTHING)
            if needed != need and not _is_held(job, now):
                return needed
            return claim_in(session, job, now, worker, adoptable, ripe, monotonic, need)

        answer = self._database.transact(work)
        if isinstance(answer, Need):
            # Slots and rates are locked before jobs: start again, now that the job's need is known.
            need = answer
            answer = self._database.transact(lambda session: work(session, need))
        if isinstance(answer, Need):
            raise AssertionError(f"the gate of job {job_id} has changed")
        return answer

    def _claim_in_time(self, claim: Callable[[], list[Grant]]) -> list[Grant]:
        """Claim again while every claimed job had no time left: an empty result must mean that nothing is to do."""
        while True:
            taken = claim()
            grants = self._in_time(taken)
            if grants or not taken:
                return grants

    def _in_time(self, grants: list[Grant]) -> list[Grant]:
        """Leave out grants whose time is over: their jobs end here, as the sweep would have ended them."""
        late = {g.id: g.token for g in grants if g.seconds_left is not None and g.seconds_left <= 0}
        if not late:
            return grants
        for ids in batches(sorted(late)):
            some = {job_id: late[job_id] for job_id in ids}
            self._database.transact(lambda session, some=some: _expire_grants(session, some))  # type: ignore[misc] # mypy cannot infer a lambda with a default
        return [grant for grant in grants if grant.id not in late]


class _Tried(Exception):
    """Rolls back a claim that the database has not refused."""


class RefusedStart(NamedTuple):
    state: State | None
    """The state of the job now. None: it is not queued any more."""
    why: str


def _refuse(session: Session, job_id: str, why: str, worker: str) -> State | None:
    jobs, now = lock(session, [job_id])
    job = jobs.get(job_id)
    if job is None or now is None or job.state is not State.QUEUED:
        return None
    write(session, [operate.refuse_start(job, why, worker=worker, now=now)], now)
    return State.FAILED


def _first_line(error: Exception) -> str:
    return clean_error(str(error).strip()).partition("\n")[0]


def _expire_grants(session: Session, leases: Mapping[str, int]) -> None:
    """End these late jobs. Locked jobs are left: their leases run out, and the reaper finds their time over."""
    jobs, now = lock_held_skip_locked(session, leases)
    if now is not None:
        late = [job for job in jobs.values() if job.lease_token == leases[job.id]]
        moves = [settle(job, Expired(), job.policy, now=now) for job in late]
        write(session, without_locked_children(session, moves), now)


class Adoptable(NamedTuple):
    """Which orphans a claim may adopt."""

    sites: Sequence[str]
    origin: str
    """The identity of the database that placed their executions."""


NOT_ADOPTABLE = Adoptable((), "")


def claim_in(
    session: Session,
    job: Job,
    now: datetime,
    worker: str,
    adoptable: Adoptable,
    sighting: Sighting | None,
    monotonic: float,
    need: Need,
) -> Grant | ClaimDenied:
    """Claim this job, which is locked, in an open transaction."""
    job_id = job.id
    if job.state is State.RUNNING and job.worker is not None:
        if _is_held(job, now):
            held = f"its lease is held by {job.worker}"
            return ClaimDenied(job_id, job.state, held, retry_in=claimable_in(job, now))
        if sighting is None or not (sighting.matches(job) and sighting.has_expired(now)):
            first_look = _sight(session, job, job.worker, now, monotonic)
            again = "its lease has run out; it can be taken over after a second look"
            return ClaimDenied(job_id, job.state, again, first_look, job.lease_seconds / 3)
        lost = Lost(alone=sighting.alone, progressed=job.seq in find_progress(session, [job]))
        move = settle_lost(job, lost, now=now, jitter=random.random())
        write(session, [move], now)
        job = move.job
    if job.state is State.QUEUED and time_is_over(job, now):
        ended = operate.expire(job, now=now)
        write(session, [ended], now)
        return ClaimDenied(job_id, ended.job.state, ended.detail or "its time is over")
    if job.orphan and job.execution_site in adoptable.sites:
        if not session.tuples("find_origin", job=job.seq, attempt=job.attempt, origin=adoptable.origin):
            return ClaimDenied(job_id, job.state, "its execution belongs to another database")
        granted = operate.adopt(job, worker=worker, now=now)
    elif (why := _not_claimable(session, job, now, need)) is not None:
        return ClaimDenied(job_id, job.state, why, retry_in=claimable_in(job, now))
    else:
        if need.rate is not None:
            session.run("move_rates", taken=Records([{"key": need.rate, "jobs": 1}]))
        granted = operate.claim(job, worker=worker, now=now)
    write(session, [granted], now)
    return grant_of(granted.job, now)


def _is_held(job: Job, now: datetime) -> bool:
    if job.state is not State.RUNNING or job.lease_expires_at is None:
        return False
    return not has_run_out(job.lease_expires_at, job.lease_seconds, now)


def _sight(session: Session, job: Job, worker: str, now: datetime, monotonic: float) -> Sighting:
    expires_at = job.lease_expires_at or now
    return Sighting(
        id=job.id,
        token=job.lease_token,
        expires_at=expires_at,
        lease_seconds=job.lease_seconds,
        worker=worker,
        alone=len(session.tuples("find_leases_of", worker=worker)) == 1,
        seen_at=monotonic,
        expires_in=(expires_at - now).total_seconds(),
    )


def _not_claimable(session: Session, job: Job, now: datetime, need: Need) -> str | None:
    if job.state is not State.QUEUED:
        return "it is an orphan of another site" if job.orphan else f"it {state_reported(job.state.value)}"
    if job.available_at > now:
        return "it is not due yet"
    if session.rows("task_is_paused", task=job.task):
        return f"its task {job.task!r} is paused"
    if job.lane is not None:
        front = session.rows("find_lane_head", lane=job.lane)[0]
        if front["blocker"] is not None:
            return f"its lane {job.lane!r} is blocked by job {front['blocker']}"
        if front["head"] is not None and front["head"] != job.id:
            return f"job {front['head']} is ahead of it in lane {job.lane!r}"
    return why_not(session, need) if need else None


def grant_of(job: Job, now: datetime) -> Grant:
    """Build the grant. An orphan is granted even after its time is over: its worker has to stop it."""
    left = None if job.deadline_at is None else (job.deadline_at - now).total_seconds()
    started_at = job.execution_started_at
    # An adopted job's wait was counted when it was first claimed.
    begun = None if job.execution_site is not None else job.started_at or now
    return Grant(
        seq=job.seq,
        id=job.id,
        token=job.lease_token,
        attempt=job.attempt,
        task=job.task,
        queue=job.queue,
        args=job.args,
        lease_seconds=job.lease_seconds,
        policy=job.policy.dump(),
        lane=job.lane,
        group=job.group,
        failures=job.failures,
        crashes=job.crashes,
        special=job.special,
        waited=None if begun is None else max(0.0, (begun - job.available_at).total_seconds()),
        stop_requested=job.stop_requested,
        seconds_left=left,
        trace=job.trace,
        execution_site=job.execution_site,
        execution_name=job.execution_name,
        execution_age=None if started_at is None else (now - started_at).total_seconds(),
    )


# -- run now -----------------------------------------------------------------------------------------------------------
# One transaction decides.


class RunNowVerbs(EnqueueVerbs):
    """Store a job and run it in the calling process."""

    def run_now(self, job: NewJob, worker: str, cap: int) -> Grant | Full | Enqueued:
        """Store this job and claim it in one transaction if fewer than `cap` jobs of its task run; running jobs are
        those with a live lease of any worker, and orphans. Otherwise return Full and store nothing. Calls for one task
        decide one after the other. If another job holds the unique key, the result is as in `enqueue`. A job that
        cannot be claimed (its lane is taken, its task is paused) raises InvalidState and is not stored. The same id
        from the same worker returns the same grant again."""
        self._make_gates([job])
        self._make_worker_name(worker)
        monotonic = self._database.clock.monotonic()
        try:
            return self._database.transact(lambda session: _run_now(session, job, worker, cap, monotonic))
        except Exception as error:
            if not self._database.refuses_row(error):
                raise
            why = f"the database refuses it: {_first_line(error)}"
            raise InvalidState(job.id, "start", "not stored", why) from error


def _run_now(
    session: Session, job: NewJob, worker: str, cap: int, monotonic: float
) -> Grant | Full | Enqueued:
    _take_turn(session, job.task)
    # Counted by a statement of its own: it must see what earlier calls wrote.
    running_jobs = session.rows("list_running_of_task", task=job.task)
    if any(running["id"] == job.id for running in running_jobs):
        return _given_before(session, job, worker)
    holders = [_holder(running) for running in running_jobs if _takes_place(running)]
    if len(holders) >= cap:
        return _duplicate_of(session, job) or Full(
            tuple(holders), retry_hint(holders, running_jobs[0]["now"])
        )
    need = Need(job.slots, job.rate)
    if need:
        lock_limits(session, [need])  # before any job, as every claim does
    (made,) = enqueue_in(session, [job])
    if not made.created:
        return made
    jobs, now = lock(session, [job.id])
    assert now is not None
    granted = claim_in(session, jobs[job.id], now, worker, NOT_ADOPTABLE, None, monotonic, need)
    if isinstance(granted, ClaimDenied):
        # Raised, so that the stored job is rolled back too.
        raise InvalidState(job.id, "start", "not stored", granted.why)
    return granted


def _take_turn(session: Session, task: str) -> None:
    """Lock the task's row: calls for one task decide one by one. Two that count at once could exceed the cap."""
    while not session.rows("lock_running_cap", task=task):
        session.run("insert_running_cap", task=task)


def _takes_place(running: Row) -> bool:
    """Whether a running job counts towards the cap. An expired lease does not: its worker is gone, or will be
    fenced. An execution does, because it may live on until it is adopted and has ended."""
    return (
        bool(running["has_site"]) or running["worker"] is None or running["lease_expires_at"] > running["now"]
    )


def _holder(running: Row) -> RunningJob:
    return RunningJob(running["id"], running["worker"], running["started_at"], running["lease_expires_at"])


def _given_before(session: Session, job: NewJob, worker: str) -> Grant | Enqueued:
    """Answer a call repeated after a lost reply: with the same grant, if this worker has it."""
    jobs, now = lock(session, [job.id])
    row = jobs[job.id]
    if row.worker != worker or now is None:
        return Enqueued(job.id, created=False)
    return grant_of(row, now)


def _duplicate_of(session: Session, job: NewJob) -> Enqueued | None:
    """The existing job that the call leads to, or None: such a call needs no free capacity."""
    if job.unique_key is None or job.on_duplicate != "return":
        return None
    rows = find_key_owners(session, [(job.task, job.unique_key)])
    return Enqueued(rows[0]["id"], created=False) if rows else None
