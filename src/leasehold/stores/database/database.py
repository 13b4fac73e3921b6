"""The interface between the verbs and a database: named statements, short transactions, one clock."""

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
    """The source of time. If `now()` returns None, the database's own clock counts."""

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
        """Whether an earlier try may have been committed: its reply was lost."""

    def rows(self, statement: str, /, **parameters: Any) -> list[Row]:
        """Run a statement; each row as a dict of plain Python values."""

    def tuples(self, statement: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        """Run a hot statement; each row as a plain tuple of text, numbers, datetimes and None."""

    def run(self, statement: str, /, **parameters: Any) -> None:
        """Run a statement, without its rows."""

    def listing(self, names: Sequence[str], /, **parameters: Any) -> list[Row]:
        """Run a statement assembled from the named parts, in order."""


class Database(Protocol):
    """A dialect: opens connections, repeats work when the database requires it, translates its errors into ours."""

    @property
    def clock(self) -> Clock: ...

    @property
    def label(self) -> str:
        """The database's name in messages; never with a password."""

    @property
    def family(self) -> str:
        """For a tenant's database the label of the store that lists the tenant, otherwise its own."""

    def transact(self, work: Callable[[Session], T], *, idempotent: bool = False) -> T:
        """Run `work` in one short write transaction. Serialization failures, deadlocks and a lost race for a lane
        repeat it, a lost connection once, so `work` must not have effects outside the session. If the reply to the
        commit was lost, the transaction may be committed: then only `idempotent` work is repeated."""

    def single(self, work: Callable[[Session], T], *, idempotent: bool = False) -> T:
        """Run `work`, exactly one statement, as a transaction of its own, without the round trips of BEGIN
        and COMMIT. Repeats as `transact` does; after a lost connection it repeats only `idempotent` work."""

    def lend(self, seconds: float) -> AbstractContextManager[tuple[Session, Any]]:
        """Open a write transaction for a block of user code; yields the session and the driver's connection under it,
        for this block alone. After `seconds` it is rolled back even if the block hangs, and Overdue is raised."""

    def read(self, work: Callable[[Session], T]) -> T:
        """Run `work` for reading."""

    def identity(self) -> str:
        """16 hexadecimal digits that no copy of this database has, and that a new host, URL or path does not change."""

    def schema_version(self) -> int:
        """The number of the last migration; 0: there is no schema yet."""

    def refuses_data(self, error: Exception) -> bool:
        """Whether the error means that the database refused a statement's values, not that something else failed."""

    def refuses_row(self, error: Exception) -> bool:
        """Whether the error is about a single row: its values or a constraint of a table were refused, a trigger raised
        it, or the row cannot be read. The same statement may go through without that row."""

    def close(self) -> None: ...


class Columns:
    """Records as parallel columns, for the hot statements: `:name.column` is one array on PostgreSQL; on SQLite `:name`
    is a JSON array of rows. Parsing JSON objects would take most of such a statement's time."""

    __slots__ = ("columns",)

    def __init__(self, **columns: Sequence[Any]) -> None:
        self.columns = columns


class Overdue(Exception):
    """A lent transaction took too long and was rolled back."""


class Records:
    """A list of flat records, sent as one JSON parameter: any number of them takes one statement and one round trip."""

    __slots__ = ("items",)

    def __init__(self, items: Sequence[Mapping[str, Any]]) -> None:
        self.items = items


# -- code inside a transaction that a handler has open -----------------------------------------------------------------
# Any other write of that code to the same store is refused at once, on both databases. On SQLite, which has
# one writer, it would wait for the code's own transaction until the time limit. On PostgreSQL it would be
# committed on its own, even if the block is rolled back.


class _Block:
    """One transaction's block. An asyncio task started in it inherits it and may outlive it: hence `is_open`."""

    def __init__(self, store: str, outer: _Block | None) -> None:
        self.store = store
        self.outer = outer
        self.is_open = True


_block: ContextVar[_Block | None] = ContextVar("leasehold_block", default=None)


@contextmanager
def inside_transaction(store: str) -> Iterator[None]:
    """Mark a block as inside a transaction. Enter it in the context of the block's code, not of a helper thread."""
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
    """Allow writes beside the open transaction, for facts that hold even if the block is rolled back."""
    block = _block.get()
    _block.set(None)
    try:
        yield
    finally:
        _block.set(block)


def refuse_inside(store: str) -> None:
    """Raise InvalidInput if a transaction is open on this store in this context; called before each write."""
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
