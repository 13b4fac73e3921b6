"""The one Leasehold app of a Django project."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import django
from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from leasehold import Leasehold
from leasehold.contrib.django.connections import tidy, tidy_async
from leasehold.contrib.django.settings import Configuration, configuration
from leasehold.types import Run

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
    # its apps, when a module of theirs may import this app.
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
    """Wrap a plain task in a test: its thread gets no more work, and Django cannot drop a database in which a session
    is left, whatever CONN_MAX_AGE says."""
    try:
        return call_next()
    finally:
        if the_project().is_moved:
            connections.close_all()
