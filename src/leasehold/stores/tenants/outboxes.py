"""Hooks for the jobs of every tenant. Listeners are kept in the app's own store and copied to each tenant's, where the
transaction that changes a job also writes its events."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from leasehold.domain.errors import JobNotFound
from leasehold.domain.hooks import HookDelivery, Listener, PendingNotification
from leasehold.domain.job import NewJob
from leasehold.stores.store import JobStore
from leasehold.stores.tenants.routing import SWEEP_EVERY, Name, TenantRouting

COPY_EVERY = 6 * 3600.0
"""Seconds after which a copy is renewed. One not renewed for a day expires, because its code may be gone."""


@dataclass(eq=False, repr=False)
class OutboxesOfTenants(TenantRouting):
    _copies: dict[Name, tuple[frozenset[Listener], float]] = field(init=False, default_factory=dict)
    """The listeners copied to each tenant, and when to copy them again."""
    _taken: dict[str, Name] = field(init=False, default_factory=dict)
    """The tenants of the events under delivery, by event."""
    _all_outboxes_at: float = field(init=False, default=0.0)
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
        for name in self._tenants():
            had, until = self._copies.get(name, (frozenset(), time.monotonic() if wanted else float("inf")))
            if had != wanted or time.monotonic() >= until:
                self._over([name], lambda _, store, had=had: _copy(store, had, wanted))  # type: ignore[misc] # mypy cannot infer a lambda with a default
                self._copies[name] = (wanted, time.monotonic() + COPY_EVERY)
                self._touch_hooks([name])
        return found

    def notify_listeners(self, happened: Sequence[PendingNotification]) -> None:
        for one in happened:
            if not one.job_id:
                self.directory.control.notify_listeners([one])
                continue
            # A deleted job has no listeners any more.
            with suppress(JobNotFound), self.holder(one.job_id) as store:
                store.notify_listeners([one])

    def take_events(self, listeners: Sequence[str], limit: int, seconds: float) -> list[HookDelivery]:
        if not listeners:
            return []
        wanted = frozenset(listeners)
        if not wanted <= self._taken_for:
            self._touch_hooks(self._passed_over)
            self._passed_over.clear()
        self._taken_for = wanted
        self._hooks |= wanted
        taken = self.directory.control.take_events(listeners, limit, seconds)

        def take(name: Name, store: JobStore) -> None:
            some = store.take_events(listeners, limit - len(taken), seconds)
            if some:
                self._touch_hooks([name])  # there may be more
            self._taken.update((delivery.event.id, name) for delivery in some)
            taken.extend(_of(name, delivery) for delivery in some)

        names = self._outboxes()
        if wanted != self._hooks:
            self._passed_over.update(names)
        for name in names:
            if len(taken) < limit:
                self._over([name], take)
            else:
                self._touch_hooks([name])
        return taken

    def drop_events(self, ids: Sequence[str]) -> None:
        for event_id in ids:
            self.part(self._taken.pop(event_id, None)).drop_events([event_id])

    def give_back_events(self, ids: Sequence[str]) -> None:
        for event_id in ids:
            self.part(self._taken.pop(event_id, None)).give_back_events([event_id])

    def retry_event(self, event_id: str, seconds: float | None, error: str) -> None:
        self.part(self._taken.pop(event_id, None)).retry_event(event_id, seconds, error)

    def enqueue_events(
        self, listeners: Sequence[str], make_job: Callable[[HookDelivery], NewJob], limit: int = 100
    ) -> int:
        """A tenant's events are delivered by jobs of that tenant."""
        if not listeners:
            return 0
        made = self.directory.control.enqueue_events(listeners, make_job, limit)

        def enqueue(name: Name, store: JobStore) -> int:
            some = store.enqueue_events(listeners, lambda delivery: make_job(_of(name, delivery)), limit)
            if some:
                self._touch([name])
            return some

        names = self._outboxes()
        self._touch_hooks(names)  # events for hooks may wait there, too
        return made + sum(self._over(names, enqueue))

    def forget_listeners(self) -> None:
        self.directory.control.forget_listeners()
        self._over(self._tenants(), lambda _, store: store.forget_listeners())

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


def _names(listeners: frozenset[Listener]) -> set[str]:
    return {listener.name for listener in listeners}


def _of(name: Name, delivery: HookDelivery) -> HookDelivery:
    return replace(delivery, event=replace(delivery.event, tenant=name))
