"""Maps jobs to tenants, and keeps a slow tenant from delaying the others."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from leasehold.domain.errors import JobNotFound, StoreError, TenantNotFound
from leasehold.domain.job import Grant
from leasehold.domain.outcome import HandedBack
from leasehold.domain.records import ScheduleRow
from leasehold.stores.results import Ending
from leasehold.stores.store import JobStore
from leasehold.stores.tenants.active import ActiveTenants
from leasehold.stores.tenants.directory import Directory
from leasehold.stores.tenants.job_index import JobIndex, Name
from leasehold.stores.tenants.round_robin import Turns
from leasehold.stores.tenants.tenant_store import tenant_store

T = TypeVar("T")

logger = logging.getLogger("leasehold.tenants")


class Parts:
    def __init__(
        self, directory: Directory, names: Sequence[str] | None, index: JobIndex | None = None
    ) -> None:
        """`names` of None: every tenant, and the app's own store."""
        self.directory = directory
        self._names = names
        self._index = index or JobIndex()
        self._shares = index is not None
        self._turns: dict[object, Turns] = {}
        self._active = ActiveTenants(directory.control, names, self._put_first)
        self._schedules: dict[Name, list[ScheduleRow]] = {}
        self._touching = threading.Lock()
        self._touched: dict[str, set[Name]] = {"work": set(), "groups": set(), "hooks": set()}
        for name in names or ():
            directory.control.find_tenant(name)

    def part(self, name: Name) -> JobStore:
        return self.directory.control if name is None else tenant_store(self.directory, name)

    @contextmanager
    def holder(self, job_id: str) -> Iterator[JobStore]:
        """The store of the job's tenant, for a verb on the job. Raises JobNotFound."""
        if not self._index.knows(job_id):
            self._index.note(job_id, self._ask_for(job_id))
        name = self._index.of(job_id)
        try:
            yield self.part(name)
        finally:
            self._touch([name])

    def ask_holder(self, verb: str, job_id: str, *args: Any, **kwargs: Any) -> Any:
        with self.holder(job_id) as store:
            return getattr(store, verb)(job_id, *args, **kwargs)

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
                self.part(name).settle([Ending(grant.id, grant.token, back)])
        if held and name is not None:
            self.directory.cache.hold(name, len(held))
        return held

    def _ask_for(self, job_id: str) -> Name:
        self._active.read()
        for name in self._active.names():
            try:
                self.part(name).get(job_id)
            except (JobNotFound, TenantNotFound):
                continue
            return name
        raise JobNotFound(job_id, "none of the tenants that are served here has it")

    def _by_holder(self, things: Iterable[T], id_of: Callable[[T], str]) -> dict[Name, list[T]]:
        """By tenant; jobs of no tenant are left out."""
        found: dict[Name, list[T]] = {}
        for thing in things:
            job_id = id_of(thing)
            if not self._index.knows(job_id):
                try:
                    self._index.note(job_id, self._ask_for(job_id))
                except JobNotFound:
                    continue
            found.setdefault(self._index.of(job_id), []).append(thing)
        return found

    def _each(self, parts: Mapping[Name, T], ask: Callable[[JobStore, T], object]) -> dict[Name, StoreError]:
        """Call each store, and return the errors. One failure must not keep the others from their call; if all fail,
        this raises. A tenant that was dropped is left out."""
        failed: dict[Name, StoreError] = {}
        for name, part in parts.items():
            try:
                ask(self.part(name), part)
            except TenantNotFound:
                self._forget(name)
            except StoreError as error:
                failed[name] = error
        if failed and len(failed) == len(parts):
            raise next(iter(failed.values()))
        return failed

    def _forget(self, name: Name) -> None:
        self._active.forget(name)
        for turns in self._turns.values():
            turns.forget(name)
        self._schedules.pop(name, None)

    def _touch(self, names: Iterable[Name]) -> None:
        """Called after the change, however it ended: `notify_workers` of another thread notifies about everything
        touched, and receivers must find the change committed."""
        with self._touching:
            for touched in self._touched.values():
                touched.update(names)

    def _over(self, names: Sequence[Name], ask: Callable[[Name, JobStore], T]) -> list[T]:
        """The answers of the tenants that did not fail."""
        answers: list[T] = []
        self._each({name: name for name in names}, lambda store, name: answers.append(ask(name, store)))
        return answers

    def _put_first(self, names: Iterable[Name]) -> None:
        names = list(names)
        self._touch_hooks(names)
        for turns in list(self._turns.values()):
            turns.put_first(names)

    def _touch_hooks(self, names: Iterable[Name]) -> None:
        """These tenants may have events."""
        with self._touching:
            self._touched["hooks"].update(names)

    def _take(self, what: str) -> list[Name]:
        with self._touching:
            touched, self._touched[what] = self._touched[what], set()
        return list(touched)
