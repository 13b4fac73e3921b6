"""A PostgreSQL URL, in messages: nothing of its user and password."""

from __future__ import annotations

import psycopg
from psycopg.conninfo import conninfo_to_dict

from leasehold.domain.errors import InvalidInput


def bad_url() -> InvalidInput:
    """Without the driver's words: they quote the part that holds the password."""
    return InvalidInput(
        "url",
        "cannot be read",
        "use postgresql://user:password@host:port/database?option=value; in user and password write @ as %40, "
        "/ as %2F, ? as %3F and : as %3A",
    )


def label_of(url: str, schema: str) -> str:
    """What to call the database: from the parts that are neither user nor password. A password that is not escaped ends
    up in the other parts; then the URL is refused, before the driver speaks of a host or port that is half of it."""
    address = url.partition("://")[2].partition("?")[0]
    if "@" in address.partition("/")[2] or address.count("@") > 1:
        raise bad_url()
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise bad_url() from None
    host, port = str(parts.get("host", "localhost")), str(parts.get("port", ""))
    # A host may begin with it: an abstract socket.
    if "@" in host[1:] or not all(not one or one.isdecimal() for one in port.split(",")):
        raise bad_url()
    return f"postgresql://{host}{f':{port}' if port else ''}/{parts.get('dbname', '')} (schema {schema})"
