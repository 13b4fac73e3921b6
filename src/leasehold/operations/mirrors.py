"""The verbs on mirrors: tables of the user's own that are kept in step with jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from leasehold.domain.errors import InvalidInput
from leasehold.domain.mirror import Mirror, MirrorRow
from leasehold.operations.base import StoreDoor

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore


class MirrorOperations(StoreDoor):
    def mirror_sql(self, mirror: Mirror) -> str:
        return self._store.mirror_sql(mirror)

    def unmirror_sql(self, mirror: Mirror) -> str:
        return self._store.unmirror_sql(mirror)

    def add_mirror(self, mirror: Mirror, *, actor: str | None = None) -> None:
        with self._recorded("mirror.add", mirror.kind, actor, table=mirror.table) as store:
            store.add_mirror(mirror)

    def remove_mirror(self, mirror: Mirror, *, actor: str | None = None) -> None:
        with self._recorded("mirror.remove", mirror.kind, actor, table=mirror.table) as store:
            store.remove_mirror(mirror)

    def find_mirror(self, task: str, table: str) -> Mirror:
        """Raises InvalidInput."""
        for row in self._store.list_mirrors():
            if (row.mirror.kind, row.mirror.table) == (task, table):
                return row.mirror
        raise InvalidInput("task", f"{task!r} has no mirror in {table!r}", "see leasehold db mirrors")

    def list_mirrors(self) -> list[MirrorRow]:
        return self._store.list_mirrors()

    def verify_mirrors(self, tasks: Mapping[str, bool]) -> list[str]:
        """What is wrong with them. `tasks` are those that the app knows, and whether each says `mirror=True`."""
        problems = mirror_problems(self._store)
        mirrored = {row.mirror.kind for row in self._store.list_mirrors()}
        problems += [
            f"task {kind!r} has a mirror, but does not say mirror=True: its jobs pass unseen"
            for kind in sorted(mirrored)
            if tasks.get(kind) is False
        ]
        problems += [
            f"task {kind!r} says mirror=True, but has no mirror"
            for kind in sorted(tasks)
            if tasks[kind] and kind not in mirrored
        ]
        return problems


def mirror_problems(store: JobStore) -> list[str]:
    found = [
        f"mirror of {row.mirror.kind!r} in {row.mirror.table!r}: {problem}"
        for row in store.list_mirrors()
        for problem in row.problems
    ]
    return found + [f"{name} belongs to no mirror" for name in store.stray_mirrors()]
