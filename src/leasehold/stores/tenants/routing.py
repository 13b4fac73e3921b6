"""Routing to the stores of tenants: which tenant has a job, which tenants a worker serves, and which is next."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import InitVar, dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from leasehold.domain.errors import DatabaseUnreachable, JobNotFound, StoreError, TenantNotFound
from leasehold.domain.job import Grant
from leasehold.domain.outcome import HandedBack
from leasehold.domain.records import ScheduleRow, WorkerProblem
from leasehold.stores.database.read_timeout import serves_many
from leasehold.stores.results import Ending
from leasehold.stores.store import JobStore
from leasehold.stores.tenants.directory import Directory
from leasehold.stores.tenants.tenant_store import tenant_store
from leasehold.stores.tenants.visits import RAISE_BUGS, ROLE_WAITS, Name, Troubles, Visited, Visits

T = TypeVar("T")
A = TypeVar("A")

MOST_CALLS = 4
"""Calls of handlers that one tenant may have under way at a time: a locked one must not take all connections."""
CALL_SECONDS = 15.0
"""Seconds that a handler's call waits for such a place."""

logger = logging.getLogger("leasehold.tenants")


@dataclass(eq=False, repr=False)
class TenantRouting:
    directory: Directory
    names: Sequence[str] | None
    """None: every tenant, and the app's own store."""
    index: InitVar[JobIndex | None] = None
    troubles: Troubles = field(default_factory=Troubles)

    def __post_init__(self, index: JobIndex | None) -> None:
        self._index = index or JobIndex()
        self._shares = index is not None
        self._visits = Visits(self.troubles)
        self._places: dict[Name, threading.Semaphore] = {}
        self._turns: dict[object, Turns] = {}
        self._active = ActiveTenants(
            self.directory.control, self.names, self._mark_ready, self.troubles.__contains__
        )
        self._schedules: dict[Name, list[ScheduleRow]] = {}
        self._touching = threading.Lock()
        self._touched: dict[str, set[Name]] = {"work": set(), "groups": set(), "hooks": set()}
        for name in self.names or ():
            self.directory.control.find_tenant(name)

    @property
    def problems(self) -> list[WorkerProblem]:
        return self.troubles.problems()

    def part(self, name: Name) -> JobStore:
        return self.directory.control if name is None else tenant_store(self.directory, name)

    @contextmanager
    def holder(self, job_id: str) -> Iterator[JobStore]:
        """The store of the job's tenant, for a verb on the job. Raises JobNotFound."""
        name = self.holder_of(job_id)
        try:
            yield self.part(name)
        finally:
            self._touch([name])

    def holder_of(self, job_id: str) -> Name:
        if not self._index.knows(job_id):
            self._index.note(job_id, self._find_tenant(job_id))
        return self._index.of(job_id)

    def call_holder(self, verb: str, job_id: str, *args: Any, **kwargs: Any) -> Any:
        name = self.holder_of(job_id)
        call = partial(getattr(self.part(name), verb), job_id, *args, **kwargs)
        try:
            if name is None or self._alone:
                return call()
            if serves_many():
                return self._visit_one(verb, name, lambda _: call())
            return self._in_place(name, call)
        finally:
            self._touch([name])

    def _in_place(self, name: Name, call: Callable[[], A]) -> A:
        places = self._places.get(name) or self._places.setdefault(name, threading.Semaphore(MOST_CALLS))
        if not places.acquire(timeout=CALL_SECONDS):
            raise DatabaseUnreachable(
                f"tenant {name}",
                f"{MOST_CALLS} calls have waited for it for {CALL_SECONDS:g} s",
                "look for a lock on its tables or its file",
            )
        try:
            return call()
        finally:
            places.release()

    def hold(self, name: Name, grants: Sequence[Grant]) -> list[Grant]:
        held = []
        for grant in grants:
            if self._index.hold(grant.id, name):
                held.append(grant if name is None else grant._replace(tenant=name))
            else:
                logger.error(
                    "tenant %s: handed back job %s, whose id already runs here for another tenant",
                    name,
                    grant.id,
                )
                back = HandedBack("a job of the same id runs for another tenant")
                ending = Ending(grant.id, grant.token, back)
                with suppress(StoreError):
                    self._visit_one("settle", name, lambda store, ending=ending: store.settle([ending]))  # type: ignore[misc] # mypy cannot infer a lambda with a default
        if held and name is not None:
            self.directory.cache.hold(name, len(held))
        return held

    def _find_tenant(self, job_id: str) -> Name:
        """Raises JobNotFound, or the error of a tenant that could not be searched."""
        self._active.read()
        visited: Visited[bool] = Visited()

        def has_it(store: JobStore) -> bool:
            try:
                store.get(job_id)
            except JobNotFound:
                return False
            return True

        def search() -> Iterator[tuple[Name, Callable[[JobStore], bool]]]:
            for name in self._active.names():
                yield name, has_it
                if any(here for _, here in visited.answers):
                    return

        self._visit("get", search(), visited)
        for name, here in visited.answers:
            if here:
                return name
        if visited.failed:
            raise next(iter(visited.failed.values()))
        raise JobNotFound(job_id, "none of the tenants that are served here has it")

    def _by_holder(self, things: Iterable[T], id_of: Callable[[T], str]) -> dict[Name, list[T]]:
        """Group things by the tenant of their job; leave out jobs that no tenant has."""
        found: dict[Name, list[T]] = {}
        for thing in things:
            job_id = id_of(thing)
            if not self._index.knows(job_id):
                try:
                    self._index.note(job_id, self._find_tenant(job_id))
                except JobNotFound:
                    continue
            found.setdefault(self._index.of(job_id), []).append(thing)
        return found

    @property
    def _alone(self) -> bool:
        """Whether one store is all that is served: there are no others that a call could hold up."""
        if self.names is not None:
            return len(self.names) == 1
        return not self._index.has_tenants and not self._active.has_tenants

    def _visit(
        self,
        role: str,
        calls: Iterable[tuple[Name, Callable[[JobStore], A]]],
        visited: Visited[A] | None = None,
        *,
        patience: float = ROLE_WAITS,
        on_late: Callable[[Name, A | None], None] | None = None,
    ) -> Visited[A]:
        """Call one store after another. Tenants that fail, or do not answer in time, do not hold the others up; a
        tenant that was dropped is forgotten. Raises only what a store raises that is alone."""
        visited = visited or Visited()
        if self._alone:
            for name, call in calls:
                visited.visited.append(name)
                try:
                    visited.answers.append((name, call(self.part(name))))
                except TenantNotFound:
                    visited.gone.append(name)
        else:
            made = ((name, partial(self._call, name, call)) for name, call in calls)
            self._visits.make(role, made, visited, patience, on_late)
            if visited.bugs and role in RAISE_BUGS:
                raise visited.bugs[0]
        for name in visited.gone:
            self._forget(name)
        return visited

    def _call(self, name: Name, call: Callable[[JobStore], A]) -> A:
        return call(self.part(name))

    def _visit_one(self, role: str, name: Name, call: Callable[[JobStore], A]) -> A:
        """Call one store; raises if it fails or does not answer in time. The call may go on."""
        visited = self._visit(role, [(name, call)])
        if visited.gone:
            raise TenantNotFound(str(name))
        for error in visited.failed.values():
            raise error
        return visited.answers[0][1]

    def _each(
        self,
        role: str,
        parts: Mapping[Name, T],
        call: Callable[[JobStore, T], A],
        on_late: Callable[[Name, A | None], None] | None = None,
    ) -> Visited[A]:
        """Call each store with its part."""

        def bound(part: T) -> Callable[[JobStore], A]:
            return lambda store: call(store, part)

        return self._visit(role, [(name, bound(part)) for name, part in parts.items()], on_late=on_late)

    def _over(
        self, role: str, names: Iterable[Name], call: Callable[[JobStore], A], patience: float = ROLE_WAITS
    ) -> list[A]:
        """The answers of the tenants that did not fail."""
        visited = self._visit(role, ((name, call) for name in names), patience=patience)
        return [answer for _, answer in visited.answers]

    def _forget(self, name: Name) -> None:
        self._active.forget(name)
        for turns in self._turns.values():
            turns.forget(name)
        self._schedules.pop(name, None)
        self.troubles.forget(name)

    def _touch(self, names: Iterable[Name]) -> None:
        """Called after the change, however it ended: `notify_workers` of another thread notifies about everything
        touched, and receivers must find the change committed."""
        with self._touching:
            for touched in self._touched.values():
                touched.update(names)

    def _mark_ready(self, names: Iterable[Name]) -> None:
        names = list(names)
        self._touch_hooks(names)
        for turns in list(self._turns.values()):
            turns.mark_ready(names)

    def _touch_hooks(self, names: Iterable[Name]) -> None:
        """Mark tenants that may have events."""
        with self._touching:
            self._touched["hooks"].update(names)

    def _take(self, what: str) -> list[Name]:
        with self._touching:
            touched, self._touched[what] = self._touched[what], set()
        return list(touched)


# -- which tenant a job belongs to -------------------------------------------------------------------------------------

RECENT_JOBS = 10_000
"""How many jobs are remembered after their leases ended: an attempt's spending may arrive after its end."""


class JobIndex:
    """The tenants of a worker's jobs, shared by its claims, its settles and its lease keeper."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, Name] = {}
        self._recent: dict[str, Name] = {}
        self._counts: dict[Name, int] = {}
        self.has_tenants = False
        """Whether a tenant's job was ever held here."""

    def hold(self, job_id: str, name: Name) -> bool:
        """False: a job with that id is held for another tenant, as when a tenant's file was copied."""
        with self._lock:
            if job_id in self._held:
                return self._held[job_id] == name
            self.has_tenants = self.has_tenants or name is not None
            self._recent.pop(job_id, None)
            self._held[job_id] = name
            self._counts[name] = self._counts.get(name, 0) + 1
            return True

    def let_go(self, ids: Iterable[str]) -> None:
        with self._lock:
            for job_id in ids:
                if job_id in self._held:
                    name = self._held.pop(job_id)
                    self._counts[name] -= 1
                    self._remember(job_id, name)

    def note(self, job_id: str, name: Name) -> None:
        """Remember where the job was found."""
        with self._lock:
            self._remember(job_id, name)

    def knows(self, job_id: str) -> bool:
        return job_id in self._held or job_id in self._recent

    def of(self, job_id: str) -> Name:
        """The tenant of a known job."""
        with self._lock:
            return self._held[job_id] if job_id in self._held else self._recent[job_id]

    def count(self, name: Name) -> int:
        return self._counts.get(name, 0)

    def _remember(self, job_id: str, name: Name) -> None:
        self.has_tenants = self.has_tenants or name is not None
        self._recent[job_id] = name
        while len(self._recent) > RECENT_JOBS:
            del self._recent[next(iter(self._recent))]


# -- which tenants a worker serves -------------------------------------------------------------------------------------

OVERLAP = timedelta(seconds=10)
"""Each read goes back by this much: a row may become visible after rows with a later time."""
AWAKE_FOR = 600.0
"""Seconds for which a tenant is visited at every beat after a notification."""
SWEEP_EVERY = 30.0
"""Seconds after which every tenant is visited: that finds changes whose hint was lost."""
FRESH_FOR = 0.02
"""Seconds for which a busy worker relies on its last read."""


class ActiveTenants:
    def __init__(
        self,
        control: JobStore,
        names: Sequence[str] | None,
        on_change: Callable[[Iterable[Name]], None],
        in_trouble: Callable[[Name], bool],
    ) -> None:
        """`names`: None means every tenant, and the app's own store."""
        self._in_trouble = in_trouble
        self._control = control
        self._wanted = None if names is None else frozenset(names)
        self._on_change = on_change
        self._lock = threading.Lock()
        self._versions: dict[str, int] = {}
        self._awake_until: dict[str, float] = {}
        self._since: datetime | None = None
        self._read_at = float("-inf")
        self._all_at: dict[str, float] = {}
        self.own = names is None

    @property
    def has_tenants(self) -> bool:
        return bool(self._versions)

    def names(self) -> list[Name]:
        with self._lock:
            return [*([None] if self.own else []), *self._versions]

    def serves(self, name: Name) -> bool:
        return self.own if name is None else self._wanted is None or name in self._wanted

    def read(self, fresh: bool = True) -> None:
        """Read the notifications since the last read. Without `fresh`, a read of a moment ago is enough."""
        now = time.monotonic()
        with self._lock:
            if not fresh and now < self._read_at + FRESH_FOR:
                return
            first = self._since is None
            rows = self._control.notified_tenants(None if self._since is None else self._since - OVERLAP)
            clock = self._control.now() if first and rows else None
            changed: list[Name] = []
            for row in rows:
                self._since = row.changed_at if self._since is None else max(self._since, row.changed_at)
                if not row.ready or not self.serves(row.name):
                    self._versions.pop(row.name, None)
                elif self._versions.get(row.name) != row.version:
                    self._versions[row.name] = row.version
                    age = 0.0 if clock is None else (clock - row.changed_at).total_seconds()
                    self._awake_until[row.name] = now + AWAKE_FOR - age
                    changed.append(row.name)
            self._read_at = now
        if changed:
            self._on_change(changed)

    def is_awake(self, name: Name) -> bool:
        return name is None or self._awake_until.get(name, 0.0) > time.monotonic()

    def keep_awake(self, name: Name) -> None:
        if name is not None:
            self._awake_until[name] = max(
                self._awake_until.get(name, 0.0), time.monotonic() + 2 * SWEEP_EVERY
            )

    def turn_of(self, what: str) -> tuple[list[Name], bool]:
        """The tenants to visit now, and whether it is a sweep. A sweep visits all; else only those that are awake, or
        in trouble that may be over."""
        self.read(fresh=False)
        now = time.monotonic()
        with self._lock:
            every = now >= self._all_at.get(what, 0.0)
            if every:
                self._all_at[what] = now + SWEEP_EVERY
        names = self.names()
        return [name for name in names if every or self.is_awake(name) or self._in_trouble(name)], every

    def forget(self, name: Name) -> None:
        with self._lock:
            if name is not None:
                self._versions.pop(name, None)


# -- which tenant is next ----------------------------------------------------------------------------------------------

LEAST_JOBS_A_TURN = 5
"""The least number of jobs that a turn requests, if there is room: each turn is a claim of its own."""


class Turns:
    """The turns for one set of queues and tasks: a tenant without work for these may have work for others."""

    def __init__(self, names: Iterable[Name]) -> None:
        self._lock = threading.Lock()
        self._ready: dict[Name, None] = dict.fromkeys(names)
        self._due: dict[Name, float] = {}

    def mark_ready(self, names: Iterable[Name]) -> None:
        """Give these tenants a turn: they may have work."""
        with self._lock:
            for name in names:
                self._ready.setdefault(name)

    def next(self, now: float) -> Name | bool:
        """The tenant whose turn it is, or False. Its next turn comes after `mark_ready`, `again` or its due time."""
        with self._lock:
            for name in [name for name, at in self._due.items() if at <= now]:
                del self._due[name]
                self._ready.setdefault(name)
            if not self._ready:
                return False
            name = next(iter(self._ready))
            del self._ready[name]
            return name

    def share(self, room: int) -> int:
        """The share of the room for the tenant whose turn it is, divided by this tenant and all that wait."""
        waiting = len(self._ready) + 1
        return min(room, max(-(-room // waiting), LEAST_JOBS_A_TURN))

    def again(self, name: Name) -> None:
        """The tenant had work and may have more: it waits behind the others."""
        self.mark_ready([name])

    def later(self, name: Name, at: float | None) -> None:
        """The tenant had no work; its next job is due at `at`."""
        with self._lock:
            self._due.pop(name, None)
            if at is not None:
                self._due[name] = at

    def forget(self, name: Name) -> None:
        with self._lock:
            self._ready.pop(name, None)
            self._due.pop(name, None)

    def opens_at(self, now: float) -> float | None:
        with self._lock:
            return now if self._ready.keys() - {None} else min(self._due.values(), default=None)
