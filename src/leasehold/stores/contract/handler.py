"""What a handler leaves in the store while it runs: steps, spending, its stream, its questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from leasehold.domain.budgets import BudgetLine, BudgetOwner, BudgetPage, Spend, Spending
from leasehold.domain.job import Job, Question
from leasehold.domain.outcome import Success
from leasehold.domain.stream import LogTail, Progress, RunNotes, Seen
from leasehold.domain.views import (
    OpenQuestion,
)
from leasehold.stores.answers import Told


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


class Steps(Protocol):
    """What a job has done already, and need not do again."""

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

    def inside_transaction(self) -> AbstractContextManager[None]:
        """Around the code that a lent transaction is lent to, in that code's own context: what else it, and what it
        starts, writes to this store until then is refused. Reads are not."""
        ...

    def refuse_inside(self) -> None:
        """Raises InvalidInput, with the remedy, in such code."""
        ...

    def transaction(self, job_id: str, token: int, seconds: float) -> AbstractContextManager[Transaction]:
        """A transaction with the job's row locked under this lease, over a connection that nobody else uses. Committed
        at a clean end of the block, rolled back by an exception. Raises LeaseLost, and TransactionTooLong when the
        block took more than `seconds`: then it is rolled back, and the row is free at that time whatever the block
        does."""
        ...


class Budgets(Protocol):
    """What jobs and groups may spend and have spent."""

    def spend(self, job_id: str, token: int, attempt: int, spends: Sequence[Spend]) -> list[BudgetLine]:
        """Record what a run has spent, always, also after its lease was lost; the token is only kept. A key that is
        there already is passed over. The budgets of the job and its group then. Raises JobNotFound."""
        ...

    def budget(self, job_id: str, attempt: int | None = None) -> list[BudgetLine]:
        """What the job and its group may spend and have spent, by unit. With `budget_for="run"` what this attempt has
        spent, the latest unless one is named. Raises JobNotFound."""
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

    def list_budgets(
        self, scope: BudgetOwner | None = None, limit: int = 50, cursor: str | None = None
    ) -> BudgetPage:
        """Groups first, each by name; jobs by id, once they have spent something or were topped up."""
        ...


class Stream(Protocol):
    """What runs tell: events, progress, log lines."""

    def write_events(self, runs: Sequence[RunNotes]) -> Told:
        """Store what the holders of these leases tell, in their order: events get the job's next numbers, a key that
        is there already is passed over, progress replaces the one before, log lines go to the attempt's tail. Notes
        that were written before, by their `place`, are not written again. The leases that are lost come back, and
        those that somebody has locked, for whom the others do not wait: nothing of theirs was written."""
        ...

    def read_stream(self, job_id: str, since: int = 0, limit: int = 500) -> Seen:
        """The job's state and its events numbered above `since`, of one moment. What was seen is final: no smaller
        number appears later. Raises JobNotFound."""
        ...

    def mark_jobs(self, ids: Sequence[str]) -> dict[str, str]:
        """A text for each job that is there, and another one as soon as its state has changed, a stop was asked for, or
        it has told something. One read for all of them."""
        ...

    def progress(self, job_id: str) -> Progress | None: ...

    def logs(self, job_id: str) -> list[LogTail]:
        """The log tails, by attempt."""
        ...

    def log_mark(self, job_id: str, attempt: int) -> str | None:
        """How far the source of the attempt's log was read when its last lines were stored, as their teller put it
        (`Note.data`). None: nobody has said so."""
        ...


class Questions(Protocol):
    """What jobs ask people."""

    def answer(self, job_id: str, key: str, answer: str, actor: str | None = None) -> Job:
        """Answer an open question (encoded JSON). A waiting job is queued, once it has no other open question; a paused
        one keeps the answer. An answer that does not fit the question's schema raises InvalidAnswer, and the question
        stays open."""
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
