"""Periodic work in each tenant: missed leases, time limits, old jobs, schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from typing import Any

from leasehold.domain.errors import TenantNotFound
from leasehold.domain.job import Job, NewJob, Sighting
from leasehold.domain.metrics import KEPT_MINUTES
from leasehold.domain.records import Reaped, ScheduleRow
from leasehold.domain.retention import Retention
from leasehold.domain.schedules import Schedule
from leasehold.stores.results import Fired, Pruned, Registered
from leasehold.stores.store import JobStore
from leasehold.stores.tenants.routing import SWEEP_EVERY, Name, TenantRouting


@dataclass(eq=False, repr=False)
class DueInTenants(TenantRouting):
    _sighted: dict[str, Name] = field(init=False, default_factory=dict)
    """The tenants of the leases seen last, by job."""

    def sight_overdue(self, sweep: float = 0.0, limit: int = 1000) -> list[Sighting]:
        """Tenants without recent notifications are visited seldom, so their leases are sighted earlier."""
        names, every = self._active.turn_of("sight")
        found: list[Sighting] = []
        sighted: dict[str, Name] = {}

        def look(name: Name, store: JobStore) -> None:
            ahead = max(sweep, SWEEP_EVERY) if every and not self._active.is_awake(name) else sweep
            some = store.sight_overdue(ahead, limit)
            if some:
                self._active.keep_awake(name)  # a second look must follow
                sighted.update((sighting.id, name) for sighting in some)
                found.extend(some)

        self._over(names, look)
        self._sighted = sighted
        return found

    def reap(self, sightings: Sequence[Sighting]) -> list[Reaped]:
        parts: dict[Name, list[Sighting]] = {}
        for sighting in sightings:
            if sighting.id in self._sighted:
                parts.setdefault(self._sighted[sighting.id], []).append(sighting)

        def reap(name: Name, store: JobStore) -> list[Reaped]:
            return [replace(lost, tenant=name) for lost in store.reap(parts[name])]

        try:
            return list(chain.from_iterable(self._over(list(parts), reap)))
        finally:
            self._touch(parts)

    def count_leases(self) -> int:
        names = [name for name in self._active.names() if self._active.is_awake(name)]
        return sum(self._over(names, lambda _, store: store.count_leases()))

    def expire(self, limit: int = 500) -> list[Job]:
        def expire(name: Name, store: JobStore) -> list[Job]:
            if some := store.expire(limit):
                self._touch([name])
            return some

        return list(chain.from_iterable(self._over(self._active.turn_of("expire")[0], expire)))

    def prune(
        self, keep: float | Retention, limit: int = 1000, after: str | None = None, **how: Any
    ) -> Pruned:
        """`after` and `next` name the tenant too."""
        self._active.read()
        names = sorted(self._active.names(), key=lambda name: name or "")
        whose, _, inside = (after or "").partition("/")
        left = [name for name in names if (name or "") >= whose]
        if not left:
            return Pruned(0, None)
        name = left[0]
        inside = inside if (name or "") == whose else ""
        try:
            pruned = self.part(name).prune(keep, limit, inside or None, **how)
        except TenantNotFound:
            self._forget(name)
            pruned = Pruned(0, None)
        if pruned.next is not None:
            return replace(pruned, next=f"{name or ''}/{pruned.next}")
        return replace(pruned, next=f"{left[1]}/" if len(left) > 1 else None)

    def sweep_results(self, age: float = 86_400.0, part: int | None = None) -> int:
        return sum(self._over(self._active.names(), lambda _, store: store.sweep_results(age, part)))

    def prune_audit(self, age: float, limit: int = 1000) -> int:
        return sum(self._over(self._active.names(), lambda _, store: store.prune_audit(age, limit)))

    def prune_rollups(self, age: float = KEPT_MINUTES * 60.0) -> None:
        self._over(self._active.names(), lambda name, store: store.prune_rollups(age))

    # -- schedules -------------------------------------------------------------------------------------------------
    def register_schedules(
        self, worker: str, schedules: Sequence[Schedule], starting: bool = True
    ) -> list[Registered]:
        """Schedules declared in code belong to the app's own store."""
        if not self._active.own:
            return []
        return self.directory.control.register_schedules(worker, schedules, starting)

    def leave_schedules(self, worker: str) -> None:
        if self._active.own:
            self.directory.control.leave_schedules(worker)

    def list_schedules(self) -> list[ScheduleRow]:
        """A tenant's schedules are read again after a notification, when one is due, and at each sweep."""
        names, _ = self._active.turn_of("schedules")
        now = self.directory.control.now()
        due = [name for name, rows in self._schedules.items() if any(row.next_at <= now for row in rows)]

        def read(name: Name, store: JobStore) -> None:
            self._schedules[name] = [replace(row, tenant=name) for row in store.list_schedules()]

        self._over(list(dict.fromkeys([*names, *due])), read)
        return [replace(row, now=now) for rows in list(self._schedules.values()) for row in rows]

    def fire(
        self,
        name: str,
        seen: datetime,
        jobs: Sequence[NewJob],
        next_at: datetime,
        passed: int,
        *,
        tenant: str | None = None,
    ) -> Fired | None:
        try:
            return self.part(tenant).fire(name, seen, jobs, next_at, passed)
        finally:
            self._touch([tenant])
