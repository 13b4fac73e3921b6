"""Periodic work in each tenant: missed leases, time limits, old jobs, schedules, and the outboxes of hooks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from leasehold.domain.errors import JobNotFound, StoreError, TenantNotFound
from leasehold.domain.hooks import HookDelivery, Listener, PendingNotification
from leasehold.domain.job import Job, NewJob, Sighting
from leasehold.domain.metrics import KEPT_MINUTES
from leasehold.domain.records import Reaped, ScheduleRow
from leasehold.domain.retention import Retention
from leasehold.domain.schedules import Schedule
from leasehold.stores.results import Fired, Pruned, Registered
from leasehold.stores.store import JobStore
from leasehold.stores.tenants.routing import SWEEP_EVERY, TenantRouting
from leasehold.stores.tenants.visits import Name, Visited

A = TypeVar("A")

UNHURRIED = 30.0
"""Seconds that the pruner waits for a tenant: it has nothing urgent to do."""


@dataclass(eq=False, repr=False)
class DueInTenants(TenantRouting):
    _sighted: dict[str, Name] = field(init=False, default_factory=dict)
    """The tenants of the leases seen last, by job."""
    _reaped_late: list[Reaped] = field(init=False, default_factory=list)

    def sight_overdue(self, sweep: float = 0.0, limit: int = 1000) -> list[Sighting]:
        """Tenants without recent notifications are visited seldom, so their leases are sighted earlier. Leases of a
        tenant in trouble are not sighted: nobody can renew them."""
        names, every = self._active.turn_of("sight")

        def look(ahead: float) -> Callable[[JobStore], list[Sighting]]:
            return lambda store: store.sight_overdue(ahead, limit)

        longest = max(sweep, SWEEP_EVERY)
        visited = self._visit(
            "sight_overdue",
            [(name, look(longest if every and not self._active.is_awake(name) else sweep)) for name in names],
        )
        sighted: dict[str, Name] = {}
        for name, some in visited.answers:
            if some:
                self._active.keep_awake(name)  # a second look must follow
                sighted.update((sighting.id, name) for sighting in some)
        self._sighted = sighted
        return [sighting for _, some in visited.answers for sighting in some]

    def reap(self, sightings: Sequence[Sighting]) -> list[Reaped]:
        parts: dict[Name, list[Sighting]] = {}
        for sighting in sightings:
            if sighting.id in self._sighted:
                parts.setdefault(self._sighted[sighting.id], []).append(sighting)

        def reap(some: list[Sighting]) -> Callable[[JobStore], list[Reaped]]:
            return lambda store: store.reap(some)

        def reaped_late(name: Name, some: list[Reaped] | None) -> None:
            self._touch([name])
            self._reaped_late += [replace(lost, tenant=name) for lost in some or ()]

        late, self._reaped_late = self._reaped_late, []
        try:
            visited = self._visit(
                "reap", [(name, reap(some)) for name, some in parts.items()], on_late=reaped_late
            )
        finally:
            self._touch(parts)
        return late + [replace(lost, tenant=name) for name, some in visited.answers for lost in some]

    def count_leases(self) -> int:
        names = [name for name in self._active.names() if self._active.is_awake(name)]
        return sum(self._over("count_leases", names, lambda store: store.count_leases()))

    def expire(self, limit: int = 500) -> list[Job]:
        def expired(name: Name, some: list[Job] | None) -> None:
            if some:
                self._touch([name])

        calls = [(name, lambda store: store.expire(limit)) for name in self._active.turn_of("expire")[0]]
        visited = self._visit("expire", calls, on_late=expired)
        for name, some in visited.answers:
            expired(name, some)
        return [job for _, some in visited.answers for job in some]

    def prune(
        self, keep: float | Retention, limit: int = 1000, after: str | None = None, **how: Any
    ) -> Pruned:
        """`after` and `next` name the tenant too. A tenant in trouble is passed over."""
        self._active.read()
        names = sorted(self._active.names(), key=lambda name: name or "")
        whose, _, inside = (after or "").partition("/")
        left = [name for name in names if (name or "") >= whose]
        if not left:
            return Pruned(0, None)
        name = left[0]
        start = (inside or None) if (name or "") == whose else None
        answers = self._over("prune", [name], lambda store: store.prune(keep, limit, start, **how), UNHURRIED)
        pruned = answers[0] if answers else Pruned(0, None)
        if pruned.next is not None:
            return replace(pruned, next=f"{name or ''}/{pruned.next}")
        return replace(pruned, next=f"{left[1]}/" if len(left) > 1 else None)

    def sweep_results(self, age: float = 86_400.0, part: int | None = None) -> int:
        return sum(self._over_all("sweep_results", lambda store: store.sweep_results(age, part)))

    def prune_audit(self, age: float, limit: int = 1000) -> int:
        return sum(self._over_all("prune_audit", lambda store: store.prune_audit(age, limit)))

    def prune_rollups(self, age: float = KEPT_MINUTES * 60.0) -> None:
        self._over_all("prune_rollups", lambda store: store.prune_rollups(age))

    def _over_all(self, role: str, call: Callable[[JobStore], A]) -> list[A]:
        return self._over(role, self._active.names(), call, UNHURRIED)

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
        """A tenant's schedules are read again after a notification, when one is due, and at each sweep. Those of a
        tenant in trouble are left out."""
        names, _ = self._active.turn_of("schedules")
        now = self.directory.control.now()
        due = [name for name, rows in self._schedules.items() if any(row.next_at <= now for row in rows)]
        calls = [(name, lambda store: store.list_schedules()) for name in dict.fromkeys([*names, *due])]
        visited = self._visit("list_schedules", calls)
        for name, rows in visited.answers:
            self._schedules[name] = [replace(row, tenant=name) for row in rows]
        return [
            replace(row, now=now)
            for name, rows in list(self._schedules.items())
            if name not in visited.failed
            for row in rows
        ]

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
            return self._visit_one(
                "fire", tenant, lambda store: store.fire(name, seen, jobs, next_at, passed)
            )
        finally:
            self._touch([tenant])


# -- hooks -------------------------------------------------------------------------------------------------------------
# Listeners are kept in the app's own store and copied to each tenant's, where the transaction that changes a job also
# writes its events.

MOST_PUT_OFF = 1000
"""Writes that are kept for a tenant in trouble; an event that was not dropped is delivered again."""
COPY_EVERY = 6 * 3600.0
"""Seconds after which a copy is renewed. One not renewed for a day expires, because its code may be gone."""


@dataclass(eq=False, repr=False)
class OutboxesOfTenants(TenantRouting):
    _copies: dict[Name, tuple[frozenset[Listener], float]] = field(init=False, default_factory=dict)
    """The listeners copied to each tenant, and when to copy them again."""
    _taken: dict[str, Name] = field(init=False, default_factory=dict)
    """The tenants of the events under delivery, by event."""
    _all_outboxes_at: float = field(init=False, default=0.0)
    _taken_late: list[tuple[Name, list[HookDelivery]]] = field(init=False, default_factory=list)
    """What visits have taken that were left behind."""
    _put_off: dict[Name, deque[Callable[[JobStore], object]]] = field(init=False, default_factory=dict)
    """What could not be written to tenants in trouble."""
    _hooks: frozenset[str] = field(init=False, default=frozenset())
    """The hooks of this process."""
    _taken_for: frozenset[str] = field(init=False, default=frozenset())
    """The hooks of the last call of `take_events`: a hook that is busy is left out."""
    _passed_over: set[Name] = field(init=False, default_factory=set)
    """Tenants that may have events of hooks that were left out."""

    def find_listeners(self) -> list[Listener]:
        found = self.directory.control.find_listeners()
        wanted = frozenset(found)
        self._active.read(fresh=False)
        changed: dict[Name, frozenset[Listener]] = {}
        for name in self._tenants():
            had, until = self._copies.get(name, (frozenset(), time.monotonic() if wanted else float("inf")))
            if had != wanted or time.monotonic() >= until:
                changed[name] = had
        visited = self._each("find_listeners", changed, lambda store, had: _copy(store, had, wanted))
        for name, _ in visited.answers:
            self._copies[name] = (wanted, time.monotonic() + COPY_EVERY)
            self._touch_hooks([name])
        return found

    def notify_listeners(self, happened: Sequence[PendingNotification]) -> None:
        for one in happened:
            if not one.job_id:
                self.directory.control.notify_listeners([one])
                continue
            with suppress(JobNotFound):  # a deleted job has no listeners any more
                self._write(self.holder_of(one.job_id), partial(_notify, one))

    def take_events(self, listeners: Sequence[str], limit: int, seconds: float) -> list[HookDelivery]:
        if not listeners:
            return []
        wanted = frozenset(listeners)
        if not wanted <= self._taken_for:
            self._touch_hooks(self._passed_over)
            self._passed_over.clear()
        self._taken_for = wanted
        self._hooks |= wanted
        visited: Visited[list[HookDelivery]] = Visited()

        def room() -> int:
            return limit - sum(len(some) for _, some in visited.answers)

        def take(store: JobStore) -> list[HookDelivery]:
            return store.take_events(listeners, room(), seconds)

        def calls() -> Iterator[tuple[Name, Callable[[JobStore], list[HookDelivery]]]]:
            yield None, take
            names = self._outboxes()
            if wanted != self._hooks:
                self._passed_over.update(names)
            for name in names:
                if room() > 0:
                    yield name, self._after_put_off(name, take)
                else:
                    self._touch_hooks([name])

        def took_late(name: Name, some: list[HookDelivery] | None) -> None:
            self._taken_late.append((name, some or []))
            self._touch_hooks([name])

        late, self._taken_late = self._taken_late, []
        visited.answers += late
        self._visit("take_events", calls(), visited, on_late=took_late)
        self._touch_hooks(name for name in visited.failed if name is not None)
        for name, some in visited.answers:
            if some and name is not None:
                self._touch_hooks([name])  # there may be more
                self._taken.update((delivery.event.id, name) for delivery in some)
        return [
            delivery if name is None else _of(name, delivery)
            for name, some in visited.answers
            for delivery in some
        ]

    def drop_events(self, ids: Sequence[str]) -> None:
        for event_id in ids:
            self._write_event(event_id, lambda store, event_id=event_id: store.drop_events([event_id]))  # type: ignore[misc] # mypy cannot infer a lambda with a default

    def give_back_events(self, ids: Sequence[str]) -> None:
        for event_id in ids:
            self._write_event(event_id, lambda store, event_id=event_id: store.give_back_events([event_id]))  # type: ignore[misc] # mypy cannot infer a lambda with a default

    def retry_event(self, event_id: str, seconds: float | None, error: str) -> None:
        self._write_event(event_id, lambda store: store.retry_event(event_id, seconds, error))

    def _write_event(self, event_id: str, call: Callable[[JobStore], object]) -> None:
        self._write(self._taken.pop(event_id, None), call)

    def _write(self, name: Name, call: Callable[[JobStore], object]) -> None:
        """Write now; to a tenant in trouble later, before its events are taken again."""
        if name is None:
            call(self.directory.control)
            return
        try:
            self._visit_one("write_events", name, call)
        except TenantNotFound:
            return
        except StoreError:
            if self._alone:
                raise
            self._put_off.setdefault(name, deque(maxlen=MOST_PUT_OFF)).append(call)
            self._touch_hooks([name])

    def _after_put_off(self, name: Name, call: Callable[[JobStore], A]) -> Callable[[JobStore], A]:
        def both(store: JobStore) -> A:
            waiting = self._put_off.get(name, ())
            while waiting:
                waiting[0](store)
                waiting.popleft()
            return call(store)

        return both if name in self._put_off else call

    def enqueue_events(
        self, listeners: Sequence[str], make_job: Callable[[HookDelivery], NewJob], limit: int = 100
    ) -> int:
        """A tenant's events are delivered by jobs of that tenant."""
        if not listeners:
            return 0
        made = self.directory.control.enqueue_events(listeners, make_job, limit)

        def enqueue(store: JobStore, name: Name) -> int:
            return store.enqueue_events(listeners, lambda delivery: make_job(_of(name, delivery)), limit)

        names = self._outboxes()
        self._touch_hooks(names)  # events for hooks may wait there, too
        visited = self._each("enqueue_events", {name: name for name in names}, enqueue)
        self._touch(name for name, some in visited.answers if some)
        self._touch(visited.late)
        return made + sum(some for _, some in visited.answers)

    def forget_listeners(self) -> None:
        self.directory.control.forget_listeners()
        self._over("forget_listeners", self._tenants(), lambda store: store.forget_listeners())

    def _outboxes(self) -> list[Name]:
        """Tenants whose jobs this process changed; now and then all, because other processes change jobs too."""
        if time.monotonic() >= self._all_outboxes_at:
            self._all_outboxes_at = time.monotonic() + SWEEP_EVERY
            self._touch_hooks(self._tenants())
        return [name for name in self._take("hooks") if name in self._copies]

    def _tenants(self) -> list[Name]:
        return [name for name in self._active.names() if name is not None]


def _copy(store: JobStore, had: frozenset[Listener], wanted: frozenset[Listener]) -> None:
    for name in _names(had) - _names(wanted):
        store.remove_listener(name)
    store.register_listeners(sorted(wanted, key=lambda one: (one.name, one.event, one.task)))


def _notify(one: PendingNotification, store: JobStore) -> None:
    store.notify_listeners([one])


def _names(listeners: frozenset[Listener]) -> set[str]:
    return {listener.name for listener in listeners}


def _of(name: Name, delivery: HookDelivery) -> HookDelivery:
    return replace(delivery, event=replace(delivery.event, tenant=name))
