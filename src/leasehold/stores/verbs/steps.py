"""Steps and checkpoints: what an attempt stores for later attempts, and transactions that a handler writes in.

Every write is fenced by the token, as a settle is: an attempt that lost its lease stores no step or checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from leasehold.domain.budgets import BudgetLine, Spend
from leasehold.domain.errors import LeaseLost, TransactionTooLong
from leasehold.domain.outcome import Success
from leasehold.stores.database.database import Overdue, Records, Session, inside_transaction, refuse_inside
from leasehold.stores.results import Ending
from leasehold.stores.verbs.budgets import record_spends
from leasehold.stores.verbs.limits import gate_of, make_gates, make_limits
from leasehold.stores.verbs.settle import settle_in
from leasehold.stores.verbs.writing import Verbs, transaction


class HandlerTransaction:
    """An open transaction that locks a job under one lease: renewals pass, the job's end waits. Writes
    through `connection` and writes by the verbs here are committed together or not at all."""

    def __init__(self, session: Session, connection: Any, job_id: str, token: int) -> None:
        self._session = session
        self.connection = connection
        self._job_id = job_id
        self._token = token

    def load_steps(self) -> dict[str, str]:
        """`StepVerbs.load_steps` in this transaction."""
        return _load(self._session, self._job_id)

    def save_steps(self, steps: Mapping[str, str]) -> None:
        """`StepVerbs.save_steps` in this transaction. Raises LeaseLost."""
        if steps and not _save(self._session, self._job_id, self._token, steps):
            raise LeaseLost(self._job_id, self._token)

    def spend(self, attempt: int, spends: Sequence[Spend]) -> list[BudgetLine]:
        """`BudgetVerbs.spend` in this transaction."""
        return record_spends(self._session, self._job_id, self._token, attempt, spends)

    def succeed(self, outcome: Success) -> None:
        """End the attempt with this transaction, as `settle` would. Raises LeaseLost."""
        if outcome.follow_ups:
            # Stored here, because the follow-ups that the block requests are not known earlier. Of two
            # handlers with the same new gate at the same time, one waits for the other's commit, once.
            make_limits(self._session, outcome.follow_ups)
            make_gates(self._session, {gate_of(job): job for job in outcome.follow_ups})
        if not settle_in(self._session, [Ending(self._job_id, self._token, outcome)]):
            raise LeaseLost(self._job_id, self._token)


class StepVerbs(Verbs):
    """What an attempt stores for the attempts after it, and the transaction that a handler writes in."""

    def load_steps(self, job_id: str) -> dict[str, str]:
        """The results of the job's steps (encoded JSON), by name."""
        return self._database.read(lambda session: _load(session, job_id))

    def save_steps(self, job_id: str, token: int, steps: Mapping[str, str], state: str | None = None) -> bool:
        """Keep these results, and with `state` the job's checkpoint, all or none. False: the lease is lost and nothing
        was written. Repeating the call does no harm."""
        if state is None:
            return not steps or self._database.single(lambda session: _save(session, job_id, token, steps))

        def work(session: Session) -> bool:
            if not session.tuples("save_checkpoint", id=job_id, token=token, state=state):
                return False
            return not steps or _save(session, job_id, token, steps)

        return self._database.transact(work)

    @transaction
    def save_spent_steps(
        self,
        session: Session,
        job_id: str,
        token: int,
        attempt: int,
        steps: Mapping[str, str],
        spends: Sequence[Spend],
    ) -> list[BudgetLine] | None:
        """`save_steps` together with what the steps spent; the result is the budgets afterwards. None: the lease is
        lost, and neither steps nor spending were written."""
        if steps and not _save(session, job_id, token, steps):
            return None
        return record_spends(session, job_id, token, attempt, spends)

    def load_checkpoint(self, job_id: str) -> str | None:
        """The checkpoint that an attempt of the job kept last (encoded JSON)."""
        rows = self._tuples("load_checkpoint", id=job_id)
        return rows[0][0] if rows else None

    def inside_transaction(self) -> AbstractContextManager[None]:
        """Wraps the handler's code that runs inside `transaction`, in that code's own context: until the block ends,
        the store refuses every other write of this code and of what it starts. Reads pass."""
        return inside_transaction(self._database.family)

    def refuse_inside(self) -> None:
        """Raises InvalidInput, with the remedy, inside `inside_transaction`."""
        refuse_inside(self._database.family)

    @contextmanager
    def transaction(self, job_id: str, token: int, seconds: float) -> Iterator[HandlerTransaction]:
        """A transaction that locks the job's row under this lease, over a connection of its own. The end of the block
        commits it, an exception rolls it back. Raises LeaseLost; also TransactionTooLong if the block took longer than
        `seconds`: then the transaction is rolled back and the row is free at that moment, whatever the block does."""
        try:
            with self._database.lend(seconds) as (session, connection):
                if not session.rows("lock_leases", leases=Records([{"id": job_id, "token": token}])):
                    raise LeaseLost(job_id, token)
                yield HandlerTransaction(session, connection, job_id, token)
        except Overdue as overdue:
            raise TransactionTooLong(job_id, seconds) from overdue


def _load(session: Session, job_id: str) -> dict[str, str]:
    return dict(session.tuples("load_steps", id=job_id))


def _save(session: Session, job_id: str, token: int, steps: Mapping[str, str]) -> bool:
    records = Records([{"name": name, "result": result} for name, result in steps.items()])
    return bool(session.tuples("save_steps", id=job_id, token=token, steps=records))
