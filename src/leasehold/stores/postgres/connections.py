"""The connections of a process to one PostgreSQL database: their URL, settings, values and statements.

Several schemas may share the connections: every statement names its schema, and a session has none.
"""

from __future__ import annotations

import hashlib
import os
import re
import select
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import psycopg
from psycopg import generators
from psycopg.abc import RV, AdaptContext, Buffer, PQGen
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import DuplicatePreparedStatement, InvalidSqlStatementName, error_from_result
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult
from psycopg.types.string import TextLoader

from leasehold.domain.checks.times import EARLIEST, LATEST
from leasehold.domain.errors import (
    DatabaseTooOld,
    DatabaseUnfit,
    DatabaseUnreachable,
    InvalidInput,
)
from leasehold.stores.postgres.pool import Pool
from leasehold.threads import after_fork, unanswered

# -- what a session must be set to -------------------------------------------------------------------------------------
# A connection sets them when it is opened; the first one checks them. A pooler takes no start-up options: behind a
# pooler, the role must have the settings.

OLDEST_SERVER = 150000
STATEMENT_SECONDS = 20
"""Seconds after which the server ends a statement, and a transaction whose client has fallen silent: it may hold locks,
and its client may be behind a network that is gone."""

SESSION = {
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    "client_encoding": "UTF8",
    "array_nulls": "on",
    "default_transaction_isolation": "read committed",
}
_ALSO_GOOD = {"timezone": {"ETC/UTC", "UCT", "ETC/UCT", "GMT", "ETC/GMT", "ZULU"}}


def options(pooler: bool) -> dict[str, str]:
    """Start-up options. A statement of ours that takes long is stuck. The server decides by an estimate whether to
    compile: with many rows waiting it is far off, and the server compiled a claim of 5 ms for 80 ms."""
    if pooler:
        return {"client_encoding": "UTF8"}
    wanted = {
        "statement_timeout": f"{STATEMENT_SECONDS}s",
        "idle_in_transaction_session_timeout": f"{STATEMENT_SECONDS}s",
        "jit": "off",
        **SESSION,
    }
    words = [f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in wanted.items()]
    return {"options": " ".join(words), "client_encoding": "UTF8"}


def check(connection: psycopg.Connection[Any], label: str) -> None:
    """Raises unless the server and the session meet the requirements."""
    if connection.info.server_version < OLDEST_SERVER:
        raise DatabaseTooOld("PostgreSQL", str(connection.info.server_version // 10000), "15")
    names = ["server_encoding", *SESSION]
    query = "SELECT " + ", ".join(f"current_setting('{name}')" for name in names)
    with connection.cursor() as cursor:
        row = cursor.execute(query.encode()).fetchone() or ()
    found = dict(zip(names, row, strict=True))
    encoding = found.pop("server_encoding")
    if encoding != "UTF8":
        raise DatabaseUnfit(
            label,
            f"its encoding is {encoding}, which cannot keep every text",
            "make the database with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
        )
    for name, value in found.items():
        if not is_good(name, value):
            raise DatabaseUnfit(
                label,
                f"{name} is {value!r} on its connections",
                f"run: ALTER ROLE {connection.info.user} SET {name} = '{SESSION[name]}'; and let the pooler reconnect",
            )


def is_good(name: str, value: str) -> bool:
    if name == "datestyle":
        return value.startswith("ISO")
    return value.upper() in {SESSION[name].upper(), *_ALSO_GOOD.get(name, ())}


# -- URLs in messages --------------------------------------------------------------------------------------------------


def bad_url() -> InvalidInput:
    """The error for an unreadable URL, without the driver's message, which quotes the part that holds the password."""
    return InvalidInput(
        "url",
        "cannot be read",
        "use postgresql://user:password@host:port/database?option=value; in user and password write @ as %40, "
        "/ as %2F, ? as %3F and : as %3A",
    )


def label_of(url: str, schema: str) -> str:
    """The database's name in messages, made from the parts that are neither user nor password."""
    host, port, name = address_of(url)
    return f"postgresql://{host}{f':{port}' if port else ''}/{name} (schema {schema})"


def address_of(url: str) -> tuple[str, str, str]:
    """Host, port and database, as the driver reads the URL; several hosts and ports stay one text, with commas. An
    unescaped password spills into other parts: such a URL is refused, before the driver quotes half the password as a
    host or port."""
    address = url.partition("://")[2].partition("?")[0]
    if "@" in address.partition("/")[2] or address.count("@") > 1:
        raise bad_url()
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise bad_url() from None
    host, port = str(parts.get("host", "localhost")), str(parts.get("port", ""))
    # A host may begin with @: an abstract socket.
    if "@" in host[1:] or not all(not one or one.isdecimal() for one in port.split(",")):
        raise bad_url()
    return host, port, str(parts.get("dbname", ""))


# -- instants ----------------------------------------------------------------------------------------------------------

_READ_TIMESTAMP = psycopg.adapters.get_loader(psycopg.adapters.types["timestamptz"].oid, Format.TEXT)


class InstantLoader(Loader):
    """Loads an instant. One out of range becomes EARLIEST or LATEST: one unreadable row must not break a whole list."""

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        assert _READ_TIMESTAMP is not None
        self._read = _READ_TIMESTAMP(oid, context).load

    def load(self, data: Buffer) -> datetime:
        try:
            found: datetime = self._read(data)
            return min(max(found, EARLIEST), LATEST)
        except (psycopg.DataError, OverflowError):
            text = bytes(data)
            return EARLIEST if text.startswith(b"-") or text.endswith(b"BC") else LATEST


# -- a connection that does not wait for ever --------------------------------------------------------------------------
# After a network partition the old connections may stay dead while new ones work: a proxy or a NAT has forgotten them.
# The server's own limits are of no use then, and the kernel's only where packets are lost.

ANSWER_SECONDS = STATEMENT_SECONDS + 5.0
"""Seconds to wait for the server's answer: it ends a statement that takes long, and says so, before."""
FIRST_ANSWER_SECONDS = 5.0
"""Seconds to wait for the first answer over a connection that was idle, if the call may be repeated. A dead connection
is given up before it costs a lease; a server that is only slow gets the usual time at the second try."""

_NETWORK = {
    "connect_timeout": 10,
    "tcp_user_timeout": 10_000,  # in milliseconds
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}


def network_options(url: str) -> dict[str, Any]:
    """How long to wait for the network, except what the URL says itself."""
    given = conninfo_to_dict(url)
    return {name: value for name, value in _NETWORK.items() if name not in given}


class NoAnswer(psycopg.OperationalError):
    """The server has not answered in time; the connection is closed."""


class BoundedConnection(psycopg.Connection[Any]):
    """A connection whose every statement, commit and COPY ends in time, with NoAnswer."""

    answer_within: float | None = ANSWER_SECONDS
    """None: waits for as long as the server."""
    unproven = False
    """It was idle, may be dead, and the next statement may be repeated."""

    def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        within = self.answer_within
        if within is None or args or kwargs:  # the driver has a limit of its own for notifications
            return super().wait(gen, *args, **kwargs)
        if self.unproven:
            self.unproven, within = False, min(within, FIRST_ANSWER_SECONDS)
        thread = threading.get_ident()
        unanswered[thread] = time.monotonic()
        try:
            return super().wait(self._within(within, gen))
        finally:
            unanswered.pop(thread, None)

    def _within(self, seconds: float, gen: PQGen[RV]) -> PQGen[RV]:
        """The generator, ended in time. The driver resumes it ten times a second, also without any input."""
        deadline = time.monotonic() + seconds
        try:
            wants = next(gen)
            while True:
                ready = yield wants
                if not ready and time.monotonic() >= deadline:
                    self.close()
                    raise NoAnswer(f"the server has not answered for {seconds:g} s")
                wants = gen.send(ready)
        except StopIteration as end:
            answer: RV = end.value
            return answer

    @contextmanager
    def answering_within(self, seconds: float | None) -> Iterator[None]:
        before, self.answer_within = self.answer_within, seconds
        try:
            yield
        finally:
            self.answer_within = before


# -- a connection for the same few statements all day ------------------------------------------------------------------
# A producer that stores one job waits for little except its commit; a cursor would cost a seventh of that time.

PLANS_LAST = 0.5
"""Seconds of use after which the server makes its plans anew."""

MOST_PREPARED = 20
"""Statements of ours that a connection keeps prepared, beside the driver's own hundred. Each is a cost to the server on
each connection, and a process that serves many schemas has many texts of each statement."""

_PLACEHOLDER = re.compile(r"%\(([a-z_]+)\)s")


class _Prepared(NamedTuple):
    name: bytes
    text: bytes
    parameters: tuple[str, ...]
    """The names of the parameters, in the order of their numbers."""


class QuickConnection(BoundedConnection):
    _pool = None
    """Keeps the driver from warning about a connection that is never closed: a forked child must leave it open."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._quick: dict[str, _Prepared] = {}
        """The prepared statements by text. The text names the schema: one connection serves many."""
        self._used = 0.0
        self.opened_at = time.monotonic()
        self._input = select.poll()
        self._input.register(self.pgconn.socket, select.POLLIN)

    def is_quiet(self) -> bool:
        """Whether it can be used, without a round trip. An idle server sends nothing, unless it ends the session or has
        hung up."""
        return not self.closed and not self._input.poll(0)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """The server keeps the plan of a prepared statement until the next ANALYZE. A plan made when the table had a
        few rows reads all of a large table, for every batch. So plans are discarded, by time of use and not by the
        clock: at once if a statement became slow, hardly ever on an idle connection, and a busy one loses less than a
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
        """Run a statement; returns the number of its rows. Not for use inside a transaction."""
        known = self._quick.pop(text, None)
        if known is not None:
            self._quick[text] = known  # the last used stands last
            try:
                return self._run(known, values)
            except InvalidSqlStatementName:
                pass  # the prepared statement is gone; nothing was run
        return self._run(self._prepare(text), values)

    def _deallocate(self, name: bytes | None) -> PQGen[None]:
        """After a rollback the driver deallocates all that was prepared. If we kept our names, every refused call would
        leave an error in the server's log."""
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
        # Behind a pooler no prepared statement survives.
        known_as = b"" if self.prepare_threshold is None else _name_of(numbered)
        # Remembered before the server has it: after an interruption in between, the next run finds out. Remembered
        # afterwards, it would be prepared a second time, and refused.
        prepared = self._quick[text] = _Prepared(known_as, numbered, tuple(numbers))
        if known_as:
            self.pgconn.send_prepare(known_as, numbered)
            with suppress(DuplicatePreparedStatement):  # forgotten here, but still prepared there
                self._answer()
        return prepared

    def _forget(self, prepared: _Prepared) -> None:
        if prepared.name:
            with suppress(InvalidSqlStatementName):  # already deallocated
                self.execute(b"DEALLOCATE " + prepared.name, prepare=False)

    def _answer(self) -> PGresult:
        result: PGresult = self.wait(generators.execute(self.pgconn))[-1]
        if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
            raise error_from_result(result)
        return result


def _name_of(text: bytes) -> bytes:
    """A name made from the text: a statement that was forgotten here is found again on the server."""
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


# -- connections -------------------------------------------------------------------------------------------------------


class Connections:
    def __init__(self, url: str, label: str, *, size: int = 8, pooler: bool = False) -> None:
        self.url = url
        self.pooler = pooler
        self.role = ""
        self._label = label
        self._size = size
        self._begin_process()
        self._open_first(label)

    @property
    def pool(self) -> Pool[QuickConnection]:
        self._survive_fork()
        return self._pool

    @property
    def lendable(self) -> threading.Semaphore:
        """Limits handlers' own transactions, which may take seconds: claims and settles need connections too."""
        self._survive_fork()
        return self._lendable

    def options(self) -> dict[str, Any]:
        return options(self.pooler) | {
            # A transaction-mode pooler hands each transaction to another backend: nothing prepared survives.
            "prepare_threshold": None if self.pooler else 5
        }

    def close(self) -> None:
        if self._pid == os.getpid():
            self._pool.close()

    def _begin_process(self) -> None:
        self._lendable = threading.Semaphore(max(1, self._size // 2))
        self._pool = Pool(partial(_connect, self.url, self.options()), self._size, self._label)
        weakref.finalize(self, _close_own, self._pool, os.getpid())
        self._pid = os.getpid()  # last: it marks the attributes above as this process's

    def _open_first(self, label: str) -> None:
        try:
            first = _connect(self.url, self.options())
        except psycopg.OperationalError as error:
            raise DatabaseUnreachable(label, str(error).strip()) from error
        except psycopg.ProgrammingError:
            raise bad_url() from None
        try:
            check(first, label)
        except BaseException:
            first.close()
            raise
        self.role = first.info.user
        self._pool.add(first)

    def _survive_fork(self) -> None:
        """A connection must not be used on both sides of a fork: the child opens its own and leaves the inherited ones
        alone."""
        if self._pid == os.getpid():
            return
        with after_fork:
            if self._pid != os.getpid():
                _inherited.append(self._pool)
                self._begin_process()


_inherited: list[object] = []


def _connect(url: str, options: dict[str, Any]) -> QuickConnection:
    given = conninfo_to_dict(url).get("options")
    if given and "options" in options:  # this package's options come last, because it relies on them
        options = {**options, "options": f"{given} {options['options']}"}
    connection = QuickConnection.connect(
        url,
        autocommit=True,
        application_name="leasehold",
        **network_options(url),
        **options,
    )
    # UUIDs and JSON stay text: nothing reads them on the way, and parsing them shows in the profile.
    for type_name in ("uuid", "json"):
        connection.adapters.register_loader(type_name, TextLoader)
    connection.adapters.register_loader("timestamptz", InstantLoader)
    return connection


def _close_own(pool: Pool[QuickConnection], pid: int) -> None:
    """Close the pool, except in a forked child, where the connections are the parent's."""
    if pid == os.getpid():
        pool.close()
