"""Verbs and reads of mirrors: the user's own tables that follow jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from leasehold.domain.errors import InvalidInput
from leasehold.domain.mirror import Mirror, MirrorRow
from leasehold.operations.arguments import Actor
from leasehold.operations.verb import Backend, read, verb

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore


@verb("mirror.add", scope="admin", guard="all queues", audit=lambda given: {"table": given["mirror"].table})
def add_mirror(backend: Backend, task: str, mirror: Mirror, *, actor: Actor = None) -> None:
    """Keep a table in step with the jobs of this task."""
    backend.store.add_mirror(mirror)


@verb(
    "mirror.remove", scope="admin", guard="all queues", audit=lambda given: {"table": given["mirror"].table}
)
def remove_mirror(backend: Backend, task: str, mirror: Mirror, *, actor: Actor = None) -> None:
    """Remove a mirror; the user's rows stay."""
    backend.store.remove_mirror(mirror)


@read("mirrors.list", guard="all queues")
def list_mirrors(backend: Backend) -> list[MirrorRow]:
    """List the installed mirrors, each with its problems."""
    return backend.store.list_mirrors()


@read("mirror.find", guard="all queues")
def find_mirror(backend: Backend, task: str, table: str) -> Mirror:
    """Find the mirror of a task in a table. Raises InvalidInput if there is none."""
    for row in backend.store.list_mirrors():
        if (row.mirror.task, row.mirror.table) == (task, table):
            return row.mirror
    raise InvalidInput("task", f"{task!r} has no mirror in {table!r}", "see leasehold db mirrors")


@read("mirrors.verify", guard="all queues")
def verify_mirrors(backend: Backend, tasks: Mapping[str, bool]) -> list[str]:
    """List the problems of all mirrors. `tasks` says of each of the app's tasks if it has `mirror=True`."""
    problems = mirror_problems(backend.store)
    mirrored = {row.mirror.task for row in backend.store.list_mirrors()}
    problems += [
        f"task {task!r} has a mirror, but does not say mirror=True: its jobs pass unseen"
        for task in sorted(mirrored)
        if tasks.get(task) is False
    ]
    problems += [
        f"task {task!r} says mirror=True, but has no mirror"
        for task in sorted(tasks)
        if tasks[task] and task not in mirrored
    ]
    return problems


def mirror_problems(store: JobStore) -> list[str]:
    found = [
        f"mirror of {row.mirror.task!r} in {row.mirror.table!r}: {problem}"
        for row in store.list_mirrors()
        for problem in row.problems
    ]
    return found + [f"{name} belongs to no mirror" for name in store.stray_mirrors()]
