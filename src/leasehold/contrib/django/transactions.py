"""Enqueues in Django's own transaction, if one is open."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from django.db import connections

from leasehold import Task
from leasehold.contrib.django.project import the_project

T = TypeVar("T", bound=Task[..., ..., Any, Any])


def in_transaction(task: T) -> T:
    """Return the task so that it is enqueued as Django saves a row: in the open `transaction.atomic()` block of the
    database that `LEASEHOLD["DATABASE"]` names, committed or rolled back with it; without such a block, at once.

    In a sandbox of `leasehold.testing` the jobs go to the sandbox, at once."""
    project = the_project()
    connection = connections[project.configuration.alias]
    if project.is_moved or not connection.in_atomic_block:
        return task
    return cast(T, task.using(tx=connection))
