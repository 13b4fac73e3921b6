"""`ctx.complete`: the handler's last act. Its writes and the job's success are one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from leasehold.domain.errors import DatabaseUnreachable, InvalidInput, LeaseLost
from leasehold.domain.outcome import Success
from leasehold.domain.signals import StopRequested

if TYPE_CHECKING:
    from leasehold.run.context import Context, RunFacts
    from leasehold.run.journal import Durable

T = TypeVar("T")
Parameters = Sequence[Any] | Mapping[str, Any]


class SyncTransaction:
    """The open transaction of a plain handler. `connection` is the driver's own (sqlite3 or psycopg): do not commit,
    roll back or close it."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def execute(self, statement: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """One statement, with the driver's placeholders (`?` on SQLite, `%s` on PostgreSQL); its rows."""
        cursor = self.connection.execute(*((statement, parameters) if parameters else (statement,)))
        return cursor.fetchall() if cursor.description else []

    def run(self, function: Callable[..., T], *args: Any) -> T:
        """Call `function(connection, *args)`."""
        return function(self.connection, *args)


class Transaction:
    """The open transaction of an async handler: its statements run in a thread."""

    def __init__(self, blocking: SyncTransaction, durable: Durable) -> None:
        self._blocking = blocking
        self._durable = durable

    async def execute(self, statement: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """One statement, with the driver's placeholders (`?` on SQLite, `%s` on PostgreSQL); its rows."""
        return await self._durable.call(self._blocking.execute, statement, parameters)

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """Call `function(connection, *args)` in a thread, with the driver's own connection (sqlite3 or psycopg)."""
        return await self._durable.call(self._blocking.run, function, *args)


@contextmanager
def complete(context: RunFacts, durable: Durable, result: Any) -> Iterator[SyncTransaction]:
    if context._completed:
        raise InvalidInput("complete", "was called before in this run", "call it once, as the last act")
    context.raise_if_stopped()
    encoded = durable.tasks[context.kind].encode_result(result)
    steps = context._book()
    if context._events is not None and context._stream is not None:
        # Under the lock of the transaction, or after it, what was told until now could no longer be written.
        events, stream = context._events, context._stream
        steps.patiently(lambda: events.write([stream]))
    batch = steps.take_batch()
    steps.held_spends = batch.spends
    try:
        with ExitStack() as stack:
            tx = steps.open_transaction(stack)
            yield SyncTransaction(tx.connection)
            tx.save_steps(batch)
            lines = tx.spend(context.attempt, batch.spends) if batch.spends else None
            tx.succeed(Success(encoded, None, context._unstored()))
            # Before the commit: the keeper must not take our own settle for a lost lease.
            context._completed = True
    except BaseException as error:
        sent, context._completed = context._completed, False
        steps.held_spends = None
        if isinstance(error, LeaseLost):
            if batch.spends:
                steps.purse.give_up(batch.spends)
            durable.lost(context)
            raise StopRequested from error
        if not (sent and isinstance(error, DatabaseUnreachable) and _has_arrived(context, durable)):
            if batch.spends:
                spends, batch.spends = batch.spends, []
                steps.purse.give_up(spends)
            steps.put_back(batch)
            raise
        context._completed, lines = True, None
    steps.held_spends = None
    if batch.spends:
        steps.purse.wrote(batch.spends, lines)
    # The next of its lane, its follow-ups, or those that waited for it.
    durable.store.wake()
    if context.group is not None or context._follow_ups is not None:
        durable.store.tell_watchers()


def _has_arrived(context: RunFacts, durable: Durable) -> bool:
    """The answer to the commit was lost: the row tells. Should the commit arrive after this look, nothing is harmed:
    whatever the run ends as then is refused, because the token has moved on."""
    leases = {context.job_id: context.lease_token}
    verdicts = context._book().patiently(lambda: durable.store.read_settlements(leases, durable.owner))
    return verdicts[context.job_id] in ("done", "unknown")


@asynccontextmanager
async def complete_async(context: Context, durable: Durable, result: Any) -> AsyncIterator[Transaction]:
    blocking = complete(context, durable, result)
    opened: list[SyncTransaction] = []
    try:
        await durable.call(lambda: opened.append(blocking.__enter__()))
        yield Transaction(opened[0], durable)
    except BaseException as error:
        if opened:
            await _roll_back(blocking, durable, error)
        raise
    await durable.call(blocking.__exit__, None, None, None)


async def _roll_back(blocking: Any, durable: Durable, error: BaseException) -> None:
    try:
        await durable.call(blocking.__exit__, type(error), error, error.__traceback__)
    except BaseException as other:
        if isinstance(error, asyncio.CancelledError):
            raise error from other
        raise
