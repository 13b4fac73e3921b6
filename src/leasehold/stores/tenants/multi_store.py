"""One store for a worker that serves many tenants: each verb goes to the tenant that it is about."""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, TypeVar, cast

from leasehold.domain.errors import InvalidInput, StoreError, TenantNotFound
from leasehold.domain.job import Enqueued, Grant, Job, NewJob, Renewal, Sighting
from leasehold.domain.metrics import Rollup
from leasehold.domain.states import Flag
from leasehold.domain.stream import RunNotes
from leasehold.stores.database.wakeups import Hint, LocalWakeups, Wakeups, tenants_label
from leasehold.stores.results import ClaimDenied, Ending, Full, Order, Settled, Unwritten
from leasehold.stores.store import HandlerTransaction, JobStore
from leasehold.stores.tenants.due import DueInTenants
from leasehold.stores.tenants.outboxes import OutboxesOfTenants
from leasehold.stores.tenants.routing import SWEEP_EVERY, Name, Turns
from leasehold.stores.tenants.tenant_store import (
    OF_ALL_TENANTS,
    OF_CONTROL,
    VERBS,
    TenantStore,
    as_store,
    to_control,
    with_verbs,
)
from leasehold.stores.verbs.hooks import WebhookVerbs

T = TypeVar("T")

MOST_TENANTS_A_CLAIM = 16
"""Most tenants that one claim visits; the next claim follows at once and visits others."""

OF_WEBHOOKS = VERBS.intersection(vars(WebhookVerbs))
"""Addresses and secrets are kept in the app's own store."""

TO_CONTROL = (
    OF_CONTROL
    | OF_ALL_TENANTS
    | OF_WEBHOOKS
    | {
        "list_workers",
        "inside_transaction",
        "refuse_inside",
        "check_for_worker",
        "check_results",
        "register_listeners",
        "touch_listeners",
        "remove_listener",
        "list_listeners",
        "notify_hooks",
        "now",
    }
)
"""Verbs about no tenant: the control store answers them."""


def takes_id(verb: str) -> bool:
    """Whether the verb's first parameter is a job's id."""
    return list(inspect.signature(getattr(JobStore, verb)).parameters)[1:2] == ["job_id"]


def _route(verb: str) -> Callable[..., Any]:
    if verb in TO_CONTROL:
        return to_control(verb)
    if takes_id(verb):
        return lambda self, job_id, *args, **kwargs: self.call_holder(verb, job_id, *args, **kwargs)

    def refuse(self: ManyStores, *args: Any, **kwargs: Any) -> NoReturn:
        raise InvalidInput(verb, "works on one tenant", "use app.tenant(name), or --tenant")

    refuse.refused = True  # type: ignore[attr-defined] # a mark on a function
    return refuse


@with_verbs(_route)
@dataclass(eq=False, repr=False)
class ManyStores(DueInTenants, OutboxesOfTenants):
    """The stores of many tenants as one store. A verb with a job's id goes to the tenant of the job's lease; for an id
    that is not held here the tenants are searched. The methods below are about many jobs, or about none."""

    _swept_at: float = field(init=False, default=0.0)
    _troubled: set[Name] = field(init=False, default_factory=set)
    _trouble: StoreError | None = field(init=False, default=None)

    @property
    def as_store(self) -> JobStore:
        return as_store(self)

    @property
    def label(self) -> str:
        whose = "all tenants" if self.names is None else ", ".join(self.names)
        return f"{self.directory.control.label}: {whose}"

    @property
    def results_folder(self) -> str | None:
        return self.directory.control.results_folder

    def another(self) -> JobStore:
        return ManyStores(self.directory.another(), self.names, self._index).as_store

    def close(self) -> None:
        if self._shares:
            self.directory.close()

    def only(self, name: str) -> JobStore:
        """The store of one tenant; jobs claimed through it are held here."""
        return as_store(_HoldingStore(self, name))

    # -- claim -----------------------------------------------------------------------------------------------------
    def _turns_of(self, queues: Sequence[str], tasks: Sequence[str] | None) -> Turns:
        key = (frozenset(queues), None if tasks is None else frozenset(tasks))
        turns = self._turns.get(key)
        if turns is None:
            turns = self._turns[key] = Turns(self._active.names())
        return turns

    def claim(
        self,
        worker: str,
        queues: Sequence[str],
        limit: int,
        tasks: Sequence[str] | None = None,
        *,
        idle: bool = False,
        order: Order = "mixed",
    ) -> list[Grant]:
        """Each tenant that may have work gets its turn, with a share of the room."""
        if (trouble := self._trouble) is not None:
            self._trouble = None
            raise trouble
        self._active.read(fresh=idle)
        turns, now = self._turns_of(queues, tasks), time.monotonic()
        if now >= self._swept_at + SWEEP_EVERY:
            self._swept_at = now
            self._mark_ready(self._active.names())
        if self._active.own:
            turns.mark_ready([None])  # the app's own store sends no notification: always visit it
        grants: list[Grant] = []
        had: list[Name] = []
        for _ in range(MOST_TENANTS_A_CLAIM):
            name = turns.next(now)
            if name is False or len(grants) >= limit:
                if name is not False:
                    turns.again(cast(Name, name))
                break
            share = turns.share(limit - len(grants))
            some = self._claim_from(
                cast(Name, name), turns, worker, queues, share, tasks, idle=idle, order=order
            )
            grants += some
            if some:
                had.append(cast(Name, name))
        for name in had:
            turns.again(name)
        if not grants and self._trouble is not None:
            trouble, self._trouble = self._trouble, None
            raise trouble
        if not grants and not idle:
            self._active.read()  # a tenant notified meanwhile must not wait until the next claim
        return grants

    def _claim_from(
        self,
        name: Name,
        turns: Turns,
        worker: str,
        queues: Sequence[str],
        share: int,
        tasks: Sequence[str] | None,
        **how: Any,
    ) -> list[Grant]:
        try:
            with self._open(name) as store:
                grants = store.claim(worker, queues, share, tasks, **how)
                opens_in = None if grants else store.opens_in(queues, tasks)
        except TenantNotFound:
            self._forget(name)
            return []
        except StoreError as error:
            # It may have granted jobs although the reply was lost: see `find_leases_of`.
            self._troubled.add(name)
            self._trouble = error
            turns.later(name, time.monotonic() + 1.0)
            return []
        if not grants:
            turns.later(name, None if opens_in is None else time.monotonic() + opens_in)
        return self.hold(name, grants)

    def _open(self, name: Name) -> AbstractContextManager[JobStore]:
        """The app's own store is open anyway."""
        return nullcontext(self.directory.control) if name is None else self.directory.use(name)

    def opens_in(self, queues: Sequence[str], tasks: Sequence[str] | None = None) -> float | None:
        now = time.monotonic()
        at = self._turns_of(queues, tasks).opens_at(now)
        return None if at is None else max(0.0, at - now)

    def find_leases_of(self, worker: str) -> list[Grant]:
        """This worker's leases in tenants whose claim failed."""
        found: list[Grant] = []
        for name in list(self._troubled):
            try:
                found += self.hold(name, self.part(name).find_leases_of(worker))
            except TenantNotFound:
                self._forget(name)
            self._troubled.discard(name)
        return found

    def adopt(
        self, worker: str, sites: Sequence[str], tasks: Sequence[str] | None = None, limit: int = 100
    ) -> list[Grant]:
        found: list[Grant] = []
        for name in self._active.turn_of("adopt")[0]:
            if len(found) < limit:
                found += self.hold(name, self.part(name).adopt(worker, sites, tasks, limit - len(found)))
        return found

    # -- renew and settle ------------------------------------------------------------------------------------------
    def renew(self, leases: Mapping[str, int]) -> list[Renewal]:
        answer: list[Renewal] = []
        parts = self._by_holder(leases.items(), lambda lease: lease[0])
        failed = self._each(parts, lambda store, some: answer.extend(store.renew(dict(some))))
        # It is unknown whether these leases are lost: they stay as they are, and are renewed again soon.
        answer += [Renewal(job_id, None, extended=False) for name in failed for job_id, _ in parts[name]]
        return answer

    def read_stop_requests(self, leases: Mapping[str, tuple[int, int]]) -> dict[str, Flag]:
        answer: dict[str, Flag] = {}
        parts = self._by_holder(leases.items(), lambda lease: lease[0])
        self._each(parts, lambda store, some: answer.update(store.read_stop_requests(dict(some))))
        return answer

    def settle(self, endings: Sequence[Ending], *, wait: bool = True) -> Settled:
        whole = Settled([], [], [])
        decided: dict[str, Job] = {}
        freed = False

        def settle(store: JobStore, some: list[Ending]) -> None:
            nonlocal freed
            settled = store.settle(some, wait=wait)
            whole.accepted.extend(settled.accepted)
            whole.fenced.extend(settled.fenced)
            whole.not_serializable.extend(settled.not_serializable)
            whole.locked.extend(settled.locked)
            decided.update(settled.decided)
            freed = freed or settled.freed

        parts = self._by_holder(endings, lambda ending: ending.id)
        try:
            failed = self._each(parts, settle)
        finally:
            self._touch(parts)
        ended = [*whole.accepted, *whole.fenced]
        if failed:
            # The worker repeats the whole batch, and finds out which endings are settled.
            self._index.let_go(ended)
            raise next(iter(failed.values()))
        locked = set(whole.locked)
        gone = {ending.id for ending in endings} - set(ended) - locked
        self._index.let_go([*ended, *gone])
        for name, some in parts.items():
            if name is not None:
                self.directory.cache.hold(name, -sum(ending.id not in locked for ending in some))
        return replace(whole, fenced=[*whole.fenced, *sorted(gone)], decided=decided, freed=freed)

    @contextlib.contextmanager
    def transaction(self, job_id: str, token: int, seconds: float) -> Iterator[HandlerTransaction]:
        with self.holder(job_id) as store, store.transaction(job_id, token, seconds) as lent:
            yield lent

    def read_settlements(self, leases: Mapping[str, int], worker: str) -> dict[str, str]:
        answer = dict.fromkeys(leases, "fenced")
        parts = self._by_holder(leases.items(), lambda lease: lease[0])
        failed = self._each(
            parts, lambda store, some: answer.update(store.read_settlements(dict(some), worker))
        )
        if failed:
            raise next(iter(failed.values()))
        return answer

    def write_updates(self, runs: Sequence[RunNotes]) -> Unwritten:
        whole = Unwritten([], [])

        def write(store: JobStore, some: list[RunNotes]) -> None:
            written = store.write_updates(some)
            whole.lost.extend(written.lost)
            whole.locked.extend(written.locked)

        parts = self._by_holder(runs, lambda run: run.id)
        here = {run.id for some in parts.values() for run in some}
        failed = self._each(parts, write)
        if failed:
            raise next(iter(failed.values()))
        whole.lost.extend((run.id, run.token) for run in runs if run.id not in here)
        return whole

    def add_rollups(self, rollups: Sequence[Rollup], *, tenant: str | None = None) -> None:
        """The counts of a dropped tenant are dropped too."""
        with contextlib.suppress(TenantNotFound):
            self.part(tenant).add_rollups(rollups)

    # -- hints -----------------------------------------------------------------------------------------------------
    def notify_workers(self) -> None:
        """Notify the workers of every tenant touched since the last call. This process learns of it at once: the hint
        comes back a moment later, and by then a burst might have ended."""
        names = self._take("work")
        self._mark_ready(names)
        for name in names:
            self._notify(name, Hint.WORK)

    def notify_holders(self) -> None:
        for name in self._active.names():
            self._notify(name, Hint.STOP)

    def notify_watchers(self) -> None:
        for name in self._take("groups"):
            try:
                self.part(name).notify_watchers()
            except TenantNotFound:
                self._forget(name)

    def _notify(self, name: Name, hint: Hint) -> None:
        if name is not None:
            self.directory.notify(name, hint)
        elif hint is Hint.STOP:
            self.directory.control.notify_holders()
        else:
            self.directory.control.notify_workers()

    def wakeups(self, listen_url: str | None = None) -> Wakeups:
        return self.directory.control.tenant_wakeups(listen_url)

    def local_wakeups(self) -> Wakeups:
        return LocalWakeups(tenants_label(self.directory.control.label))


class _HoldingStore(TenantStore):
    """One tenant's store whose grants a `ManyStores` holds, for jobs that are passed to a worker."""

    def __init__(self, many: ManyStores, name: str) -> None:
        super().__init__(many.directory, name)
        self._many = many

    def run_now(self, job: NewJob, worker: str, cap: int) -> Grant | Full | Enqueued:
        with self.directory.use(self.name) as store:
            return self._held(store.run_now(job, worker, cap))

    def claim_by_id(
        self, job_id: str, worker: str, sites: Sequence[str] = (), sighting: Sighting | None = None
    ) -> Grant | ClaimDenied:
        with self.directory.use(self.name) as store:
            return self._held(store.claim_by_id(job_id, worker, sites, sighting))

    def find_leases_of(self, worker: str) -> list[Grant]:
        with self.directory.use(self.name) as store:
            return self._many.hold(self.name, store.find_leases_of(worker))

    def _held(self, answer: T) -> T:
        if isinstance(answer, Grant):
            (held,) = self._many.hold(self.name, [answer])
            return cast(T, held)
        return answer
