"""From a URL to a store. Drivers are imported only when their database is asked for."""

from __future__ import annotations

import os

from leasehold.domain.errors import InvalidInput
from leasehold.stores.contract import Store
from leasehold.stores.database import Clock

DEFAULT_URL = "sqlite:///leasehold.db"


def resolve_url(url: str | None) -> str:
    """The given URL, else LEASEHOLD_URL, else a file in the working folder."""
    return url or os.environ.get("LEASEHOLD_URL") or DEFAULT_URL


def open_store(
    url: str, *, schema: str = "leasehold", clock: Clock | None = None, pooler: bool = False
) -> Store:
    """Open the store behind a URL: sqlite:///file.db, sqlite:////absolute/file.db or postgresql://…"""
    scheme, separator, rest = url.partition("://")
    if separator and scheme == "sqlite":
        from leasehold.stores.sqlite.jobs import SqliteStore

        path = rest.removeprefix("/")
        if not path or path == ":memory:":
            raise InvalidInput(
                "url", f"{url!r} names no file", "use sqlite:///jobs.db; jobs must outlive the process"
            )
        return SqliteStore(path, clock)
    if separator and scheme in ("postgresql", "postgres"):
        from leasehold.stores.postgres.jobs import PostgresStore

        return PostgresStore(url, schema, clock, pooler=pooler)
    raise InvalidInput(
        "url", f"{url!r} names no store", "use sqlite:///file.db or postgresql://user@host/database"
    )
