"""The store of one tenant: every verb, over a store that is opened for each verb that needs it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NoReturn, TypeVar, cast

from leasehold.domain.audit import AuditEntry
from leasehold.domain.errors import InvalidInput
from leasehold.domain.job import Enqueued, NewJob
from leasehold.domain.records import WorkerCard
from leasehold.stores.database.wakeups import (
    Hint,
    LocalWakeups,
    Wakeups,
    groups_label,
    notify_here,
    tenants_label,
)
from leasehold.stores.store import HandlerTransaction, JobStore
from leasehold.stores.tenants.directory import Directory
from leasehold.stores.verbs.audit import audited
from leasehold.stores.verbs.tenants import TenantVerbs
from leasehold.stores.verbs.workers import SILENT_AFTER

C = TypeVar("C", bound=type)

VERBS = frozenset(
    name for name in dir(JobStore) if not name.startswith("_") and callable(getattr(JobStore, name))
)
"""The public methods of a store."""
OF_CONTROL = VERBS.intersection(vars(TenantVerbs)) | {"open_tenant", "upgrade_tenant", "tenant_wakeups"}
"""The verbs of the store that keeps the list of tenants."""
OF_ALL_TENANTS = {"set_retention", "retention", "report_worker", "forget_worker", "forget_silent_workers"}
"""Workers and the rules in their code are the same for all tenants: they are kept in the app's own store."""


def with_verbs(make: Callable[[str], Callable[..., Any] | None]) -> Callable[[C], C]:
    """A class decorator: `make` writes each verb of a store that the class does not write itself."""

    def complete(cls: C) -> C:
        written = {name for one in cls.__mro__ for name in vars(one)}
        for name in sorted(VERBS - written):
            if (verb := make(name)) is not None:
                setattr(cls, name, functools.wraps(getattr(JobStore, name))(verb))
        return cls

    return complete


def to_control(name: str) -> Callable[..., Any]:
    return lambda self, *args, **kwargs: getattr(self.directory.control, name)(*args, **kwargs)


def _through(name: str) -> Callable[..., Any]:
    if name in OF_CONTROL:
        return _refusing(name)
    if name in OF_ALL_TENANTS:
        return to_control(name)

    def call(self: TenantStore, *args: Any, **kwargs: Any) -> Any:
        with self.directory.use(self.name) as store:
            return getattr(store, name)(*args, **kwargs)

    return call


def _refusing(name: str) -> Callable[..., NoReturn]:
    def refuse(self: TenantStore, *args: Any, **kwargs: Any) -> NoReturn:
        raise InvalidInput(name, "a tenant has no tenants", "ask the app itself: app.tenants")

    return refuse


@with_verbs(_through)
class TenantStore:
    claims_in_doubt = False
    problems = ()

    def __init__(self, directory: Directory, name: str) -> None:
        self.directory = directory
        self.name = self.tenant = name

    @functools.cached_property
    def label(self) -> str:
        with self.directory.use(self.name) as store:
            return store.label

    @property
    def results_folder(self) -> str | None:
        with self.directory.use(self.name) as store:
            return store.results_folder

    def another(self) -> JobStore:
        return tenant_store(self.directory.another(), self.name)

    def close(self) -> None:
        """Does nothing: its directory closes the open store."""

    @contextmanager
    def transaction(self, job_id: str, token: int, seconds: float) -> Iterator[HandlerTransaction]:
        with (
            self.directory.lending(),
            self.directory.use(self.name) as store,
            store.transaction(job_id, token, seconds) as lent,
        ):
            yield lent

    def enqueue_within(self, tx: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Refuses: a tenant's workers are notified after the commit, and the commit is the caller's."""
        raise InvalidInput(
            "tx", "a tenant's job cannot go with your transaction", "enqueue it after the commit"
        )

    async def aenqueue_within(self, tx: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return self.enqueue_within(tx, jobs)

    def audited(self, entry: AuditEntry) -> AbstractContextManager[None]:
        """Records in the tenant's own store, which need not stay open meanwhile."""
        return audited(self.label, entry, self.write_audit)  # type: ignore[attr-defined] # with_verbs writes it

    # -- workers and wake-ups --------------------------------------------------------------------------------------
    def notify_workers(self) -> None:
        self.directory.notify(self.name, Hint.WORK)

    def notify_holders(self) -> None:
        self.directory.notify(self.name, Hint.STOP)

    def notify_watchers(self) -> None:
        notify_here(groups_label(self.label))

    def wakeups(self, listen_url: str | None = None) -> Wakeups:
        return self.directory.control.tenant_wakeups(listen_url)

    def local_wakeups(self) -> Wakeups:
        return LocalWakeups(tenants_label(self.directory.control.label))

    def group_wakeups(self, listen_url: str | None = None) -> Wakeups:
        return LocalWakeups(groups_label(self.label))

    def list_workers(self, age: float = SILENT_AFTER, tenant: str | None = None) -> list[WorkerCard]:
        return self.directory.control.list_workers(age, self.name)


def as_store(store: object) -> JobStore:
    """The type of a class that `with_verbs` completes: a type checker does not see the verbs that it writes."""
    return cast(JobStore, store)


def tenant_store(directory: Directory, name: str) -> JobStore:
    return as_store(TenantStore(directory, name))
