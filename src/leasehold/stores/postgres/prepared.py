"""A connection for the same few statements all day: one can be run without a cursor, and none keeps an old plan.

A producer that stores one job waits for little else than its commit, and the cursor would be a seventh of that."""

from __future__ import annotations

import hashlib
import re
import select
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, NamedTuple

import psycopg
from psycopg import generators
from psycopg.abc import PQGen
from psycopg.errors import DuplicatePreparedStatement, InvalidSqlStatementName, error_from_result
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

PLANS_LAST = 0.5
"""Seconds of use after which the server makes its plans anew."""

MOST_PREPARED = 20
"""Statements of ours that a connection keeps prepared, beside the driver's own hundred. The server pays for each, on
each connection, and a process that serves many schemas has as many texts."""

_PLACEHOLDER = re.compile(r"%\(([a-z_]+)\)s")


class _Prepared(NamedTuple):
    name: bytes
    text: bytes
    parameters: tuple[str, ...]
    """In the order of their numbers."""


class QuickConnection(psycopg.Connection[Any]):
    _pool = None
    """Says to the driver that an open one may go with its process: on the other side of a fork it must."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._quick: dict[str, _Prepared] = {}
        """By their text, which names the schema: one connection serves many."""
        self._used = 0.0
        self.opened_at = time.monotonic()
        self._input = select.poll()
        self._input.register(self.pgconn.socket, select.POLLIN)

    def is_quiet(self) -> bool:
        """Whether it can be used, without a round trip. An idle server says nothing, unless it ends the session or has
        hung up."""
        return not self.closed and not self._input.poll(0)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """The server keeps the plan of a prepared statement until the next ANALYZE. One that was made when the table
        had a few rows reads all of a large one, for every batch. So plans are made anew, by time of use and not by the
        clock: what has become slow at once, on an idle connection hardly ever, and a busy one loses less than a
        hundredth."""
        if self._used > PLANS_LAST and self.prepare_threshold is not None:
            self.execute("DISCARD PLANS", prepare=False)
            self._used = 0.0
        began = time.monotonic()
        try:
            yield
        finally:
            self._used += time.monotonic() - began

    def run_quickly(self, text: str, values: Mapping[str, Any]) -> int:
        """The number of rows it answers with. Not for use inside a transaction."""
        known = self._quick.pop(text, None)
        if known is not None:
            self._quick[text] = known  # the last used stands last
            try:
                return self._run(known, values)
            except InvalidSqlStatementName:
                pass  # the prepared statement is gone; nothing was run
        return self._run(self._prepare(text), values)

    def _deallocate(self, name: bytes | None) -> PQGen[None]:
        """The driver throws away all that was prepared after a rollback. Unheard, every refused call would leave an
        error in the server's log."""
        if name is None:
            self._quick.clear()
        return super()._deallocate(name)

    def _run(self, prepared: _Prepared, values: Mapping[str, Any]) -> int:
        encoding = self.info.encoding
        sent = [_as_text(values[parameter], encoding) for parameter in prepared.parameters]
        if prepared.name:
            self.pgconn.send_query_prepared(prepared.name, sent)
        else:
            self.pgconn.send_query_params(prepared.text, sent)
        return self._answer().ntuples

    def _prepare(self, text: str) -> _Prepared:
        while len(self._quick) >= MOST_PREPARED:
            self._forget(self._quick.pop(next(iter(self._quick))))
        numbers: dict[str, int] = {}

        def number(match: re.Match[str]) -> str:
            return f"${numbers.setdefault(match[1], len(numbers) + 1)}"

        numbered = _PLACEHOLDER.sub(number, text).replace("%%", "%").encode(self.info.encoding)
        # Behind a pooler nothing that is prepared survives.
        known_as = b"" if self.prepare_threshold is None else _name_of(numbered)
        # Known before the server has it: interrupted in between, the next run finds out. The other way round it would
        # be prepared a second time, and refused.
        prepared = self._quick[text] = _Prepared(known_as, numbered, tuple(numbers))
        if known_as:
            self.pgconn.send_prepare(known_as, numbered)
            with suppress(DuplicatePreparedStatement):  # forgotten here, but never thrown away there
                self._answer()
        return prepared

    def _forget(self, prepared: _Prepared) -> None:
        if prepared.name:
            with suppress(InvalidSqlStatementName):  # thrown away before
                self.execute(b"DEALLOCATE " + prepared.name, prepare=False)

    def _answer(self) -> PGresult:
        result: PGresult = self.wait(generators.execute(self.pgconn))[-1]
        if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
            raise error_from_result(result)
        return result


def _name_of(text: bytes) -> bytes:
    """The same for the same text: what was forgotten here is found there."""
    return b"leasehold_" + hashlib.blake2b(text, digest_size=12).hexdigest().encode()


def _as_text(value: Any, encoding: str) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, str):
        value = value.isoformat() if isinstance(value, datetime) else str(value)
    if "\0" in value:  # the protocol would end the value there
        raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    text: bytes = value.encode(encoding)
    return text
