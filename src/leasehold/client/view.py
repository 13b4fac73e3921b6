"""The jobs of one store, as users see and steer them, wherever they are: in a database here, or behind a server."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Unpack

from leasehold.client.aio import aio
from leasehold.client.bulk import Bulk
from leasehold.client.group import Group
from leasehold.client.job import FindTask, Job
from leasehold.client.limits import Rates, Slots
from leasehold.client.questions import Questions
from leasehold.client.queues import Lanes, Queues, Tasks
from leasehold.client.schedules import RunSchedule, Schedules
from leasehold.domain.audit import AuditPage
from leasehold.domain.budgets import BudgetOwner, BudgetPage
from leasehold.domain.checks.states import checked_states
from leasehold.domain.groups import GroupPage, GroupState
from leasehold.domain.leases import LeasePage
from leasehold.domain.records import Criteria, ExecutionRow, Page, WorkerCard
from leasehold.domain.states import State
from leasehold.domain.stop import StopOptions, StopReport, StopRequest
from leasehold.domain.task_cards import TaskCard
from leasehold.operations import audit, budgets, groups, jobs, workers
from leasehold.operations.local import Operator


class View:
    """What `Leasehold`, `Remote` and their tenants have in common."""

    def __init__(
        self,
        operator: Operator,
        find_task: FindTask,
        task_cards: Callable[[], list[TaskCard]],
        run_schedule: RunSchedule,
    ) -> None:
        self._operator = operator
        self._find_task = find_task
        self.bulk = Bulk(operator)
        self.queues = Queues(operator)
        self.tasks = Tasks(operator, task_cards)
        self.lanes = Lanes(operator, find_task)
        self.slots = Slots(operator)
        self.rates = Rates(operator)
        self.questions = Questions(operator, find_task)
        self.schedules = Schedules(operator, find_task, run_schedule)

    def get(self, job_id: str) -> Job[Any]:
        """The job with this id. Raises JobNotFound."""
        row = self._operator.call(jobs.get, job_id)
        return Job(row.id, self._operator, self._find_task, row)

    aget = aio(get)

    def jobs(
        self,
        *,
        state: State | str | Iterable[State | str] = (),
        limit: int = 50,
        cursor: str | None = None,
        **criteria: Unpack[Criteria],
    ) -> Page:
        """One page of jobs, newest first, of those that match all that is given: `queue`, `task`, `lane`, `group`,
        `tag`. Ask for the next with `cursor=page.next`."""
        states = list(checked_states(state))
        return self._operator.call(jobs.list_jobs, state=states, limit=limit, cursor=cursor, **criteria)

    ajobs = aio(jobs)

    def group(self, name: str) -> Group:
        """The jobs that were enqueued with `group=name`: their status, and the verbs on all of them."""
        return Group(name, self._operator)

    def stop(self, **requested: Unpack[StopOptions]) -> StopReport:
        """Stop every job that matches all that is given: `group`, `queue`, `tasks`, `lane`, `tags` (all of them), or
        `everything=True`. What does not run is cancelled at once. Running jobs: `mode="graceful"` lets them end without
        another try and waits for them up to `wait` (30 s); `"immediate"` tells them to stop and returns; `"full"`
        tells them and waits. `dry_run` changes nothing. `hold=True`, for whole groups, refuses new jobs until
        `app.group(name).release()`. `reason` and `actor` stand in the history."""
        return self._operator.stop(StopRequest(**requested))

    async def astop(self, **requested: Unpack[StopOptions]) -> StopReport:
        return await self._operator.astop(StopRequest(**requested))

    def count(self) -> dict[State, int]:
        """Jobs by state, each counted up to 10,000."""
        return self._operator.call(jobs.count)

    acount = aio(count)

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
        return self._operator.call(
            audit.list_audit, actor=actor, verb=verb, target=target, limit=limit, cursor=cursor
        )

    aaudit = aio(audit)

    def groups(
        self, *, state: GroupState | None = None, limit: int = 50, cursor: str | None = None
    ) -> GroupPage:
        """One page of groups by name: state, live and all jobs, last stop. Ask for the next with `cursor=page.next`."""
        return self._operator.call(groups.list_groups, state, limit, cursor)

    agroups = aio(groups)

    def budgets(
        self, *, scope: BudgetOwner | None = None, limit: int = 50, cursor: str | None = None
    ) -> BudgetPage:
        """One page of budgets, those of groups first, then those of jobs that have spent something or were topped up:
        what may be spent and what was, by unit. Ask for the next with `cursor=page.next`."""
        return self._operator.call(budgets.list_budgets, scope, limit, cursor)

    abudgets = aio(budgets)

    def workers(self) -> list[WorkerCard]:
        """Who works here, as each worker last said of itself."""
        return self._operator.call(workers.list_workers)

    aworkers = aio(workers)

    def leases(self, *, worker: str | None = None, limit: int = 50, cursor: str | None = None) -> LeasePage:
        """One page of the jobs that run, in the order in which they came: who holds each, since when, and when that
        runs out; of one worker, or of all. Ask for the next with `cursor=page.next`."""
        return self._operator.call(workers.list_leases, worker, limit, cursor)

    aleases = aio(leases)

    def executions(self, limit: int = 500) -> list[ExecutionRow]:
        """Commands and containers that are running, and who watches them; nobody watches orphans. Oldest first."""
        return self._operator.call(workers.list_executions, limit)

    aexecutions = aio(executions)
