"""Opens stores: one from a URL, a scratch store beside the user's own, and the stores of an app.

Drivers are imported only for their own database.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

from leasehold.domain.checks.texts import EVERY_TENANT
from leasehold.domain.errors import DriverMissing, InvalidInput
from leasehold.stores.database.database import Clock
from leasehold.stores.database.statements import checked_schema
from leasehold.stores.tenants.directory import Directory
from leasehold.threads import ForkLock

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore
    from leasehold.stores.tenants.multi_store import ManyStores

POSTGRES = ("postgresql", "postgres", "postgresql+psycopg")
"""The last is how SQLAlchemy names this driver."""
DEFAULT_URL = "sqlite:///leasehold.db"
URL_VARIABLE = "LEASEHOLD_URL"
"""The database, for apps and commands that name none: `sqlite:///file.db` or `postgresql://user@host/database`."""


def resolve_url(url: str | None) -> str:
    """The given URL, else LEASEHOLD_URL, else a file in the working folder."""
    return url or os.environ.get(URL_VARIABLE) or DEFAULT_URL


def open_store(
    url: str,
    *,
    schema: str = "leasehold",
    clock: Clock | None = None,
    pooler: bool = False,
    results: str | None = None,
) -> JobStore:
    """Open the store behind a URL: sqlite:///file.db, sqlite:////absolute/file.db or postgresql://… Results that are
    files go to the folder `results`; without one, on SQLite, to a folder beside the database's file."""
    # Checked for both databases: otherwise a name that only SQLite accepts would fail in production.
    checked_schema(schema)
    scheme, separator, rest = url.partition("://")
    if separator and scheme == "sqlite":
        from leasehold.stores.sqlite.store import SqliteStore

        path = rest.removeprefix("/")
        if not path or path == ":memory:":
            raise InvalidInput(
                "url", f"{url!r} names no file", "use sqlite:///jobs.db; jobs must outlive the process"
            )
        return SqliteStore(path, clock, results=results)
    if separator and scheme in POSTGRES:
        _need_psycopg()
        from leasehold.stores.postgres.store import PostgresStore

        plain, in_url = _without_pooler(f"postgresql://{rest}")
        return PostgresStore(plain, schema, clock, pooler=pooler or in_url, results=results)
    # The URL itself stays out of the message: it may hold a password.
    problem = f"the scheme {scheme!r} is not known" if separator else "it has no scheme"
    raise InvalidInput("url", problem, "use sqlite:///file.db or postgresql://user@host/database")


def server_address(url: str) -> tuple[str, str, str]:
    """Host, port and database of a PostgreSQL URL; several hosts and ports stay one text, with commas."""
    _need_psycopg()
    from leasehold.stores.postgres.connections import address_of

    plain, _ = _without_pooler(f"postgresql://{url.partition('://')[2]}")
    return address_of(plain)


def _need_psycopg() -> None:
    """Raises DriverMissing before any module imports psycopg."""
    try:
        import psycopg  # noqa: F401  # an extra
    except ImportError as missing:
        raise DriverMissing("psycopg", "postgres") from missing


def _without_pooler(url: str) -> tuple[str, bool]:
    """The URL without our `?pooler=transaction`, which PostgreSQL does not know, and whether it was there."""
    address, _, query = url.partition("?")
    options = parse_qsl(query, keep_blank_values=True)
    kept = [(name, value) for name, value in options if name != "pooler"]
    if len(kept) == len(options):
        return url, False
    modes = {value for name, value in options if name == "pooler"}
    if modes != {"transaction"}:
        raise InvalidInput("url", f"pooler={'/'.join(sorted(modes))} is not known", "use pooler=transaction")
    return f"{address}?{urlencode(kept)}" if kept else address, True


# -- scratch stores ----------------------------------------------------------------------------------------------------


@contextmanager
def scratch_place(url: str, pooler: bool = False) -> Iterator[tuple[str, str]]:
    """The URL and the schema of a scratch store: a new schema in the same database, or a new file in the same folder,
    so that it is on the same server and disk. It is removed when the block ends."""
    name = f"leasehold_scratch_{secrets.token_hex(4)}"
    if url.startswith("sqlite"):
        path = Path(url.partition("://")[2].removeprefix("/"))
        file = path.with_name(f"{name}.db")
        try:
            yield f"sqlite:///{file}", name
        finally:
            for part in ("", "-wal", "-shm"):
                Path(f"{file}{part}").unlink(missing_ok=True)
            shutil.rmtree(f"{file}.results", ignore_errors=True)
        return
    try:
        yield url, name
    finally:
        store = open_store(url, schema=name, pooler=pooler)
        store.drop()
        store.close()


# -- the stores that an app has open -----------------------------------------------------------------------------------

MOST_FILES, MOST_SCHEMAS = 16, 200
"""Most tenants open at once: files cost descriptors and memory, schemas only what is cached of them."""


class OpenStores:
    """The stores of an app: each is opened when it is first needed, and again after a close."""

    def __init__(self, open_own: Callable[[], JobStore], is_sqlite: Callable[[], bool]) -> None:
        self._open_own = open_own
        self._is_sqlite = is_sqlite
        self._opening = ForkLock()
        self._own: JobStore | None = None
        self._directory: Directory | None = None
        self._all_tenants: ManyStores | None = None

    @property
    def own(self) -> JobStore:
        """The app's own store, which also keeps the list of tenants."""
        store = self._own
        if store is None:
            with self._opening:
                store = self._own
                if store is None:
                    store = self._own = self._open_own()
        return store

    @property
    def directory(self) -> Directory:
        own, found = self.own, self._directory
        if found is None:
            with self._opening:
                found = self._directory
                if found is None:
                    files = self._is_sqlite()
                    found = Directory(own, most_open=MOST_FILES if files else MOST_SCHEMAS, upgrades=files)
                    self._directory = found
        return found

    @property
    def all_tenants(self) -> ManyStores:
        """The store of all tenants, for embedded workers, which claim nothing by themselves."""
        from leasehold.stores.tenants.multi_store import ManyStores  # loads every verb

        directory, found = self.directory, self._all_tenants
        if found is None:
            with self._opening:
                found = self._all_tenants
                if found is None:
                    found = self._all_tenants = ManyStores(directory, None)
        return found

    def serving(self, tenants: Sequence[str]) -> JobStore:
        """One store for a worker that serves these tenants."""
        from leasehold.stores.tenants.multi_store import ManyStores  # loads every verb

        return ManyStores(self.directory, None if EVERY_TENANT in tenants else tenants).as_store

    def forget(self, tenant: str) -> None:
        """Close the open stores of a tenant that was dropped."""
        if self._directory is not None:
            self._directory.cache.drop(tenant)

    def close(self) -> None:
        with self._opening:
            own, self._own = self._own, None
            directory, self._directory = self._directory, None
            self._all_tenants = None
        if directory is not None:
            directory.close()
        if own is not None:
            own.close()
