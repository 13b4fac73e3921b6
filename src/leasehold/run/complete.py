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
def complete(run: HandlerState, result: Any) -> Iterator[SyncTransaction]:
    with _completion(run, result) as tx, run.needed_journal().store.inside_transaction():
        yield tx


@contextmanager
def _completion(run: HandlerState, result: Any) -> Iterator[SyncTransaction]:
    journal = run.needed_journal()
    if run.completed:
        raise InvalidInput(
            "complete",
            "was called before in this run",
            "call it once, as the last thing that the handler does",
        )
    run.raise_if_stopped()
    encoded, name = run.encode_result(result), None
    steps = run.open_steps()
    if run.writer is not None and run.stream is not None:
        # Write reports now: under the lock of the transaction, or after it, they could no longer be written.
        writer, stream = run.writer, run.stream
        while run.patiently(lambda: writer.write([stream])):
            run.wait(RETRY_LOCKED_EVERY)
            run.raise_if_stopped()
    if encoded is not None and run.becomes_file(encoded):
        # Before the transaction, which must be short.
        name, encoded = run.file_result(encoded), None
    batch = steps.batch.take()
    steps.spending.held = batch.spends
    try:
        with ExitStack() as stack:
            tx = steps.open_transaction(stack)
            yield SyncTransaction(tx.connection)
            tx.save_steps(batch)
            lines = tx.spend(run.grant.attempt, batch.spends) if batch.spends else None
            tx.succeed(Success(encoded, name, run.unstored()))
            # Before the commit: the keeper must not mistake our own settle for a lost lease.
            run.completed = True
    except BaseException as error:
        sent, run.completed = run.completed, False
        steps.spending.held = None
        if isinstance(error, LeaseLost):
            if batch.spends:
                steps.spending.give_up(batch.spends)
            if run.in_doubt and _has_arrived(run, journal):
                # The reply to an earlier commit was lost; that commit has arrived since, and ended the lease.
                run.completed = True
                _notify_others(run, journal)
            else:
                journal.lost(run)
            raise StopRequested from error
        unheard = sent and isinstance(error, DatabaseUnreachable)
        run.in_doubt |= unheard
        if not (unheard and _has_arrived(run, journal)):
            if batch.spends:
                spends, batch.spends = batch.spends, []
                steps.spending.give_up(spends)
            steps.batch.put_back(batch)
            raise
        run.completed, lines = True, None
    steps.spending.held = None
    if batch.spends:
        steps.spending.wrote(batch.spends, lines)
    _notify_others(run, journal)


def _notify_others(run: HandlerState, journal: Journal) -> None:
    """Wake workers for its lane's next job, its follow-ups and jobs that waited for it; notify watchers."""
    journal.store.notify_workers()
    if run.grant.group is not None or run.follow_ups is not None:
        journal.store.notify_watchers()


def _has_arrived(run: HandlerState, journal: Journal) -> bool:
    """Read the row, because the reply to the commit was lost. If the commit arrives after this read, any later ending
    is refused, because the lease is gone; the settler then reads once more, because the attempt is in doubt."""
    leases = {run.grant.id: run.grant.token}
    verdicts = run.patiently(lambda: journal.store.read_settlements(leases, journal.worker))
    return verdicts[run.grant.id] == "done"


@asynccontextmanager
async def complete_async(run: HandlerState, result: Any) -> AsyncIterator[Transaction]:
    journal = run.needed_journal()
    blocking = _completion(run, result)
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
