"""The stages that every job passes: enqueue, claim, renew, settle, and recover when somebody is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from leasehold.domain.job import Grant, Job, NewJob, Renewal, Sighting
from leasehold.domain.states import Flag
from leasehold.domain.views import Reaped
from leasehold.stores.answers import (
    Denied,
    Ending,
    Enqueued,
    Full,
    Once,
    Order,
    Settled,
)


class Enqueue(Protocol):
    """A job becomes a row."""

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """All or none, durable on return, in the order given. The same id twice makes one job. A held unique key
        leads to its holder: it is returned, replaced (if it never started) or raised as DuplicateJob. A job with
        `after` waits until those have ended; a parent that has ended already is judged at once, one that does not
        exist raises JobNotFound. Waiting workers are told, in any process."""
        ...

    def enqueue_once(self, jobs: Sequence[NewJob], key: str, fingerprint: str) -> Once:
        """As `enqueue`, once for a key: within a day the same key and fingerprint lead to what was made first, whatever
        has become of it, and make nothing. Another fingerprint raises IdempotencyKeyReused. Of two that come at the
        same moment one makes the jobs, and the other gets them."""
        ...

    def enqueue_within(self, tx: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """As `enqueue`, over a connection of the caller's and inside its open transaction: stored with its commit,
        gone with its rollback, found by nobody before. Waiting workers are told by the commit. Nothing is repeated:
        what the database refuses goes through to the caller. `after` takes parents that have ended only. Raises
        InvalidInput for a connection that is not known, closed, in autocommit, of an async driver, or leads to
        another database."""
        ...

    async def aenqueue_within(self, tx: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """As `enqueue_within`, for connections of async drivers too. The only verb that is awaited: such a connection
        can be used on its own loop alone."""
        ...


class Claim(Protocol):
    """A row gets one owner."""

    def claim(
        self,
        owner: str,
        queues: Sequence[str],
        limit: int,
        kinds: Sequence[str] | None = None,
        *,
        idle: bool = False,
        order: Order = "mixed",
    ) -> list[Grant]:
        """Up to `limit` due jobs, one winner each: by priority, due time, seq. Lane heads compete with their own
        priority; among rows of the same priority the order between lanes and plain jobs is exact to a batch. Paused
        queues and kinds, kinds not asked for, blocked lanes and jobs not due are passed over at no cost. A job whose
        time is over is ended as `expire` would, and not handed out. `idle`: the same was asked a moment ago, and there
        was nothing; the answer is the same, perhaps sooner. `order`: of several queues, all as if they were one
        ("mixed"), equal shares beginning with the first ("turns"), or each only when those before it have nothing
        ("strict")."""
        ...

    def opens_in(self, queues: Sequence[str], kinds: Sequence[str] | None = None) -> float | None:
        """Seconds until the next job may start that the last claims from these queues left there, because it was not
        due yet or a rate stood in the way. None: there was none. Asks nobody."""
        ...

    def claim_by_id(
        self, job_id: str, owner: str, sites: Sequence[str] = (), sighting: Sighting | None = None
    ) -> Grant | Denied:
        """Claim this job, whatever its queue. A lease that has run out is first reaped (two looks, as its task
        says), then claimed or adopted, all in one transaction. One whose time is over is ended, and denied; an orphan
        is granted all the same, so that it can be stopped."""
        ...

    def run_now(self, job: NewJob, owner: str, cap: int) -> Grant | Full | Enqueued:
        """Store this job and claim it, in one transaction, if fewer than `cap` jobs of its kind run: those with a live
        lease, whoever holds it, and orphans. Else Full, and nothing is stored. Calls for one kind decide one after
        the other. A held unique key leads to its holder, as in enqueue. What could not be claimed (its lane is
        taken, its kind is paused) raises Refused, and nothing is stored. The same id again, by the same owner, gives
        its grant again."""
        ...


class Renew(Protocol):
    """The owner keeps its lease, and says where it runs."""

    def renew(self, leases: Mapping[str, int]) -> list[Renewal]:
        """Extend the leases named by id and token, late or not. Those missing from the answer are not held."""
        ...

    def read_flags(self, leases: Mapping[str, tuple[int, int]]) -> dict[str, Flag]:
        """Which of these leases were told to stop: by id, each with the number of the job and the token. A read: it
        extends none, and says nothing about those that are gone."""
        ...

    def place_execution(self, job_id: str, token: int, site: str, name: str) -> bool:
        """Record where the external run will live, before it is started. False: the lease is lost, do not start."""
        ...

    def mark_started(self, job_id: str, token: int) -> bool:
        """Record that the external run was started. False: the lease is lost, or nothing was placed."""
        ...


class Settle(Protocol):
    """A run ends."""

    def settle(self, endings: Sequence[Ending], *, wait: bool = True) -> Settled:
        """End runs. Only the holder of the token may; a result the database refuses costs only its own job. Follow-ups
        of a success are made with it, once, however often the call is repeated; one that cannot be stored (its key is
        held, with on_duplicate="raise"; its parent is gone) is left out, and the history says so. Jobs that wait for
        one that has ended are set free, or cancelled with the reason, in the same transaction. Without `wait`, runs
        whose rows somebody has locked are left alone and named, so that the others do not wait for them."""
        ...


class Recover(Protocol):
    """What is taken over from those who are gone, or whose answer was lost."""

    def sight_missed(self, sweep: float = 0.0, limit: int = 1000) -> list[Sighting]:
        """The first look at leases whose renewal is overdue on the database's clock: those that a look `sweep` seconds
        later would see too late to reap them at their expiry. Also at those that expire further ahead than they are
        long, because the clock was set back."""
        ...

    def reap(self, sightings: Sequence[Sighting]) -> list[Reaped]:
        """The second look: what has not moved for ttl/3 on the looker's clock, and has run out, is settled as lost.
        What expires further ahead than it is long must not have moved for the whole lease. Others are left."""
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
        """After a lost reply: for each lease `done` (settled by me), `mine` (repeat it, and read again if that is
        refused: the first try may have been on its way) or `fenced`. Of a job that was pruned since, `fenced` too."""
        ...
