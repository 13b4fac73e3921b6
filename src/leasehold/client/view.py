"""`View`: the reads and verbs on the jobs of one store, in a database here or behind a server."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Unpack

from leasehold.client.bulk import Bulk
from leasehold.client.group import Group
from leasehold.client.job import FindTask, Job, Questions
from leasehold.client.queues import Lanes, Queues, Rates, Slots, Tasks
from leasehold.client.schedules import RunSchedule, Schedules
from leasehold.domain.audit import AuditPage
from leasehold.domain.budgets import BudgetOwner, BudgetPage
from leasehold.domain.groups import GroupPage, GroupState
from leasehold.domain.records import Criteria, ExecutionRow, LeasePage, Page, TaskCard, WorkerCard
from leasehold.domain.states import State, checked_states
from leasehold.domain.stop import StopOptions, StopReport, StopRequest
from leasehold.operations import audit, budgets, groups, jobs, workers
from leasehold.operations.local import Operator
from leasehold.threads import aio


class View:
    """Base of `Leasehold`, `Remote` and their tenants."""

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
        """Return the job with this id. Raises JobNotFound."""
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
        """Return one page of jobs, newest first, that match all filters given: `queue`, `task`, `lane`, `group`, `tag`.
        The next page: `cursor=page.next`."""
        states = list(checked_states(state))
        return self._operator.call(jobs.list_jobs, state=states, limit=limit, cursor=cursor, **criteria)

    ajobs = aio(jobs)

    def group(self, name: str) -> Group:
        """Return the handle of a group: the jobs that were enqueued with `group=name`. Reads nothing."""
        return Group(name, self._operator)

    def stop(self, **requested: Unpack[StopOptions]) -> StopReport:
        """Stop every job that matches all filters given: `group`, `queue`, `tasks`, `lane`, `tags` (all of them), or
        `everything=True`. Jobs that do not run are cancelled at once. Running jobs: `mode="graceful"` lets their
        attempt end, without a retry, and waits up to `wait` (30 s); `"immediate"` requests their stop and returns;
        `"full"` requests it and waits. `dry_run` changes nothing. `hold=True`, for whole groups, refuses new jobs until
        `app.group(name).release()`. The history keeps `reason` and `actor`."""
        return self._operator.stop(StopRequest(**requested))

    async def astop(self, **requested: Unpack[StopOptions]) -> StopReport:
        return await self._operator.astop(StopRequest(**requested))

    def count(self) -> dict[State, int]:
        """Count jobs by state, each up to 10,000."""
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
        """Return one page of the audit, newest first: who did, or tried, what (`verb="queue.pause"`), to what (a job's
        id, a queue's name), when and how it ended. The next page: `cursor=page.next`."""
        return self._operator.call(
            audit.list_audit, actor=actor, verb=verb, target=target, limit=limit, cursor=cursor
        )

    aaudit = aio(audit)

    def groups(
        self, *, state: GroupState | None = None, limit: int = 50, cursor: str | None = None
    ) -> GroupPage:
        """Return one page of groups by name: state, live and all jobs, last stop. The next page: `cursor=page.next`."""
        return self._operator.call(groups.list_groups, state, limit, cursor)

    agroups = aio(groups)

    def budgets(
        self, *, scope: BudgetOwner | None = None, limit: int = 50, cursor: str | None = None
    ) -> BudgetPage:
        """Return one page of budgets, first of groups, then of jobs that have spent something or were topped up:
        limits and spending, by unit. The next page: `cursor=page.next`."""
        return self._operator.call(budgets.list_budgets, scope, limit, cursor)

    abudgets = aio(budgets)

    def workers(self) -> list[WorkerCard]:
        """List live workers, as each last reported."""
        return self._operator.call(workers.list_workers)

    aworkers = aio(workers)

    def leases(self, *, worker: str | None = None, limit: int = 50, cursor: str | None = None) -> LeasePage:
        """Return one page of leases, of one worker or of all, oldest job first: which worker runs which job, since
        when, and when the lease runs out. The next page: `cursor=page.next`."""
        return self._operator.call(workers.list_leases, worker, limit, cursor)

    aleases = aio(leases)

    def executions(self, limit: int = 500) -> list[ExecutionRow]:
        """List running commands and containers, oldest first, and the worker that watches each, if any."""
        return self._operator.call(workers.list_executions, limit)

    aexecutions = aio(executions)
