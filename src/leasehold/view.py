"""`AppView`: the reads and verbs on the jobs of one store, the app's own or a tenant's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, ParamSpec, TypeVar, Unpack

from leasehold.client.job import Job
from leasehold.client.run_by_id import RunResult
from leasehold.client.schedules import AppSchedules
from leasehold.client.view import View
from leasehold.domain.checks.times import Duration, seconds
from leasehold.domain.metrics import Metrics
from leasehold.domain.records import Criteria, Filter, NotRun, Reaped
from leasehold.domain.retention import Keep, PruneChoice, PruneReport
from leasehold.domain.search import Search, SearchPage
from leasehold.domain.states import State, checked_states
from leasehold.tasks.call import Bindable, Chain, Dag
from leasehold.tasks.settings import CallOptions
from leasehold.tasks.task import Task
from leasehold.threads import aio, to_thread
from leasehold.wiring import Internals

P = ParamSpec("P")
R = TypeVar("R")


class AppView(View):
    """Base of `app` and `app.tenant(name)`: reads and verbs in addition to those of `leasehold.remote`."""

    schedules: AppSchedules

    def __init__(self, internals: Internals) -> None:
        self.__internals__ = internals
        """Not for users: see `wiring.py`."""
        run = internals.run_schedule
        super().__init__(internals.operations, internals.find_task, internals.tasks.cards, run)
        self.schedules = AppSchedules(internals.operations, internals.find_task, run, internals.tasks)

    # -- enqueue ---------------------------------------------------------------------------------------------------
    def enqueue(
        self, name: str, args: Mapping[str, Any] | None = None, **settings: Unpack[CallOptions]
    ) -> Job[Any]:
        """Enqueue a registered task by its name. `settings` are the arguments of `.using()`."""
        return self.__internals__.named_task(name, settings).enqueue_many([args or {}])[0]

    async def aenqueue(
        self, name: str, args: Mapping[str, Any] | None = None, **settings: Unpack[CallOptions]
    ) -> Job[Any]:
        return (await self.__internals__.named_task(name, settings).aenqueue_many([args or {}]))[0]

    def chain(self, *calls: Bindable[[], Any]) -> Chain[Job[Any]]:
        """Chain calls that run one after the other: `app.chain(load.bind(day), clean, report).enqueue()`. Each call
        waits for the success of the previous one and finds its result in `ctx.results()`."""
        return Chain(calls, self.__internals__.producer)

    def dag(self) -> Dag[Job[Any]]:
        """Make a builder for calls that wait for each other by name."""
        return Dag(self.__internals__.producer)

    # -- run at once -----------------------------------------------------------------------------------------------
    def run_now(self, task: Task[..., P, Any, Job[R]], /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Start a job in this process at once if fewer than the task's `max_running` run anywhere, else raise
        AtCapacity, with the running jobs and a hint when to try again. `app.run_now(research.using(max_running=4),
        "t1")`. Returns the job as soon as it runs; `job.result(timeout)` waits for its result."""
        if (tenant := self.__internals__.tenant) is not None:
            task = task.using(tenant=tenant)
        return task.run_now(*args, **kwargs)

    async def arun_now(self, task: Task[..., P, Any, Job[R]], /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        return await to_thread(self.run_now, task, *args, **kwargs)

    def run_by_id(self, job_id: str, *, worker: str | None = None, wait: Duration = 0) -> RunResult | NotRun:
        """Run a stored job in this process: for ids that another queue delivers (RQ, SQS …). The call claims exactly
        this job, from any queue, runs it as a worker would, and returns when its end is stored: `RunResult(job,
        retry_in)`. If the job cannot be claimed, it stays as it is and the call returns `NotRun(job_id, state, why,
        retry_in)`. `retry_in` is None if the message has done its work, else the seconds after which to deliver it
        again.

        `wait`: how long to try again while the job may still become free, such as when its worker is dead.
        `worker` is the name under which this process holds the lease; no other process may use that name at the same
        time."""
        return self.__internals__.by_id.run(job_id, worker, wait)

    async def arun_by_id(
        self, job_id: str, *, worker: str | None = None, wait: Duration = 0
    ) -> RunResult | NotRun:
        return await self.__internals__.by_id.run_async(job_id, worker, wait)

    # -- look and clean up -----------------------------------------------------------------------------------------
    def search(
        self,
        *,
        text: str | None = None,
        state: State | str | Iterable[State | str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
        **criteria: Unpack[Criteria],
    ) -> SearchPage:
        """Return one page of jobs, newest first, that were created from `since` to `until` and have this text in their
        arguments (as JSON) or in their error. Case does not matter; sensitive arguments are not searched. One page
        examines at most 10,000 jobs and says how many (`looked`); it may be empty and still have a `next`: continue
        with `cursor=found.next`."""
        search = Search(Filter(checked_states(state), **criteria), text, since, until)
        return self.__internals__.operations.search_jobs(search, limit, cursor)

    asearch = aio(search)

    def metrics(self) -> Metrics:
        """Return counts of how attempts ended and how long jobs waited and ran, since the store was created, and what
        exists now: jobs by state, the oldest due jobs, leases, workers, slots, open questions. `GET /metrics` shows the
        same."""
        return self.__internals__.operations.metrics()

    ametrics = aio(metrics)

    def prune(
        self,
        older_than: Keep = "7d",
        *,
        dry_run: bool = False,
        override: bool = False,
        unique_for_ever: bool = False,
        budgets: bool = False,
        actor: str | None = None,
    ) -> PruneReport:
        """Delete jobs that ended longer ago than `older_than`, or than their task's own `retention`, which `override`
        ignores. A job stays if it halts a lane, if another job waits for it, or if its group still has live jobs. Jobs
        that hold a unique key for ever are deleted only with `unique_for_ever`, groups with a budget but without jobs
        only with `budgets`. `dry_run` only counts."""
        return self.__internals__.operations.prune(
            older_than, PruneChoice(dry_run, override, unique_for_ever, budgets), actor=actor
        )

    aprune = aio(prune)

    def sweep(self, wait: Duration | None = None) -> list[Reaped]:
        """Make one sweep now, as every worker does regularly: end leases that were not renewed, and end jobs and
        questions whose time is over. A missed lease is checked twice, a third of its length apart: `sweep` waits for
        the second check, at most `wait` long. With `wait=0` it checks once, and the next call is the second check.
        Returns the jobs whose lease it ended."""
        return self.__internals__.sweep(None if wait is None else seconds(wait, "wait"))

    asweep = aio(sweep)


class Tenant(AppView):
    """One tenant: the app's tasks, and jobs of its own. `acme = app.tenant("acme")`."""

    @property
    def name(self) -> str:
        """The tenant's name."""
        return self.__internals__.tenant or ""

    def __repr__(self) -> str:
        return f"<Tenant {self.name}>"
