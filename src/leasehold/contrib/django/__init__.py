"""Django: one app for the project, configured by `LEASEHOLD` in its settings, on the database that Django uses.

    INSTALLED_APPS = [..., "leasehold.contrib.django"]
    LEASEHOLD = {"DATABASE": "default"}             # the defaults; may be left out

    from leasehold.contrib.django import app        # in the tasks.py of any installed app

    @app.task
    def ship(order_id: int) -> None: ...

    in_transaction(ship).enqueue(order.pk)          # committed or rolled back with the order

`manage.py leasehold …` is the command line: `manage.py leasehold worker`, `manage.py leasehold jobs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.contrib.django.project import in_transaction, the_project

if TYPE_CHECKING:
    from leasehold import Leasehold

    app: Leasehold
    """The project's app. Its first use makes it, and sets Django up if no one has done so."""

__all__ = ["app", "in_transaction"]


def __getattr__(name: str) -> object:
    if name == "app":
        return the_project().app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
