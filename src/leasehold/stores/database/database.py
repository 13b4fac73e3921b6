"""The seam between the verbs and a database: named statements, short transactions, one clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Protocol, TypeVar

from leasehold.domain.errors import InvalidInput

T = TypeVar("T")
Row = dict[str, Any]


class Clock(Protocol):
    """Where time comes from. `now()` of None means: the database's own clock."""

    def now(self) -> datetime | None: ...

    def monotonic(self) -> float: ...


class SystemClock:
    def now(self) -> datetime | None:
        return None

    def monotonic(self) -> float:
        return time.monotonic()


class Session(Protocol):
    """An open transaction. Statements are named; parameters may be lists, datetimes, `Records` and `Columns`."""

    @property
    def in_doubt(self) -> bool:
        """Whether a try before this one may have been done: its answer was lost."""

    def rows(self, statement: str, /, **parameters: Any) -> list[Row]:
        """Run a statement; each row as a dict of plain Python values."""

    def tuples(self, statement: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        """Run a hot statement; each row as a plain tuple of text, numbers, datetimes and None."""

    def run(self, statement: str, /, **parameters: Any) -> None:
        """Run a statement, without its rows."""

    def listing(self, names: Sequence[str], /, **parameters: Any) -> list[Row]:
        """Run a statement put together from the named parts, in order."""


class Database(Protocol):
    """A dialect: connections, retries of what the database asks to be retried, errors translated into ours."""

    @property
    def clock(self) -> Clock: ...

    @property
    def label(self) -> str:
        """What to call it in messages; never with a password."""

    @property
    def family(self) -> str:
        """The label of the store that knows of it: its own, unless it is a tenant's."""

    def transact(self, work: Callable[[Session], T], *, idempotent: bool = False) -> T:
        """Run `work` in one short write transaction. Serialization failures, deadlocks and a lost race for a lane
        repeat it, so `work` must not have effects outside the session; so does, once, a lost connection. If the
        reply to the commit was lost, the work may have been done: then only `idempotent` work is repeated."""

    def single(self, work: Callable[[Session], T], *, idempotent: bool = False) -> T:
        """Run `work`, which is exactly one statement: it is a transaction by itself, without the round trips of
        BEGIN and COMMIT. Repeated as in `transact`; if its connection is lost, only what is `idempotent`."""

    def lend(self, seconds: float) -> AbstractContextManager[tuple[Session, Any]]:
        """A write transaction for a block of the user's: the session, and the driver's connection under it, for this
        block alone. After `seconds` it is rolled back even if the block hangs, and Overdue is raised."""

    def read(self, work: Callable[[Session], T]) -> T:
        """Run `work` for reading."""

    def schema_version(self) -> int:
        """The number of the last migration; 0: there is no schema yet."""

    def refuses_data(self, error: Exception) -> bool:
        """Whether the database refused the values of a statement, as opposed to its circumstances."""

    def close(self) -> None: ...


class Columns:
    """Records as parallel columns, for the hot statements: `:name.column` is one array on PostgreSQL; on SQLite `:name`
    is a JSON array of rows. Taking JSON objects apart would be the larger part of such a statement."""

    __slots__ = ("columns",)

    def __init__(self, **columns: Sequence[Any]) -> None:
        self.columns = columns


class Overdue(Exception):
    """A lent transaction took too long and was rolled back."""


class Records:
    """A list of flat records, sent as one JSON parameter: one statement and one round trip whatever their number."""

    __slots__ = ("items",)

    def __init__(self, items: Sequence[Mapping[str, Any]]) -> None:
        self.items = items


# -- code inside a transaction that a handler has in its hands ---------------------------------------------------------
# Whatever else it writes to the same store would wait for that transaction: on SQLite, which has one writer, for
# itself, until its time is up; on PostgreSQL it would be committed apart from it, whatever becomes of the block. So it
# is refused at once, the same on both.


class _Block:
    """Of one transaction. Tasks that are started in the block inherit it, and may outlive it: hence the flag."""

    def __init__(self, store: str, outer: _Block | None) -> None:
        self.store = store
        self.outer = outer
        self.is_open = True


_block: ContextVar[_Block | None] = ContextVar("leasehold_block", default=None)


@contextmanager
def inside_transaction(store: str) -> Iterator[None]:
    """For the code of the block: in its own context, not in that of a thread which opens the transaction for it."""
    outer = _block.get()
    block = _Block(store, outer)
    _block.set(block)
    try:
        yield
    finally:
        block.is_open = False
        _block.set(outer)


@contextmanager
def beside_transaction() -> Iterator[None]:
    """For what may be written beside it, because it is true whatever becomes of the block."""
    block = _block.get()
    _block.set(None)
    try:
        yield
    finally:
        _block.set(block)


def refuse_inside(store: str) -> None:
    """Before a write to this store begins."""
    block = _block.get()
    if block is not None:
        _refuse(block, store)


def _refuse(block: _Block | None, store: str) -> None:
    while block is not None:
        if block.is_open and block.store == store:
            raise InvalidInput(
                "transaction",
                f"this write comes from inside a transaction that is open on {store} (ctx.complete, or a step with"
                " tx=True)",
                "use task.using(tx=…) with what the block was given, ctx.enqueue (a follow-up, stored with the"
                " success), the transaction's own connection, or do it before or after the block",
            )
        block = block.outer
