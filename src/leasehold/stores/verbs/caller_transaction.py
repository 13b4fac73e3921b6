"""Enqueue inside the user's own transaction, over the user's own connection.

The verb is `enqueue_in`, as for every other enqueue. What is special: nothing is repeated and no savepoint is set, so
all that can be refused is refused before the first write; and the transaction may stay open for long, so nothing may be
locked in it that others need.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from leasehold.domain.errors import DuplicateJob, InvalidInput, JobNotFound
from leasehold.domain.job import Enqueued, NewJob
from leasehold.stores.caller_transaction import Borrowed, Execute, aborrow, borrow, in_thread
from leasehold.stores.database.database import Session
from leasehold.stores.database.statements import PARAMETER
from leasehold.stores.verbs.dependencies import check_order
from leasehold.stores.verbs.enqueue import EnqueueVerbs, enqueue_in
from leasehold.stores.verbs.groups import refuse_known_holds
from leasehold.stores.verbs.limits import gate_of
from leasehold.stores.verbs.writing import Groups, find_holders


class EnlistVerbs(EnqueueVerbs):
    """Enqueue inside the caller's own transaction, or from another language."""

    def enqueue_within(self, tx: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueue over the caller's connection, inside its open transaction: the caller's commit stores the jobs and
        wakes waiting workers, a rollback removes them, and no other connection sees them before. The store repeats
        nothing; an error of the database reaches the caller. `after` takes only parents that have ended. Raises
        InvalidInput if the connection is unknown, closed, in autocommit, of an async driver, or leads to another
        database."""
        checked = _checked(jobs)
        borrowed = borrow(tx)
        return self._enlist(borrowed, borrowed.execute, checked)

    async def aenqueue_within(self, tx: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """`enqueue_within` that also takes connections of async drivers. It is the only verb to await: such a
        connection works only on its own loop."""
        checked = _checked(jobs)
        borrowed = await aborrow(tx)
        if not borrowed.is_async:
            # Here, and not in a thread of ours: sqlite3 serves no other thread than the one that opened it.
            return self._enlist(borrowed, borrowed.execute, checked)
        return await in_thread(lambda execute: self._enlist(borrowed, execute, checked), borrowed.execute)

    def _enlist(self, borrowed: Borrowed, execute: Execute, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if not jobs:
            return []
        session = self._session_over(borrowed, execute)
        self._check_place(session)
        if not borrowed.in_transaction():
            raise InvalidInput(
                "tx",
                "the connection is in autocommit and has no open transaction",
                "begin one first, or leave tx out: then the job is stored at once",
            )
        _check_parents(session, jobs)
        _check_keys(session, jobs)
        refuse_known_holds(session, {job.group for job in jobs if job.group is not None})
        self._prepare(session, jobs)
        made = enqueue_in(session, jobs, notify=self._notify_within)
        if any(one.created for one in made):
            self._announce(session, jobs)
        return made

    def insert_sql(self, job: NewJob) -> str:
        """SQL for other languages that stores a plain job like this one, with id and arguments as parameters. The text
        depends only on the job's task, queue, priority, policy and lease."""
        # Now, though the text brings it along: in a long transaction of another language a new gate would block
        # every producer that first meets the task meanwhile.
        self._make_gates([job])
        return self._insert_sql(job)

    @abstractmethod
    def _insert_sql(self, job: NewJob) -> str: ...

    @abstractmethod
    def _session_over(self, borrowed: Borrowed, execute: Execute) -> Session:
        """Refuses a connection to another kind of database."""

    @abstractmethod
    def _check_place(self, session: Session) -> None:
        """Raises InvalidInput unless it leads to this store's own database. The first statement, and it only reads."""

    @abstractmethod
    def _prepare(self, session: Session, jobs: Sequence[NewJob]) -> None:
        """Store what jobs share with others: gates, limits, long names."""

    @abstractmethod
    def _notify_within(
        self, session: Session, changed: Groups, opened: Mapping[str, bool], cancelled: set[str]
    ) -> None:
        """Notify groups, without locking them for as long as the transaction is open."""

    def _announce(self, session: Session, jobs: Sequence[NewJob]) -> None:
        """Notify workers, and watchers of groups, with the commit."""


def insert_parameters(job: NewJob) -> dict[str, Any]:
    """The parameters of insert_by_hand, without id and arguments: the caller gives them."""
    return {
        "task": job.task,
        "queue": job.queue,
        "gate": gate_of(job),
        "priority": job.priority,
        "policy": job.policy.dump(),
        "lease_seconds": job.lease_seconds,
    }


def filled_in(text: str, values: Mapping[str, Any], left: Mapping[str, str]) -> str:
    """A statement with these values as literals. The parameters that are left get another name."""

    def literal(match: re.Match[str]) -> str:
        if match[1] in left:
            return left[match[1]]
        value = values[match[1]]
        if value is None:
            return "NULL"
        return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)

    return PARAMETER.sub(literal, text)


def another_database(label: str, found: str) -> InvalidInput:
    return InvalidInput(
        "tx",
        f"the connection leads to {found}, and the app's jobs are in {label}",
        "give a connection to the app's own database, or make the app with the database of this connection",
    )


def _checked(jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """Make all of them, so that every error is known before anything is written."""
    jobs = list(jobs)
    check_order(jobs)
    return jobs


def _check_parents(session: Session, jobs: Sequence[NewJob]) -> None:
    """A job that waits for others marks its parents, and a parent cannot end until that mark is committed: its worker
    could not settle it while the user's transaction is open. So parents must have ended."""
    wanted = sorted({parent for job in jobs for parent in job.after})
    if not wanted:
        return
    ended = dict(session.tuples("find_ended", ids=wanted))
    for parent in wanted:
        if parent not in ended:
            raise JobNotFound(parent)
        if not ended[parent]:
            raise InvalidInput(
                "after",
                f"job {parent} has not ended, and with tx= the new job would hold it up until your commit",
                "name jobs that have ended, or enqueue without tx after the commit",
            )


def _check_keys(session: Session, jobs: Sequence[NewJob]) -> None:
    keyed = [job for job in jobs if job.on_duplicate == "raise" and job.unique_key is not None]
    if not keyed:
        return
    keys = [(job.task, job.unique_key or "") for job in keyed]
    held = {(row["task"], row["unique_key"]): row["id"] for row in find_holders(session, keys)}
    for job in jobs:
        if job.unique_key is not None:
            holder = held.setdefault((job.task, job.unique_key), job.id)
            if holder != job.id and job.on_duplicate == "raise":
                raise DuplicateJob(holder, job.task, job.unique_key)
