"""The stores behind a store of many: whose a job is, and how each is asked without keeping the others waiting."""

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
from leasehold.stores.tenants.active import Served
from leasehold.stores.tenants.directory import Directory
from leasehold.stores.tenants.job_index import JobIndex, Name
from leasehold.stores.tenants.round_robin import Turns
from leasehold.stores.tenants.tenant_store import tenant_store

T = TypeVar("T")

logger = logging.getLogger("leasehold.tenants")


class Parts:
    def __init__(
        self, directory: Directory, names: Sequence[str] | None, books: JobIndex | None = None
    ) -> None:
        """`names` of None: every tenant, and the app's own store."""
        self.directory = directory
        self._names = names
        self._books = books or JobIndex()
        self._shares = books is not None
        self._turns: dict[object, Turns] = {}
        self._served = Served(directory.control, names, self._put_first)
        self._schedules: dict[Name, list[ScheduleRow]] = {}
        self._touching = threading.Lock()
        self._touched: dict[str, set[Name]] = {"work": set(), "groups": set(), "hooks": set()}
        for name in names or ():
            directory.control.find_tenant(name)

    def part(self, name: Name) -> JobStore:
        return self.directory.control if name is None else tenant_store(self.directory, name)

    @contextmanager
    def holder(self, job_id: str) -> Iterator[JobStore]:
        """The store of the tenant that it belongs to, for a verb on it. Raises JobNotFound."""
        if not self._books.knows(job_id):
            self._books.note(job_id, self._ask_for(job_id))
        name = self._books.of(job_id)
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
            if self._books.hold(grant.id, name):
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
            self.directory.cabinet.hold(name, len(held))
        return held

    def _ask_for(self, job_id: str) -> Name:
        self._served.read()
        for name in self._served.names():
            try:
                self.part(name).get(job_id)
            except (JobNotFound, TenantNotFound):
                continue
            return name
        raise JobNotFound(job_id, "none of the tenants that are served here has it")

    def _by_holder(self, things: Iterable[T], id_of: Callable[[T], str]) -> dict[Name, list[T]]:
        """Those that nobody has are left out."""
        found: dict[Name, list[T]] = {}
        for thing in things:
            job_id = id_of(thing)
            if not self._books.knows(job_id):
                try:
                    self._books.note(job_id, self._ask_for(job_id))
                except JobNotFound:
                    continue
            found.setdefault(self._books.of(job_id), []).append(thing)
        return found

    def _each(self, parts: Mapping[Name, T], ask: Callable[[JobStore, T], object]) -> dict[Name, StoreError]:
        """Ask each; those in trouble. One must not keep the others from an answer; if nobody answers, it raises. Of a
        tenant that was dropped there is none."""
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
        self._served.forget(name)
        for turns in self._turns.values():
            turns.forget(name)
        self._schedules.pop(name, None)

    def _touch(self, names: Iterable[Name]) -> None:
        """After the change, however it ended: a neighbour's `notify_workers` tells of all that was touched, and what
        it tells of must be there to be found."""
        with self._touching:
            for touched in self._touched.values():
                touched.update(names)

    def _over(self, names: Sequence[Name], ask: Callable[[Name, JobStore], T]) -> list[T]:
        """The answers of those that are not in trouble."""
        answers: list[T] = []
        self._each({name: name for name in names}, lambda store, name: answers.append(ask(name, store)))
        return answers

    def _put_first(self, names: Iterable[Name]) -> None:
        names = list(names)
        self._touch_hooks(names)
        for turns in list(self._turns.values()):
            turns.put_first(names)

    def _touch_hooks(self, names: Iterable[Name]) -> None:
        """Events may wait there."""
        with self._touching:
            self._touched["hooks"].update(names)

    def _take(self, what: str) -> list[Name]:
        with self._touching:
            touched, self._touched[what] = self._touched[what], set()
        return list(touched)
