"""From a URL to a store. Drivers are imported only for their own database."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

from leasehold.domain.errors import DriverMissing, InvalidInput
from leasehold.stores.database.database import Clock
from leasehold.stores.database.schema_name import checked_schema

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

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
    # Asked of both stores: a name that only SQLite would let pass is found out in production.
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


def _need_psycopg() -> None:
    """Here, before any of the modules that import it."""
    try:
        import psycopg  # noqa: F401  # an extra
    except ImportError as missing:
        raise DriverMissing("psycopg", "postgres") from missing


def _without_pooler(url: str) -> tuple[str, bool]:
    """`?pooler=transaction` is ours: PostgreSQL does not know it."""
    address, _, query = url.partition("?")
    options = parse_qsl(query, keep_blank_values=True)
    kept = [(name, value) for name, value in options if name != "pooler"]
    if len(kept) == len(options):
        return url, False
    modes = {value for name, value in options if name == "pooler"}
    if modes != {"transaction"}:
        raise InvalidInput("url", f"pooler={'/'.join(sorted(modes))} is not known", "use pooler=transaction")
    return f"{address}?{urlencode(kept)}" if kept else address, True
