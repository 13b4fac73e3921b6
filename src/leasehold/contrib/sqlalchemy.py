"""SQLAlchemy: `app = Leasehold(url_of(engine))` keeps jobs in the engine's database, with its URL written once.

    with Session.begin() as session:
        session.add(order)
        session.flush()                                 # gives the order its id
        ship.using(tx=session).enqueue(order.id)        # committed or rolled back with the order

`using(tx=…)` takes sessions and connections, also async ones, without conversion.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from sqlalchemy import URL, Engine

from leasehold.errors import InvalidInput

if TYPE_CHECKING:  # importing it needs greenlet, which users of plain engines may not have
    from sqlalchemy.ext.asyncio import AsyncEngine

__all__ = ["url_of"]

_WRITE_IT = "give Leasehold a URL of its own: sqlite:///file.db or postgresql://user@host/database"


def url_of(engine: Engine | AsyncEngine) -> str:
    """Return the engine's database as a URL for `Leasehold(…)`, its password included. The driver that SQLAlchemy uses
    does not matter: Leasehold has its own. Settings outside of the engine's URL, such as `connect_args` or a `creator`,
    are not included."""
    url = engine.url
    match url.get_backend_name():
        case "sqlite":
            return _sqlite(url)
        case "postgresql":
            return _postgres(url)
        case other:
            raise InvalidInput(
                "engine", f"is on {other}; Leasehold works on PostgreSQL and SQLite", _WRITE_IT
            )


def _sqlite(url: URL) -> str:
    name = url.database
    if not name or name.startswith((":memory:", "file:")):
        raise InvalidInput("engine", f"is on {name or ':memory:'!r}, which names no plain file", _WRITE_IT)
    return f"sqlite:///{os.path.abspath(name)}"


def _postgres(url: URL) -> str:
    query: dict[str, str] = {}
    for name, value in url.query.items():
        if not isinstance(value, str):
            raise InvalidInput("engine", f"has several values for {name!r} in its URL", _WRITE_IT)
        query["sslmode" if name == "ssl" else name] = value  # asyncpg's name for it
    # libpq refuses a space that is not escaped, and takes a "+" for a plus.
    plain = (
        url.set(drivername="postgresql", query={}).render_as_string(hide_password=False).replace(" ", "%20")
    )
    return f"{plain}?{urlencode(query, quote_via=quote)}" if query else plain
