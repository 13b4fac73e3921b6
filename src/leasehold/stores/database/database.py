"""The seam between the verbs and a database: named statements, short transactions, one clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol, TypeVar

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
