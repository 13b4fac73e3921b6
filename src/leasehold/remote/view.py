"""The jobs behind a server, as users see and steer them: the app's own, or those of one tenant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from typing_extensions import Unpack

from leasehold.domain.checks.states import checked_states
from leasehold.domain.stop import StopRequest
from leasehold.remote import calls, decode, lists
from leasehold.remote.bulk import Bulk
from leasehold.remote.calls import CallOptions, NewJob
from leasehold.remote.exchange import Answer, get, once
from leasehold.remote.group import Group
from leasehold.remote.job import Job, job_path
from leasehold.remote.limits import Rates, Slots
from leasehold.remote.questions import Questions
from leasehold.remote.queues import Lanes, Queues, Tasks
from leasehold.remote.schedules import Schedules
from leasehold.remote.stop import StopOptions, stopping
from leasehold.remote.transport import Line
from leasehold.remote.values import Made, Page
from leasehold.types import (
    AuditPage,
    BudgetOwner,
    BudgetPage,
    Criteria,
    ExecutionRow,
    GroupPage,
    GroupState,
    LeasePage,
    State,
    StopReport,
    WorkerCard,
)


class View:
    """What `Remote` and `api.tenant(name)` have in common."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.bulk = Bulk(line)
        self.queues = Queues(line)
        self.tasks = Tasks(line)
        self.lanes = Lanes(line)
        self.slots = Slots(line)
        self.rates = Rates(line)
        self.questions = Questions(line)
        self.schedules = Schedules(line)

    # -- enqueue ---------------------------------------------------------------------------------------------------
    def enqueue(
        self,
        name: str,
        args: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        **settings: Unpack[CallOptions],
    ) -> Job:
        """Enqueue a task by its name: `api.enqueue("add", {"a": 1}, delay="10m", group="g")`. If the connection is lost
        it is sent once more, and makes one job. With an `idempotency_key` of your own you can do the same: within a day
        it makes one job, whoever repeats the call."""
        return self._made(self._line.run(calls.enqueue(name, args, idempotency_key, settings)))

    async def aenqueue(
        self,
        name: str,
        args: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        **settings: Unpack[CallOptions],
    ) -> Job:
        return self._made(await self._line.arun(calls.enqueue(name, args, idempotency_key, settings)))

    def enqueue_many(self, jobs: Iterable[NewJob], *, idempotency_key: str | None = None) -> list[Job]:
        """Enqueue many, of any tasks: `api.enqueue_many([{"task": "add", "args": {"a": 1}, "group": "g"}])`. Up to
        1,000 are stored all or none; more go in pieces of 1,000, and PartlyStored tells how far it went."""
        made = self._line.run(calls.enqueue_many(jobs, idempotency_key))
        return [self._made(one) for one in made]

    async def aenqueue_many(self, jobs: Iterable[NewJob], *, idempotency_key: str | None = None) -> list[Job]:
        made = await self._line.arun(calls.enqueue_many(jobs, idempotency_key))
        return [self._made(one) for one in made]

    # -- look and steer --------------------------------------------------------------------------------------------
    def get(self, job_id: str) -> Job:
        """Raises JobNotFound."""
        return self._line.run(once(get(job_path(job_id)), self._read))

    async def aget(self, job_id: str) -> Job:
        return await self._line.arun(once(get(job_path(job_id)), self._read))

    def jobs(
        self,
        *,
        state: State | str | Iterable[State | str] = (),
        limit: int = 50,
        before: str | None = None,
        **criteria: Unpack[Criteria],
    ) -> Page:
        """One page of jobs, newest first, of those that match all that is given: `queue`, `task`, `lane`, `group`,
        `tag`. Ask for the next with `before=page.next`."""
        return self._line.run(lists.listing(checked_states(state), limit, before, **criteria))

    async def ajobs(
        self,
        *,
        state: State | str | Iterable[State | str] = (),
        limit: int = 50,
        before: str | None = None,
        **criteria: Unpack[Criteria],
    ) -> Page:
        return await self._line.arun(lists.listing(checked_states(state), limit, before, **criteria))

    def group(self, name: str) -> Group:
        """The jobs that were enqueued with `group=name`: their status, and the verbs on all of them."""
        return Group(name, self._line)

    def stop(self, **requested: Unpack[StopOptions]) -> StopReport:
        """Stop every job that matches all that is given: `group`, `queue`, `tasks`, `lane`, `tags` (all of them), or
        `everything=True`. What does not run is cancelled at once. Running jobs: `mode="graceful"` lets them end without
        another try and waits for them up to `wait` (30 s); `"immediate"` tells them to stop and returns; `"full"`
        tells them and waits. `dry_run` changes nothing. `hold=True`, for whole groups, refuses new jobs until
        `api.group(name).release()`. `reason` stands in the history."""
        return self._line.run(stopping(StopRequest(**requested)))

    async def astop(self, **requested: Unpack[StopOptions]) -> StopReport:
        return await self._line.arun(stopping(StopRequest(**requested)))

    def count(self) -> dict[State, int]:
        """Jobs by state, each counted up to 10,000."""
        return self._line.run(once(get("/v1/count"), decode.count))

    async def acount(self) -> dict[State, int]:
        return await self._line.arun(once(get("/v1/count"), decode.count))

    # -- lists -----------------------------------------------------------------------------------------------------
    def audit(
        self,
        *,
        actor: str | None = None,
        verb: str | None = None,
        target: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> AuditPage:
        """One page of what operators have done, and were refused, newest first: who, what (`verb="queue.pause"`), to
        what (a job's id, a queue's name), when and how it ended. Ask for the next with `cursor=page.next`."""
        return self._line.run(lists.audit(limit, cursor, actor=actor, verb=verb, target=target))

    async def aaudit(
        self,
        *,
        actor: str | None = None,
        verb: str | None = None,
        target: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> AuditPage:
        return await self._line.arun(lists.audit(limit, cursor, actor=actor, verb=verb, target=target))

    def groups(
        self, *, state: GroupState | None = None, limit: int = 50, cursor: str | None = None
    ) -> GroupPage:
        """One page of groups by name: state, live and all jobs, last stop. Ask for the next with `cursor=page.next`."""
        return self._line.run(lists.groups(state, limit, cursor))

    async def agroups(
        self, *, state: GroupState | None = None, limit: int = 50, cursor: str | None = None
    ) -> GroupPage:
        return await self._line.arun(lists.groups(state, limit, cursor))

    def budgets(
        self, *, scope: BudgetOwner | None = None, limit: int = 50, cursor: str | None = None
    ) -> BudgetPage:
        """One page of budgets, those of groups first, then those of jobs that have spent something or were topped up:
        what may be spent and what was, by unit. Ask for the next with `cursor=page.next`."""
        return self._line.run(lists.budgets(scope, limit, cursor))

    async def abudgets(
        self, *, scope: BudgetOwner | None = None, limit: int = 50, cursor: str | None = None
    ) -> BudgetPage:
        return await self._line.arun(lists.budgets(scope, limit, cursor))

    def leases(self, *, worker: str | None = None, limit: int = 50, cursor: str | None = None) -> LeasePage:
        """One page of the jobs that run, in the order in which they came: who holds each, since when, and when that
        runs out; of one worker, or of all. Ask for the next with `cursor=page.next`."""
        return self._line.run(lists.leases(worker, limit, cursor))

    async def aleases(
        self, *, worker: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> LeasePage:
        return await self._line.arun(lists.leases(worker, limit, cursor))

    def executions(self, limit: int = 500) -> list[ExecutionRow]:
        """Commands and containers that are running, and who watches them; nobody watches orphans. Oldest first."""
        return self._line.run(lists.executions(limit))

    async def aexecutions(self, limit: int = 500) -> list[ExecutionRow]:
        return await self._line.arun(lists.executions(limit))

    def workers(self) -> list[WorkerCard]:
        """Who works there, as each worker last said of itself."""
        return self._line.run(once(get("/v1/workers"), decode.workers))

    async def aworkers(self) -> list[WorkerCard]:
        return await self._line.arun(once(get("/v1/workers"), decode.workers))

    def _made(self, made: Made) -> Job:
        return Job(made.id, self._line, created=made.created)

    def _read(self, answer: Answer) -> Job:
        row = decode.job(answer)
        return Job(row.id, self._line, row)


class Tenant(View):
    """One tenant of the server: `acme = api.tenant("acme")`."""

    @property
    def name(self) -> str:
        """The tenant's name."""
        return self._line.tenant or ""

    def __repr__(self) -> str:
        return f"<Tenant {self.name}>"
