"""Reads `LEASEHOLD` from the project's settings, and makes the URL of a database in `DATABASES`."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from leasehold.errors import DriverMissing

DEFAULT_ALIAS = "default"
OF_APP = ("URL", "SCHEMA", "LISTEN_URL", "POOLER", "RESULTS", "EXECUTIONS", "SHUTDOWN_GRACE")
"""Keys that are passed to `Leasehold(…)` unchanged."""
KNOWN = ("DATABASE", "TASKS", *OF_APP)


@dataclass(frozen=True, slots=True)
class Configuration:
    app: dict[str, Any]
    """The arguments of `Leasehold`."""
    alias: str
    """The alias of the database in `DATABASES` whose transactions jobs join."""
    tasks: tuple[str, ...]
    """Names of the modules with tasks, in every installed app."""


def configuration() -> Configuration:
    given: object = getattr(settings, "LEASEHOLD", {})
    if not isinstance(given, Mapping):
        raise _wrong("LEASEHOLD", f"is a {type(given).__name__}, not a dictionary")
    for key in given:
        if key not in KNOWN:
            near = difflib.get_close_matches(str(key).upper(), KNOWN, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(KNOWN)}"
            raise _wrong(f"LEASEHOLD[{key!r}]", f"is no setting of Leasehold; {hint}")
    if "URL" in given and "DATABASE" in given:
        raise _wrong("LEASEHOLD", "has 'URL' and 'DATABASE'; give one of them")
    names = given.get("TASKS", ("tasks",))
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise _wrong("LEASEHOLD['TASKS']", "is not a list of module names, such as ['tasks']")
    app = {key.lower(): given[key] for key in OF_APP if key in given}
    alias = given.get("DATABASE", DEFAULT_ALIAS)
    if "URL" not in given:
        app["url"] = database_url(alias)
    return Configuration(app, alias, tuple(names))


def database_url(alias: str) -> str:
    """Return the database of this alias as a URL for Leasehold."""
    if alias not in connections.settings:
        raise _wrong("LEASEHOLD['DATABASE']", f"names {alias!r}, which is not in DATABASES")
    connection = connections[alias]  # connects to nothing yet
    if connection.vendor == "sqlite":
        return _sqlite_url(alias, str(connection.settings_dict["NAME"]))
    if connection.vendor == "postgresql":
        return _postgres_url(alias, connection.settings_dict)
    raise _wrong(
        f"DATABASES[{alias!r}]",
        f"is on {connection.display_name}; Leasehold works on PostgreSQL and SQLite. Name another database with"
        " LEASEHOLD['DATABASE'], or give LEASEHOLD['URL']",
    )


def _sqlite_url(alias: str, name: str) -> str:
    if not name or name.startswith((":memory:", "file:")):
        raise _wrong(
            f"DATABASES[{alias!r}]['NAME']",
            f"is {name!r}; jobs need a plain file that other processes can open",
        )
    return f"sqlite:///{os.path.abspath(name)}"


def _postgres_url(alias: str, given: Mapping[str, Any]) -> str:
    options = given["OPTIONS"]
    if options.get("assume_role"):
        raise _wrong(
            f"DATABASES[{alias!r}]['OPTIONS']['assume_role']",
            "cannot be part of a URL; give LEASEHOLD['URL'] with a user of its own",
        )
    # Options that libpq does not know are for Django's or psycopg's own connections, such as "pool".
    query = {name: str(value) for name, value in options.items() if name in _known_to_libpq()}
    host, port = str(given["HOST"] or ""), str(given["PORT"] or "")
    place = ""
    if host and not host.startswith(("/", "@")) and "," not in host:
        place = (f"[{host}]" if ":" in host else quote(host, safe="")) + (f":{port}" if port else "")
    else:  # a socket, several hosts, or libpq's own choice
        query |= {name: value for name, value in (("host", host), ("port", port)) if value}
    user = quote(str(given["USER"] or ""), safe="")
    if given["PASSWORD"]:
        user += ":" + quote(str(given["PASSWORD"]), safe="")
    address = f"{user}@{place}" if user else place
    # Not urlencode's own "+" for a space: libpq would take it for a plus.
    tail = f"?{urlencode(query, quote_via=quote)}" if query else ""
    return f"postgresql://{address}/{quote(str(given['NAME'] or ''), safe='')}{tail}"


def _known_to_libpq() -> set[str]:
    try:
        from psycopg.pq import Conninfo
    except ModuleNotFoundError:  # Django also works with psycopg2
        raise DriverMissing("psycopg", "postgres") from None
    return {option.keyword.decode() for option in Conninfo.get_defaults()}


def _wrong(setting: str, problem: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"{setting} {problem}")
