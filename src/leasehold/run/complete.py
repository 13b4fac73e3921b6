"""`ctx.complete`: commits the handler's last writes and the job's success in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any, TypeVar

from leasehold.domain.errors import DatabaseUnreachable, InvalidInput, LeaseLost
from leasehold.domain.outcome import Success
from leasehold.domain.signals import StopRequested
from leasehold.run.handler_state import HandlerState
from leasehold.run.journal import Journal

T = TypeVar("T")
Parameters = Sequence[Any] | Mapping[str, Any]

RETRY_LOCKED_EVERY = 0.1
"""Seconds between two tries while the job's rows are locked."""


class SyncTransaction:
    """The open transaction of a plain handler. `connection` is the driver's own (sqlite3 or psycopg): do not commit,
    roll back or close it."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def execute(self, statement: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """Run one statement, with the driver's placeholders (`?` on SQLite, `%s` on PostgreSQL); returns its rows."""
        cursor = self.connection.execute(*((statement, parameters) if parameters else (statement,)))
        return cursor.fetchall() if cursor.description else []

    def run(self, function: Callable[..., T], *args: Any) -> T:
        """Call `function(connection, *args)`."""
        return function(self.connection, *args)


class Transaction:
    """The open transaction of an async handler: its statements run in a thread."""

    def __init__(self, blocking: SyncTransaction, journal: Journal) -> None:
        self._blocking = blocking
        self._journal = journal

    async def execute(self, statement: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """Run one statement, with the driver's placeholders (`?` on SQLite, `%s` on PostgreSQL); returns its rows."""
        return await self._journal.call(self._blocking.execute, statement, parameters)

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """Call `function(connection, *args)` in a thread, with the driver's own connection (sqlite3 or psycopg)."""
        return await self._journal.call(self._blocking.run, function, *args)


@contextmanager
def complete(attempt: HandlerState, result: Any) -> Iterator[SyncTransaction]:
    with _completion(attempt, result) as tx, attempt.needed_journal().store.inside_transaction():
        yield tx


@contextmanager
def _completion(attempt: HandlerState, result: Any) -> Iterator[SyncTransaction]:
    journal = attempt.needed_journal()
    encoded, name = _prepare(attempt, result)
    steps = attempt.open_steps()
    batch = steps.batch.take()
    steps.spending.held = batch.spends
    try:
        with ExitStack() as stack:
            tx = steps.open_transaction(stack)
            yield SyncTransaction(tx.connection)
            tx.save_steps(batch)
            lines = tx.spend(attempt.grant.attempt, batch.spends) if batch.spends else None
            tx.succeed(Success(encoded, name, attempt.unstored()))
            # Before the commit: the keeper must not mistake our own settle for a lost lease.
            attempt.completed = True
    except BaseException as error:
        sent, attempt.completed = attempt.completed, False
        steps.spending.held = None
        if isinstance(error, LeaseLost):
            if batch.spends:
                steps.spending.give_up(batch.spends)
            if attempt.in_doubt and _has_arrived(attempt, journal):
                # The reply to an earlier commit was lost; that commit has arrived since, and ended the lease.
                attempt.completed = True
                _notify_others(attempt, journal)
            else:
                journal.lost(attempt)
            raise StopRequested from error
        reply_lost = sent and isinstance(error, DatabaseUnreachable)
        attempt.in_doubt |= reply_lost
        if not (reply_lost and _has_arrived(attempt, journal)):
            if batch.spends:
                spends, batch.spends = batch.spends, []
                steps.spending.give_up(spends)
            steps.batch.put_back(batch)
            raise
        attempt.completed, lines = True, None
    steps.spending.held = None
    if batch.spends:
        steps.spending.wrote(batch.spends, lines)
    _notify_others(attempt, journal)


def _prepare(attempt: HandlerState, result: Any) -> tuple[str | None, str | None]:
    """The part before the transaction, which must be short: check the call, write the reports, encode the result.
    Return the encoded result, or the name under which it is stored outside of its row."""
    if attempt.completed:
        raise InvalidInput(
            "complete",
            "was called before in this run",
            "call it once, as the last thing that the handler does",
        )
    attempt.raise_if_stopped()
    encoded = attempt.encode_result(result)
    if attempt.writer is not None and attempt.stream is not None:
        # Under the lock of the transaction, or after it, reports could no longer be written.
        writer, stream = attempt.writer, attempt.stream
        while attempt.patiently(lambda: writer.write([stream])):
            attempt.wait(RETRY_LOCKED_EVERY)
            attempt.raise_if_stopped()
    if encoded is not None and attempt.leaves_row(encoded):
        return None, attempt.file_result(encoded)
    return encoded, None


def _notify_others(attempt: HandlerState, journal: Journal) -> None:
    """Wake workers for its lane's next job, its follow-ups and jobs that waited for it; notify watchers."""
    journal.store.notify_workers()
    if attempt.grant.group is not None or attempt.follow_ups is not None:
        journal.store.notify_watchers()


def _has_arrived(attempt: HandlerState, journal: Journal) -> bool:
    """Read the row, because the reply to the commit was lost. If the commit arrives after this read, any later ending
    is refused, because the lease is gone; the settler then reads once more, because the attempt is in doubt."""
    leases = {attempt.grant.id: attempt.grant.token}

    def read() -> str:
        verdict = journal.store.read_settlements(leases, journal.worker)[attempt.grant.id]
        if verdict == "unknown":
            raise DatabaseUnreachable(journal.store.label, "the job's tenant does not answer")
        return verdict

    return attempt.patiently(read) == "done"


@asynccontextmanager
async def complete_async(attempt: HandlerState, result: Any) -> AsyncIterator[Transaction]:
    journal = attempt.needed_journal()
    blocking = _completion(attempt, result)
    opened: list[SyncTransaction] = []
    try:
        await journal.call(lambda: opened.append(blocking.__enter__()))
        with journal.store.inside_transaction():
            yield Transaction(opened[0], journal)
    except BaseException as error:
        if opened:
            await _roll_back(blocking, journal, error)
        raise
    await journal.call(blocking.__exit__, None, None, None)


async def _roll_back(blocking: Any, journal: Journal, error: BaseException) -> None:
    try:
        await journal.call(blocking.__exit__, type(error), error, error.__traceback__)
    except BaseException as other:
        if isinstance(error, asyncio.CancelledError):
            raise error from other
        raise
