"""The connections of a process to one PostgreSQL database. Several schemas may share them: nothing in a session says
which schema it is for, every statement does."""

from __future__ import annotations

import os
import threading
import weakref
from functools import partial
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.string import TextLoader

from leasehold.domain.errors import DatabaseUnreachable
from leasehold.stores.database.forks import after_fork
from leasehold.stores.postgres import settings
from leasehold.stores.postgres.instants import InstantLoader
from leasehold.stores.postgres.pool import Pool
from leasehold.stores.postgres.prepared import QuickConnection
from leasehold.stores.postgres.urls import bad_url

CONNECT_SECONDS = 10


class Connections:
    def __init__(self, url: str, label: str, *, size: int = 8, pooler: bool = False) -> None:
        self.url = url
        self.pooler = pooler
        self.role = ""
        self._size = size
        self._begin_process()
        self._open_first(label)

    @property
    def pool(self) -> Pool:
        self._survive_fork()
        return self._pool

    @property
    def lendable(self) -> threading.Semaphore:
        """Handlers' own transactions may take seconds: they must not keep claims and settles from a connection."""
        self._survive_fork()
        return self._lendable

    def another(self, label: str) -> Connections:
        """One connection of its own."""
        return Connections(self.url, label, size=1, pooler=self.pooler)

    def options(self) -> dict[str, Any]:
        return settings.options(self.pooler) | {
            # A transaction-mode pooler hands each transaction to another backend: nothing prepared survives.
            "prepare_threshold": None if self.pooler else 5
        }

    def close(self) -> None:
        if self._pid == os.getpid():
            self._pool.close()

    def _begin_process(self) -> None:
        self._lendable = threading.Semaphore(max(1, self._size // 2))
        self._pool = Pool(partial(_connect, self.url, self.options()), self._size)
        weakref.finalize(self, _close_own, self._pool, os.getpid())
        self._pid = os.getpid()  # last: it says that the others are this process's

    def _open_first(self, label: str) -> None:
        try:
            first = _connect(self.url, self.options())
        except psycopg.OperationalError as error:
            raise DatabaseUnreachable(label, str(error).strip()) from error
        except psycopg.ProgrammingError:
            raise bad_url() from None
        try:
            settings.check(first, label)
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
    if given and "options" in options:  # ours last, because we rely on them
        options = {**options, "options": f"{given} {options['options']}"}
    connection = QuickConnection.connect(
        url,
        autocommit=True,
        connect_timeout=CONNECT_SECONDS,
        keepalives_idle=30,
        application_name="leasehold",
        **options,
    )
    # UUIDs and JSON stay text: nothing reads them on the way, and parsing them shows in the profile.
    for type_name in ("uuid", "json"):
        connection.adapters.register_loader(type_name, TextLoader)
    connection.adapters.register_loader("timestamptz", InstantLoader)
    return connection


def _close_own(pool: Pool, pid: int) -> None:
    """Not in a forked child: the connections are the parent's."""
    if pid == os.getpid():
        pool.close()
