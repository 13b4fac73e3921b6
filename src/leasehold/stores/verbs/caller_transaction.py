"""Enqueue inside the user's own transaction, over the user's own connection.

The verbs call `enqueue_in`, as every other enqueue does, under two more rules. Nothing is repeated and no
savepoint is set, so every refusal must come before the first write. The transaction may stay open for long,
so it must not lock rows that others need.
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
from leasehold.stores.verbs.writing import Groups, find_key_owners


class CallerTransactionVerbs(EnqueueVerbs):
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
            # In the caller's thread: sqlite3 refuses a connection in every thread except the one that opened it.
            return self._enlist(borrowed, borrowed.execute, checked)
        return await in_thread(lambda execute: self._enlist(borrowed, execute, checked), borrowed.execute)

    def _enlist(self, borrowed: Borrowed, execute: Execute, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if not jobs:
            return []
        session = self._session_over(borrowed, execute)
        self._check_same_database(session)
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
        made = enqueue_in(session, jobs, update=self._update_groups_at_commit)
        if any(one.created for one in made):
            self._notify_at_commit(session, jobs)
        return made

    def insert_sql(self, job: NewJob) -> str:
        """SQL for other languages that stores a plain job like this one, with id and arguments as parameters. The text
        depends only on the job's task, queue, priority, policy and lease."""
        # Stored now, although the SQL text would store the gate too: in a long transaction of another
        # language, a new gate would block every producer that first uses the task meanwhile.
        self._make_gates([job])
        return self._insert_sql(job)

    @abstractmethod
    def _insert_sql(self, job: NewJob) -> str: ...

    @abstractmethod
    def _session_over(self, borrowed: Borrowed, execute: Execute) -> Session:
        """A session over the caller's connection. Raises InvalidInput if it leads to another database system."""

    @abstractmethod
    def _check_same_database(self, session: Session) -> None:
        """Raise InvalidInput unless this is the store's own database. The first statement; it only reads."""

    @abstractmethod
    def _prepare(self, session: Session, jobs: Sequence[NewJob]) -> None:
        """Store the rows that jobs share with other jobs: gates, limits, long names."""

    @abstractmethod
    def _update_groups_at_commit(
        self, session: Session, changed: Groups, opened: Mapping[str, bool], cancelled: set[str]
    ) -> None:
        """Count new jobs in their groups at the commit: no group is locked for as long as the transaction is open."""

    def _notify_at_commit(self, session: Session, jobs: Sequence[NewJob]) -> None:
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
    """Return the statement with these values as literals; `left` renames the parameters that stay."""

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
    """Build all jobs and check their order, so that these errors come before the first write."""
    jobs = list(jobs)
    check_order(jobs)
    return jobs


def _check_parents(session: Session, jobs: Sequence[NewJob]) -> None:
    """Raise unless all parents have ended. A job that waits for others marks its parents, and until the mark
    is committed no worker can settle them: the user's transaction may stay open for long."""
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
    held = {(row["task"], row["unique_key"]): row["id"] for row in find_key_owners(session, keys)}
    for job in jobs:
        if job.unique_key is not None:
            holder = held.setdefault((job.task, job.unique_key), job.id)
            if holder != job.id and job.on_duplicate == "raise":
                raise DuplicateJob(holder, job.task, job.unique_key)
