"""System page: findings about health, the tasks, versions and settings here, and the audit."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import sqlite3
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any
from urllib.parse import urlsplit

from leasehold.domain.audit import AuditRow
from leasehold.domain.checks.ids import checked_id
from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.domain.records import Finding
from leasehold.operations import audit, tenants
from leasehold.operations.local import reads_within
from leasehold.surfaces.dashboard.page import DashboardPage
from leasehold.surfaces.dashboard.page_request import LIVE, PageRequest
from leasehold.surfaces.dashboard.render import Badge, clip

# -- settings as a page may show them ----------------------------------------------------------------------------------
# Pure.

VARIABLE_PREFIX = "LEASEHOLD_"
HIDDEN = "set, not shown"
_HARMLESS = frozenset(
    f"{VARIABLE_PREFIX}{name}"
    for name in ("ACTOR", "APP", "DEMO", "EXECUTIONS", "RESULTS", "SCHEMA", "TENANT")
)
"""Variables whose values are shown. Any other may be a secret."""


def masked_url(url: str) -> str:
    """The URL without user, password and options. If it cannot be parsed reliably, only the scheme is shown: an
    unescaped password ends up in other parts of the URL."""
    scheme, found, rest = url.partition("://")
    if not found:
        return HIDDEN
    if scheme == "sqlite":
        return url.partition("?")[0]
    try:
        parts = urlsplit(url)
        _, found, hosts = parts.netloc.rpartition("@")
        for host in hosts.split(","):
            urlsplit(f"//{host}").port  # noqa: B018 — raises for one that cannot be a port
    except ValueError:
        return f"{scheme}://…"
    if rest.count("@") > 1 or "@" in parts.path + parts.fragment:
        return f"{scheme}://…"
    before = "…@" if found else ""
    after = "?…" if parts.query else ""
    return f"{scheme}://{before}{hosts}{parts.path}{after}"


def shown_environment(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Our environment variables by name, with secrets masked."""
    return [
        (name, _shown(name, value))
        for name, value in sorted(environment.items())
        if name.startswith(VARIABLE_PREFIX) and value
    ]


def _shown(name: str, value: str) -> str:
    if name == f"{VARIABLE_PREFIX}URL":
        return masked_url(value)
    return value if name in _HARMLESS else HIDDEN


# -- system ------------------------------------------------------------------------------------------------------------

ROWS = 30
MOST_TASKS, MOST_TENANTS = 200, 200
EXAMINED_WITHIN = 120.0
"""Seconds that an examination may take: a user has started it, and waits."""
LONGEST_DETAIL = 200
AUDIT_FILTERS = ("actor", "verb", "target")

VERDICTS = {"ok": Badge("ok", "ok"), "warn": Badge("warn", "warning"), "bad": Badge("bad", "bad")}
_PACKAGES = (
    *("leasehold", "pydantic", "cronsim", "psycopg", "fastapi", "starlette", "uvicorn", "Jinja2"),
    *("mcp", "httpx2", "opentelemetry-api"),
)
_SHOWN_OF_TASKS = (
    *(
        "lane",
        "on_failure",
        "priority",
        "timeout",
        "deadline",
        "start_by",
        "lease",
        "unique",
        "rate",
        "slots",
    ),
    *("budget", "max_running", "queueing", "run_in", "stall_after", "on_lost", "sensitive", "expose"),
)


@frozen
class ShownTask:
    name: str
    queue: str
    about: str
    settings: tuple[tuple[str, str], ...]
    """The settings that differ from the defaults."""


@frozen
class ShownEntry:
    row: AuditRow
    job_id: str | None
    """The id of the target, if it is a job."""
    detail: str


def read(page_request: PageRequest) -> dict[str, Any]:
    operations, access = page_request.operations, page_request.caller.access
    query = page_request.request.query_params
    everything = access.may("operate") and not access.queues
    examines = bool(query.get("examine")) and LIVE not in query and everything
    return {
        "label": page_request.caller.view.__internals__.store.label,
        "schema_version": operations.schema_version(),
        "findings": _examined(page_request)
        if examines
        else [*operations.check_health(), operations.check_clock()],
        "verdicts": VERDICTS,
        "may_examine": everything,
        "examined": examines,
        "tasks": _tasks(page_request),
        "tenants_here": _tenants(page_request),
        "packages": list(_packages()),
        # The machine's settings belong to no tenant and no queue: a limited caller gets none.
        "settings": _settings(page_request) if _sees_machine(page_request) else None,
        "audit": _audit(page_request),
        # An examination is too expensive to repeat in a stream.
        "page": dataclasses.replace(PAGE, live=False) if examines else PAGE,
    }


def _examined(page_request: PageRequest) -> list[Finding]:
    with reads_within(EXAMINED_WITHIN):
        found = page_request.operations.examine()
    order = ("bad", "warn", "ok")
    return sorted(found, key=lambda one: order.index(one.verdict))


def _sees_machine(page_request: PageRequest) -> bool:
    access = page_request.caller.access
    return access.may("admin") and not access.queues and access.may_use_tenant(None)


def _settings(page_request: PageRequest) -> dict[str, list[tuple[str, str]]]:
    location = page_request.caller.app.__internals__.location
    given = [
        ("database", masked_url(location.url)),
        ("schema", "" if location.is_sqlite else location.schema),
        ("listen URL", masked_url(location.listen_url) if location.listen_url else ""),
        ("pooler", "transaction" if location.pooler else ""),
        ("results as files", location.results or ""),
        ("running commands", str(location.executions_folder)),
    ]
    return {
        "app": [(name, value) for name, value in given if value],
        "environment": shown_environment(os.environ),
    }


def _packages() -> Iterator[tuple[str, str]]:
    yield "Python", platform.python_version()
    yield "SQLite", sqlite3.sqlite_version
    for name in _PACKAGES:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue


def _tasks(page_request: PageRequest) -> list[ShownTask]:
    found = []
    for name, task in sorted(page_request.caller.view.__internals__.tasks.definitions.items()):
        if page_request.caller.access.may_use_queue(task.settings.queue):
            about = task.card.description.partition("\n")[0]
            found.append(ShownTask(name, task.settings.queue, about, _unusual(task.settings)))
    return found[:MOST_TASKS]


def _unusual(settings: Any) -> tuple[tuple[str, str], ...]:
    usual = type(settings)()
    shown = []
    if settings.retry.max_attempts != usual.retry.max_attempts:
        shown.append(("attempts", str(settings.retry.max_attempts)))
    for name in _SHOWN_OF_TASKS:
        value = getattr(settings, name)
        if value != getattr(usual, name):
            shown.append((name, _formatted(value)))
    return tuple(shown)


def _formatted(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {one}" for key, one in value.items())
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _tenants(page_request: PageRequest) -> list[Any]:
    access = page_request.caller.access
    if not access.tenants:
        return []
    rows = page_request.caller.app.__internals__.operations.call(tenants.list_tenants)
    return [row for row in rows if access.may_use_tenant(row.name)][:MOST_TENANTS]


def _audit(page_request: PageRequest) -> dict[str, Any] | None:
    """A page of the audit. None: the caller is not an admin of all queues. A read-only dashboard shows it too."""
    access, query = page_request.caller.access, page_request.request.query_params
    if not access.may("admin") or access.queues:
        return None
    requested = {name: query.get(name, "").strip() for name in AUDIT_FILTERS}
    cursor = query.get("cursor") or None
    wanted = {name: value or None for name, value in requested.items()}
    page = page_request.operations.call(audit.list_audit, **wanted, limit=ROWS, cursor=cursor)
    return {
        "entries": [_entry(row) for row in page.entries],
        "next": page.next,
        "cursor": cursor,
        "requested": requested,
        "is_for_all": not any(requested.values()),
    }


def _entry(row: AuditRow) -> ShownEntry:
    detail = json.dumps(row.detail, ensure_ascii=False) if row.detail else ""
    return ShownEntry(row, _id_of(row.target), clip(detail, LONGEST_DETAIL))


def _id_of(target: str | None) -> str | None:
    try:
        return None if target is None else checked_id(target)
    except InvalidInput:
        return None


PAGE = DashboardPage("system", "system", "system.html", read)
