"""One store for a worker that serves many tenants: each verb goes to the tenant that it is about."""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn, TypeVar, cast

from leasehold.domain.errors import InvalidInput, StoreError, TenantNotFound
from leasehold.domain.job import Enqueued, Grant, Job, NewJob, Renewal, Sighting
from leasehold.domain.metrics import Rollup
from leasehold.domain.states import Flag
from leasehold.domain.stream import RunNotes
from leasehold.stores.database.wakeups import Hint, LocalWakeups, Wakeups, tenants_label
from leasehold.stores.results import ClaimDenied, Ending, Full, Order, Settled, Unwritten
from leasehold.stores.store import HandlerTransaction, JobStore
from leasehold.stores.tenants.due import DueInTenants, OutboxesOfTenants
from leasehold.stores.tenants.routing import SWEEP_EVERY, Turns
from leasehold.stores.tenants.tenant_store import (
    OF_ALL_TENANTS,
    OF_CONTROL,
    VERBS,
    TenantStore,
    as_store,
    to_control,
    with_verbs,
)
from leasehold.stores.tenants.visits import Name, Visited
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
    _in_doubt: set[Name] = field(init=False, default_factory=set)
    """Stores that may have granted jobs in a call whose answer did not arrive."""

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
        return ManyStores(self.directory.another(), self.names, self._index, self.troubles).as_store

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
        """Each tenant that may have work gets its turn, with a share of the room. Raises if every one is in trouble."""
        self._active.read(fresh=idle)
        turns, now = self._turns_of(queues, tasks), time.monotonic()
        if now >= self._swept_at + SWEEP_EVERY:
            self._swept_at = now
            self._mark_ready(self._active.names())
        if self._active.own:
            turns.mark_ready([None])  # the app's own store sends no notification: always visit it
        visited: Visited[tuple[list[Grant], float | None]] = Visited()
        claim = partial(_claim_from, worker=worker, queues=queues, tasks=tasks, idle=idle, order=order)

        def ended_late(name: Name, _: object) -> None:
            turns.mark_ready([name])

        with self._doubting(visited):
            calls = self._claims(turns, now, limit, visited, claim)
            self._visit("claim", calls, visited, on_late=ended_late)
        grants: list[Grant] = []
        for name, (some, opens_in) in visited.answers:
            grants += self.hold(name, some)
            if not some:
                turns.later(name, None if opens_in is None else time.monotonic() + opens_in)
        for name, (some, _) in visited.answers:
            if some:
                turns.again(name)
        for name in visited.failed:
            turns.later(name, time.monotonic() + 1.0)
        if not grants and (failure := self._failure_of_all()) is not None:
            raise failure
        if not grants and not idle:
            self._active.read()  # a tenant notified meanwhile must not wait until the next claim
        return grants

    def _claims(
        self,
        turns: Turns,
        now: float,
        limit: int,
        visited: Visited[tuple[list[Grant], float | None]],
        claim: Callable[..., tuple[list[Grant], float | None]],
    ) -> Iterator[tuple[Name, Callable[[JobStore], tuple[list[Grant], float | None]]]]:
        """The next claims, each made when the one before it has brought what it has brought. A late claim keeps its
        share of the room."""
        left = limit
        for _ in range(MOST_TENANTS_A_CLAIM):
            turn = turns.next(now)
            if turn is False:
                return
            name = cast(Name, turn)
            if left <= 0:
                turns.again(name)
                return
            if self.troubles.has(name, "settle"):
                # What its jobs bring could not be stored: it would fill this worker.
                turns.later(name, now + 1.0)
                continue
            share, answers = turns.share(left), len(visited.answers)
            left -= share
            yield name, partial(claim, share=share)
            if len(visited.answers) > answers:
                left += share - len(visited.answers[-1][1][0])
            elif name not in visited.late:
                left += share

    @contextlib.contextmanager
    def _doubting(self, visited: Visited[Any]) -> Iterator[None]:
        """Note the stores that may have granted jobs, but whose answer is missing."""
        try:
            yield
        except StoreError:  # of a store that is alone
            self._in_doubt.update(visited.visited)
            raise
        self._in_doubt.update(visited.failed.keys() & visited.visited)

    def _failure_of_all(self) -> StoreError | None:
        """The trouble of a worker that no store serves."""
        if self._alone or not all(name in self.troubles for name in self._active.names()):
            return None
        problems = self.troubles.problems()
        return StoreError(problems[0].text) if problems else None

    def opens_in(self, queues: Sequence[str], tasks: Sequence[str] | None = None) -> float | None:
        now = time.monotonic()
        at = self._turns_of(queues, tasks).opens_at(now)
        return None if at is None else max(0.0, at - now)

    @property
    def claims_in_doubt(self) -> bool:
        return bool(self._in_doubt) and bool(self._doubtful())

    def find_leases_of(self, worker: str) -> list[Grant]:
        """This worker's leases in tenants whose claim failed, or came too late to be granted."""
        doubtful = dict.fromkeys(self._doubtful(), worker)
        visited = self._each("find_leases_of", doubtful, lambda store, _: store.find_leases_of(worker))
        self._in_doubt.difference_update([name for name, _ in visited.answers], visited.gone)
        return [grant for name, some in visited.answers for grant in self.hold(name, some)]

    def _doubtful(self) -> list[Name]:
        """The stores in doubt that can be asked now: none of their claims is under way."""
        return [
            name
            for name in list(self._in_doubt)
            if not any(self._visits.is_late(name, role) for role in ("claim", "adopt"))
            and self._visits.refusal(name, "find_leases_of") is None
        ]

    def adopt(
        self, worker: str, sites: Sequence[str], tasks: Sequence[str] | None = None, limit: int = 100
    ) -> list[Grant]:
        visited: Visited[list[Grant]] = Visited()

        def room() -> int:
            return limit - sum(len(some) for _, some in visited.answers)

        def calls() -> Iterator[tuple[Name, Callable[[JobStore], list[Grant]]]]:
            for name in self._active.turn_of("adopt")[0]:
                if (left := room()) > 0:
                    yield name, lambda store, left=left: store.adopt(worker, sites, tasks, left)  # type: ignore[misc] # mypy cannot infer a lambda with a default

        with self._doubting(visited):
            self._visit("adopt", calls(), visited)
        return [grant for name, some in visited.answers for grant in self.hold(name, some)]

    # -- renew and settle ------------------------------------------------------------------------------------------
    def renew(self, leases: Mapping[str, int]) -> list[Renewal]:
        parts = self._by_holder(leases.items(), lambda lease: lease[0])
        visited = self._each("renew", parts, lambda store, some: store.renew(dict(some)))
        renewals = [renewal for _, some in visited.answers for renewal in some]
        # It is unknown whether these leases are lost: they stay as they are, and are renewed again soon.
        left = dict.fromkeys(visited.failed, False) | {name: self._is_gone(name) for name in visited.gone}
        renewals += [
            Renewal(job_id, None, extended=False, dropped=dropped)
            for name, dropped in left.items()
            for job_id, _ in parts[name]
        ]
        return renewals

    def _is_gone(self, name: Name) -> bool:
        """Look once more: what is dropped with a tenant is stopped, and a new one may have its name."""
        try:
            self.directory.control.find_tenant(str(name))
        except TenantNotFound:
            return True
        return False

    def read_stop_requests(self, leases: Mapping[str, tuple[int, int]]) -> dict[str, Flag]:
        parts = self._by_holder(leases.items(), lambda lease: lease[0])
        visited = self._each(
            "read_stop_requests", parts, lambda store, some: store.read_stop_requests(dict(some))
        )
        return {job_id: flag for _, some in visited.answers for job_id, flag in some.items()}

    def settle(self, endings: Sequence[Ending], *, wait: bool = True) -> Settled:
        parts = self._by_holder(endings, lambda ending: ending.id)
        try:
            visited = self._each(
                "settle",
                parts,
                lambda store, some: store.settle(some, wait=wait),
                lambda name, _: self._touch([name]),
            )
        finally:
            self._touch(parts)
        answers = [settled for _, settled in visited.answers]
        whole = Settled([], [], [])
        decided: dict[str, Job] = {}
        for settled in answers:
            whole.accepted.extend(settled.accepted)
            whole.fenced.extend(settled.fenced)
            whole.not_serializable.extend(settled.not_serializable)
            whole.locked.extend(settled.locked)
            decided.update(settled.decided)
        unanswered = {ending.id for name in visited.failed for ending in parts[name]}
        left = unanswered.union(whole.locked)
        ended = {*whole.accepted, *whole.fenced}
        gone = {ending.id for ending in endings} - ended - left
        self._index.let_go([*ended, *gone])
        for name, some in parts.items():
            if name is not None:
                self.directory.cache.hold(name, -sum(ending.id not in left for ending in some))
        return replace(
            whole,
            fenced=[*whole.fenced, *sorted(gone)],
            decided=decided,
            freed=any(settled.freed for settled in answers),
            unanswered=sorted(unanswered),
        )

    @contextlib.contextmanager
    def transaction(self, job_id: str, token: int, seconds: float) -> Iterator[HandlerTransaction]:
        with self.holder(job_id) as store, store.transaction(job_id, token, seconds) as lent:
            yield lent

    def read_settlements(self, leases: Mapping[str, int], worker: str) -> dict[str, str]:
        answer = dict.fromkeys(leases, "fenced")
        parts = self._by_holder(leases.items(), lambda lease: lease[0])
        visited = self._each(
            "read_settlements", parts, lambda store, some: store.read_settlements(dict(some), worker)
        )
        for _, some in visited.answers:
            answer.update(some)
        for name in visited.failed:
            answer.update((job_id, "unknown") for job_id, _ in parts[name])
        return answer

    def write_updates(self, runs: Sequence[RunNotes]) -> Unwritten:
        whole = Unwritten([], [])
        parts = self._by_holder(runs, lambda run: run.id)
        visited = self._each("write_updates", parts, lambda store, some: store.write_updates(some))
        for _, written in visited.answers:
            whole.lost.extend(written.lost)
            whole.locked.extend(written.locked)
        whole.locked.extend((run.id, run.token) for name in visited.failed for run in parts[name])
        here = {run.id for name, some in parts.items() if name not in visited.gone for run in some}
        whole.lost.extend((run.id, run.token) for run in runs if run.id not in here)
        return whole

    def add_rollups(self, rollups: Sequence[Rollup], *, tenant: str | None = None) -> None:
        """The counts of a dropped tenant are dropped too."""
        with contextlib.suppress(TenantNotFound):
            self._visit_one("add_rollups", tenant, lambda store: store.add_rollups(rollups))

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
        self._over("notify_watchers", self._take("groups"), lambda store: store.notify_watchers())

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


def _claim_from(
    store: JobStore,
    *,
    worker: str,
    queues: Sequence[str],
    share: int,
    tasks: Sequence[str] | None,
    idle: bool,
    order: Order,
) -> tuple[list[Grant], float | None]:
    """What the store grants, and if that is nothing, the seconds until its next job is due."""
    grants = store.claim(worker, queues, share, tasks, idle=idle, order=order)
    return grants, None if grants else store.opens_in(queues, tasks)


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
