"""What a store promises. The docstrings are the promises; tests/contract holds every store to them.

A store is synchronous and safe to use from several threads. Every verb is one short transaction: it has happened
wholly when the call returns, or not at all when it raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol

from leasehold.domain.budget import BudgetLine, Spend, Spending
from leasehold.domain.events import LogTail, Progress, RunNotes, Seen
from leasehold.domain.groups import GroupStatus
from leasehold.domain.job import Grant, Job, NewJob, Question, Renewal, Sighting
from leasehold.domain.outcome import Success
from leasehold.domain.states import State
from leasehold.domain.stop import StopMode, StoppedJob, StopScope
from leasehold.stores.answers import (
    ALL,
    Acquired,
    Denied,
    Ending,
    Enqueued,
    Filter,
    Finding,
    Full,
    GateLimits,
    Group,
    HistoryEntry,
    LaneHolder,
    OpenQuestion,
    Page,
    ParentResult,
    Pause,
    Pruned,
    QueueCount,
    RateRow,
    Reaped,
    Relative,
    Scope,
    Settled,
    SlotRow,
    Stoppable,
    WorkerCard,
)


class Wakeups(Protocol):
    """Hints that there may be work. They only shorten a wait; nothing is lost with them."""

    def wait(self, seconds: float) -> bool:
        """Block until something may have changed, at most this long. True: look now."""
        ...

    def call(self, on_hint: Callable[[], None]) -> bool:
        """Whether each hint will be told to this function as it comes, from the thread that brings it. `wait` then
        hears of none. False: somebody has to wait."""
        ...

    def stir(self) -> None:
        """There was work: more may follow soon."""
        ...

    @property
    def hears(self) -> bool:
        """Hints come through. False: only looking helps, until they do."""
        ...

    def close(self) -> None: ...


class Transaction(Protocol):
    """An open transaction that holds a job's row under one lease."""

    connection: Any
    """The driver's own: sqlite3.Connection or psycopg.Connection. What is written through it is committed with what
    the verbs below write."""

    def load_steps(self) -> dict[str, str]: ...

    def save_steps(self, steps: Mapping[str, str]) -> None: ...

    def spend(self, attempt: int, spends: Sequence[Spend]) -> list[BudgetLine]: ...

    def succeed(self, outcome: Success) -> None:
        """End the run with this transaction, as `settle` would."""
        ...


class Store(Protocol):
    # -- enqueue ---------------------------------------------------------------------------------------------------
    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """All or none, durable on return, in the order given. The same id twice makes one job. A held unique key
        leads to its holder: it is returned, replaced (if it never started) or raised as DuplicateJob. A job with
        `after` waits until those have ended; a parent that has ended already is judged at once, one that does not
        exist raises JobNotFound. Waiting workers are told, in any process."""
        ...

    # -- claim -----------------------------------------------------------------------------------------------------
    def claim(
        self, owner: str, queues: Sequence[str], limit: int, kinds: Sequence[str] | None = None
    ) -> list[Grant]:
        """Up to `limit` due jobs, one winner each: by priority, due time, seq. Lane heads compete with their own
        priority; among rows of the same priority the order between lanes and plain jobs is exact to a batch. Paused
        queues and kinds, kinds not asked for, blocked lanes and jobs not due are passed over at no cost."""
        ...

    def opens_in(self, queues: Sequence[str], kinds: Sequence[str] | None = None) -> float | None:
        """Seconds until a rate may let the next job start that the last claims from these queues left there. None: no
        rate stands in the way of any. Asks nobody."""
        ...

    def claim_by_id(
        self, job_id: str, owner: str, sites: Sequence[str] = (), sighting: Sighting | None = None
    ) -> Grant | Denied:
        """Claim this job, whatever its queue. A lease that has run out is first reaped (two looks, as its task
        says), then claimed or adopted, all in one transaction."""
        ...

    def run_now(self, job: NewJob, owner: str, cap: int) -> Grant | Full | Enqueued:
        """Store this job and claim it, in one transaction, if fewer than `cap` jobs of its kind run: those with a live
        lease, whoever holds it, and orphans. Else Full, and nothing is stored. Calls for one kind decide one after
        the other. A held unique key leads to its holder, as in enqueue. What could not be claimed (its lane is
        taken, its kind is paused) raises Refused, and nothing is stored. The same id again, by the same owner, gives
        its grant again."""
        ...

    # -- hold ------------------------------------------------------------------------------------------------------
    def renew(self, leases: Mapping[str, int]) -> list[Renewal]:
        """Extend the leases named by id and token, late or not. Those missing from the answer are not held."""
        ...

    def place_execution(self, job_id: str, token: int, site: str, name: str) -> bool:
        """Record where the external run will live, before it is started. False: the lease is lost, do not start."""
        ...

    def mark_started(self, job_id: str, token: int) -> bool:
        """Record that the external run was started. False: the lease is lost."""
        ...

    def settle(self, endings: Sequence[Ending]) -> Settled:
        """End runs. Only the holder of the token may; a result the database refuses costs only its own job. Follow-ups
        of a success are made with it, once, however often the call is repeated; one that cannot be stored (its key is
        held, with on_duplicate="raise"; its parent is gone) is left out, and the history says so. Jobs that wait for
        one that has ended are set free, or cancelled with the reason, in the same transaction."""
        ...

    # -- steps -----------------------------------------------------------------------------------------------------
    def load_steps(self, job_id: str) -> dict[str, str]:
        """The results of the job's steps (encoded JSON), by name."""
        ...

    def save_steps(self, job_id: str, token: int, steps: Mapping[str, str], state: str | None = None) -> bool:
        """Keep these results, and with `state` the job's checkpoint, all or none. False: the lease is lost, nothing
        was written. The same again does no harm."""
        ...

    def save_spent_steps(
        self, job_id: str, token: int, attempt: int, steps: Mapping[str, str], spends: Sequence[Spend]
    ) -> list[BudgetLine] | None:
        """As `save_steps`, with what the steps have spent; the budgets then. None: the lease is lost, nothing was
        written, neither steps nor spends."""
        ...

    def load_checkpoint(self, job_id: str) -> str | None: ...

    def transaction(self, job_id: str, token: int, seconds: float) -> AbstractContextManager[Transaction]:
        """A transaction with the job's row locked under this lease, over a connection that nobody else uses. Committed
        at a clean end of the block, rolled back by an exception. Raises LeaseLost, and TransactionTooLong when the
        block took more than `seconds`: then it is rolled back, and the row is free at that time whatever the block
        does."""
        ...

    # -- budgets ---------------------------------------------------------------------------------------------------
    def spend(self, job_id: str, token: int, attempt: int, spends: Sequence[Spend]) -> list[BudgetLine]:
        """Record what a run has spent, always, also after its lease was lost; the token is only kept. A key that is
        there already is passed over. The budgets of the job and its group then. Raises JobNotFound."""
        ...

    def budget(self, job_id: str) -> list[BudgetLine]:
        """What the job and its group may spend and have spent, by unit. Raises JobNotFound."""
        ...

    def spending(self, job_id: str) -> list[Spending]:
        """The job's ledger, in the order of time."""
        ...

    def top_up(self, job_id: str, amounts: Mapping[str, int], actor: str | None = None) -> list[BudgetLine]:
        """Raise the job's limits by so much. Refused when the job is final; InvalidInput for a unit without a limit."""
        ...

    def set_group_budget(self, group: str, limits: Mapping[str, int | None]) -> list[BudgetLine]:
        """Set these limits of a group; None takes one away. The others stay."""
        ...

    def group_budget(self, group: str) -> list[BudgetLine]: ...

    # -- tell ------------------------------------------------------------------------------------------------------
    def write_events(self, runs: Sequence[RunNotes]) -> list[tuple[str, int]]:
        """Store what the holders of these leases tell, in their order: events get the job's next numbers, a key that
        is there already is passed over, progress replaces the one before, log lines go to the attempt's tail. Notes
        that were written before, by their `place`, are not written again. The leases (id, token) that are lost come
        back: nothing of theirs was written."""
        ...

    def read_stream(self, job_id: str, since: int = 0, limit: int = 500) -> Seen:
        """The job's state and its events numbered above `since`, of one moment. What was seen is final: no smaller
        number appears later. Raises JobNotFound."""
        ...

    def progress(self, job_id: str) -> Progress | None: ...

    def logs(self, job_id: str) -> list[LogTail]:
        """The log tails, by attempt."""
        ...

    # -- recover ---------------------------------------------------------------------------------------------------
    def sight_expired(self, limit: int = 1000) -> list[Sighting]:
        """The first look at leases that have run out on the database's clock."""
        ...

    def reap(self, sightings: Sequence[Sighting]) -> list[Reaped]:
        """The second look: what has not moved for ttl/3 on the looker's clock is settled as lost. Others are left."""
        ...

    def count_leases(self) -> int:
        """How many leases are held."""
        ...

    def expire(self, limit: int = 500) -> list[Job]:
        """End jobs that do not run and whose time is over: past their deadline → timed_out; not started by their
        `start_by` → cancelled. Close questions whose time is over; who waits for one is queued."""
        ...

    def adopt(
        self, owner: str, sites: Sequence[str], kinds: Sequence[str] | None = None, limit: int = 100
    ) -> list[Grant]:
        """Take orphans of these sites. Costs no attempt."""
        ...

    def find_held(self, owner: str) -> list[Grant]:
        """After a lost reply: the leases this owner holds."""
        ...

    def read_settlements(self, leases: Mapping[str, int], owner: str) -> dict[str, str]:
        """After a lost reply: for each lease `done` (settled by me), `mine` (repeat it), `fenced`, or `unknown` (a
        later run was settled since)."""
        ...

    # -- operate ---------------------------------------------------------------------------------------------------
    def cancel(self, job_id: str, actor: str | None = None, reason: str | None = None) -> Job:
        """Any state that is not final. At once, or a flag for the running. Refused else, and nothing changes."""
        ...

    def pause(self, job_id: str, actor: str | None = None, reason: str | None = None) -> Job: ...

    def finish(self, job_id: str, actor: str | None = None, reason: str | None = None) -> Job:
        """Let a running job end without another try."""
        ...

    def resume(
        self, job_id: str, actor: str | None = None, args: str | None = None, fresh: bool = False
    ) -> Job:
        """A halted job goes on as the same job; a pause that was only asked for is withdrawn. With `fresh` its steps
        and its checkpoint are forgotten. Refused while it is over its budget, unless that is only a cap; with
        DuplicateJob when another job holds its unique key by now."""
        ...

    def resolve(self, job_id: str, actor: str | None = None, reason: str | None = None) -> Job:
        """The failure stays, the lane goes on."""
        ...

    def release(self, job_id: str, actor: str | None = None) -> Job: ...

    def answer(self, job_id: str, key: str, answer: str, actor: str | None = None) -> Job:
        """Answer an open question (encoded JSON). A waiting job is queued; a paused one keeps the answer. An answer
        that does not fit the question's schema raises InvalidAnswer, and the question stays open."""
        ...

    def retry(self, job_id: str, new_id: str, actor: str | None = None) -> Job:
        """A new job like this one, linked by `retry_of`. The old one must be at rest, and stays as it is."""
        ...

    def pause_scope(
        self,
        scope: Scope,
        name: str,
        actor: str | None = None,
        reason: str | None = None,
        for_: float | None = None,
        until: datetime | None = None,
    ) -> Pause:
        """No claims from this queue, or of this kind, until then or until resumed. Running jobs go on."""
        ...

    def resume_scope(self, scope: Scope, name: str) -> bool:
        """False: it was not paused."""
        ...

    def list_pauses(self) -> list[Pause]: ...

    def resume_lane(self, lane: str, actor: str | None = None) -> Job | None:
        """Resume the job that halts the lane. None: nothing halts it."""
        ...

    # -- limits ----------------------------------------------------------------------------------------------------
    def set_slot(self, name: str, limit: int) -> None:
        """At most `limit` units in use at once, across all workers; 0 closes it. What is in use stays so."""
        ...

    def list_slots(self) -> list[SlotRow]: ...

    def set_rate(self, key: str, limit: str, spacing: float, burst: int) -> None:
        """One job every `spacing` seconds, up to `burst` of them at once after a silence."""
        ...

    def close_rate(
        self,
        key: str,
        actor: str | None = None,
        reason: str | None = None,
        for_: float | None = None,
        until: datetime | None = None,
    ) -> None:
        """No job of this key starts, on any worker, until then or until it is opened."""
        ...

    def open_rate(self, key: str) -> bool:
        """False: it was not closed."""
        ...

    def list_rates(self) -> list[RateRow]: ...

    def limits_of(self, gate: int) -> GateLimits:
        """What jobs behind this gate need, how much of it is in use, and by whom."""
        ...

    def acquire(self, job_id: str, token: int, name: str, units: int = 1) -> Acquired:
        """Units of a slot for the holder of this lease, until its run ends; or tokens of a rate. At once or not at
        all. Raises InvalidInput for a name that is neither, and LeaseLost."""
        ...

    def release_slot(self, job_id: str, attempt: int, name: str) -> int:
        """Give back what this run has acquired of the slot; how many units that was."""
        ...

    # -- stop, groups ----------------------------------------------------------------------------------------------
    def find_stoppable(self, scope: StopScope, before: str | None = None, running: bool = False) -> Stoppable:
        """Jobs in the scope that a stop would move, newest first; with `running` those that run, by the leases that
        are held. A read: what becomes of them is decided by `stop_jobs`."""
        ...

    def stop_jobs(
        self,
        ids: Sequence[str],
        scope: StopScope,
        mode: StopMode,
        actor: str | None = None,
        reason: str | None = None,
    ) -> list[StoppedJob]:
        """Stop these jobs, in one short transaction: cancelled at once, or a flag for the running, whose follow-ups in
        the scope will be created cancelled. Those that have ended are left out of the answer."""
        ...

    def still_running(self, ids: Sequence[str]) -> list[str]: ...

    def group(self, name: str) -> Group | None: ...

    def group_status(self, name: str, kinds: Sequence[str] | None = None) -> GroupStatus:
        """Of all its jobs, or of these kinds. What it tells is at least as new as its version."""
        ...

    def group_versions(self, names: Sequence[str]) -> dict[str, int]:
        """One read. Groups that do not exist are left out."""
        ...

    def stop_group(self, name: str, hold: bool, actor: str | None = None, reason: str | None = None) -> None:
        """Record that the group was stopped. With `hold` nothing comes into it, and nothing in it is resumed, released,
        answered or retried, until it is released: GroupOnHold."""
        ...

    def release_group(self, name: str, actor: str | None = None) -> bool:
        """False: it was not on hold."""
        ...

    def tell_watchers(self) -> None:
        """Tell those who wait for groups, in any process, that one may have changed. Workers are not woken."""
        ...

    def group_wakeups(self, listen_url: str | None = None) -> Wakeups:
        """The waiting side of `tell_watchers`."""
        ...

    # -- inspect ---------------------------------------------------------------------------------------------------
    def get(self, job_id: str) -> Job:
        """Raises JobNotFound."""
        ...

    def list_jobs(self, filter: Filter = ALL, limit: int = 50, before: str | None = None) -> Page:
        """Newest first; `before` is the last page's `next`."""
        ...

    def count(self, cap: int = 10_000) -> dict[State, int]:
        """Jobs by state, each counted up to `cap`."""
        ...

    def history(self, job_id: str) -> list[HistoryEntry]: ...

    def last_actor(self, job_id: str, events: Sequence[str]) -> str | None:
        """Who did the last of these, by the job's history."""
        ...

    def count_ahead(self, job: Job, cap: int = 1000) -> int:
        """How many due jobs a claim from its queue would take before this one, or how many are before it in its lane.
        Of each kind of jobs the first `cap` are looked at."""
        ...

    def questions(self, job_id: str) -> list[Question]:
        """All it has asked, in the order of asking. Secret answers are left out."""
        ...

    def read_question(self, job_id: str, key: str) -> Question | None:
        """For the job's own run: with the answer, though it be secret, and expired as the clock says now."""
        ...

    def open_questions(
        self, group: str | None = None, queue: str | None = None, kind: str | None = None, limit: int = 100
    ) -> list[OpenQuestion]:
        """The inbox: open questions that an answer may meet, the oldest first."""
        ...

    def relatives(self, job_id: str, limit: int = 500) -> list[Relative]:
        """What it waits for (unmet first), who waits for it, whose follow-up it is, which follow-ups it has."""
        ...

    def parent_results(self, job_id: str) -> list[ParentResult]:
        """Of those it has waited for and that have succeeded, in the order of `after`."""
        ...

    # -- prune -----------------------------------------------------------------------------------------------------
    def prune(self, age: float, limit: int = 1000, after: str | None = None) -> Pruned:
        """Look at the next `limit` jobs in the order of their ids, and delete those that came to rest more than `age`
        seconds ago. Never what halts a lane, holds a unique key for good, belongs to a group that still lives, or is
        awaited by a job that has not ended for good."""
        ...

    # -- workers ---------------------------------------------------------------------------------------------------
    def beat_worker(self, card: WorkerCard) -> None:
        """A worker tells of itself. Nothing is decided by it."""
        ...

    def forget_worker(self, owner: str) -> None: ...

    def forget_silent_workers(self, age: float = 3600.0) -> None: ...

    def list_workers(self, age: float = 45.0) -> list[WorkerCard]:
        """Those who were heard of in the last `age` seconds."""
        ...

    def list_lanes(self, limit: int = 500) -> list[LaneHolder]:
        """Lanes that are held or stand still, and by which job."""
        ...

    def list_gates(self) -> list[tuple[str, str]]:
        """Every (queue, kind) that jobs were ever made for."""
        ...

    def lane_front(self, lane: str) -> tuple[str | None, str | None]:
        """The job that is first in the lane, and the one that blocks it."""
        ...

    def wake(self) -> None:
        """Tell waiting workers, in any process, that there may be work."""
        ...

    def wakeups(self, listen_url: str | None = None) -> Wakeups: ...

    def another(self) -> Store:
        """The same store over a connection of its own: what must not wait behind others, such as renewals."""
        ...

    # -- vitals ----------------------------------------------------------------------------------------------------
    def now(self) -> datetime:
        """The store's own clock."""
        ...

    def count_by_queue(self, cap: int = 10_000) -> list[QueueCount]:
        """Jobs by queue, task and state, each state read up to `cap`. Final states are left out."""
        ...

    def stuck_lanes(self, limit: int = 20) -> list[str]:
        """Lanes that nothing blocks, whose head is due, and that no ticket speaks for. There must be none."""
        ...

    def stuck_children(self, limit: int = 20) -> list[str]:
        """Jobs that wait for others, none of whom can still end. There must be none."""
        ...

    def long_expired(self, age: float, limit: int = 20) -> list[str]:
        """Jobs whose lease ran out longer ago than `age` seconds, and that nobody has taken over."""
        ...

    def missing_objects(self) -> list[str]:
        """Tables, indexes and constraints that the schema should have and has not."""
        ...

    def examine(self) -> list[Finding]:
        """What this kind of database can have wrong with it."""
        ...

    # -- schema ----------------------------------------------------------------------------------------------------
    def upgrade_sql(self, after: int = 0) -> str:
        """The migrations that follow a version, as one script for somebody else to run."""
        ...

    def upgrade(self) -> list[int]:
        """Apply the missing migrations under a lock; the versions that were applied."""
        ...

    def drop(self) -> None:
        """Remove the whole store with all it holds. For scratch stores; a SQLite file is removed by its owner."""
        ...

    def check_schema(self) -> None:
        """Raises SchemaOutdated or SchemaTooNew."""
        ...

    @property
    def label(self) -> str: ...

    def close(self) -> None: ...
