"""The one Leasehold app of a Django project: its settings, its connections, and enqueues in Django's own
transaction."""

from __future__ import annotations

import difflib
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from urllib.parse import quote, urlencode

import django
from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import close_old_connections, connections

from leasehold import Leasehold, Task
from leasehold.errors import DriverMissing
from leasehold.types import Run

# -- connections around an attempt -------------------------------------------------------------------------------------
# These are top-level functions, because a job in its own process imports them.


def tidy(run: Run, call_next: Callable[[], Any]) -> Any:
    """Wrap a plain task, in its thread: Django keeps its connections by thread."""
    close_old_connections()
    try:
        return call_next()
    finally:
        close_old_connections()


async def tidy_async(run: Run, call_next: Callable[[], Awaitable[Any]]) -> Any:
    """Wrap an async task. Its database calls (`aget`, `sync_to_async`) get their own thread, as those of a request
    under ASGI do: otherwise all attempts would wait for one thread. The connections end with the thread."""
    async with ThreadSensitiveContext():
        try:
            return await call_next()
        finally:
            await sync_to_async(connections.close_all)()


# -- Django's own transaction ------------------------------------------------------------------------------------------

T = TypeVar("T", bound=Task[..., ..., Any, Any])


def in_transaction(task: T) -> T:
    """Return the task, to enqueue it as Django saves a row: in the open `transaction.atomic()` block of the database
    that `LEASEHOLD["DATABASE"]` names, committed or rolled back with the block; without such a block, at once.

    In a sandbox of `leasehold.testing` the jobs go to the sandbox, at once."""
    project = the_project()
    connection = connections[project.configuration.alias]
    if project.is_moved or not connection.in_atomic_block:
        return task
    return cast(T, task.using(tx=connection))


# -- settings ----------------------------------------------------------------------------------------------------------

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


# -- project -----------------------------------------------------------------------------------------------------------

PACKAGE = "leasehold.contrib.django"

_lock = threading.Lock()
_project: Project | None = None


@dataclass(frozen=True, slots=True)
class Project:
    app: Leasehold
    url: str
    configuration: Configuration

    @property
    def is_moved(self) -> bool:
        """Whether a sandbox of leasehold.testing has put the app on its own store."""
        return self.app.url != self.url


def the_project() -> Project:
    global _project
    # Needed in `leasehold worker leasehold.contrib.django:app` and in the process of one job. Not while Django loads
    # its apps: one of their modules may import this app.
    if not (apps.ready or apps.loading):
        django.setup()
    with _lock:
        if _project is None:
            _project = _made()
        return _project


def _made() -> Project:
    if not any(str(name).startswith(PACKAGE) for name in settings.INSTALLED_APPS):
        raise ImproperlyConfigured(f"INSTALLED_APPS lacks {PACKAGE!r}")
    found = configuration()
    app = Leasehold(**found.app)
    app.middleware(tidy)
    app.middleware(tidy_async)
    app.middleware(leave_no_session)
    return Project(app, app.url, found)


def leave_no_session(run: Run, call_next: Callable[[], Any]) -> Any:
    """Wrap a plain task in a test: close its connections whatever CONN_MAX_AGE says. The thread gets no more work, and
    Django cannot drop a database that has an open session."""
    try:
        return call_next()
    finally:
        if the_project().is_moved:
            connections.close_all()
