"""The jobs of one store, as users see and steer them: the app's own, or those of one tenant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, ParamSpec, TypeVar, Unpack

from leasehold.client.aio import aio
from leasehold.client.job import Job
from leasehold.client.run_by_id import RunResult
from leasehold.client.schedules import AppSchedules
from leasehold.client.view import View
from leasehold.domain.checks.durations import Duration, seconds
from leasehold.domain.checks.states import checked_states
from leasehold.domain.metrics import Metrics
from leasehold.domain.records import Criteria, Filter, Reaped
from leasehold.domain.retention import Keep, PruneChoice, PruneReport
from leasehold.domain.run_by_id import NotRun
from leasehold.domain.search import Search, SearchPage
from leasehold.domain.states import State
from leasehold.tasks.call import Bindable
from leasehold.tasks.flows import Chain, Dag
from leasehold.tasks.options import CallOptions
from leasehold.tasks.task import Task
from leasehold.threads import to_thread
from leasehold.wiring import Internals

P = ParamSpec("P")
R = TypeVar("R")


class AppView(View):
    """What `app` and `app.tenant(name)` have in common, beside what they share with `leasehold.remote`."""

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
        """Enqueue a registered task by its name. `settings` are those of `.using()`."""
        return self.__internals__.named_task(name, settings).enqueue_many([args or {}])[0]

    async def aenqueue(
        self, name: str, args: Mapping[str, Any] | None = None, **settings: Unpack[CallOptions]
    ) -> Job[Any]:
        return (await self.__internals__.named_task(name, settings).aenqueue_many([args or {}]))[0]

    def chain(self, *calls: Bindable[[], Any]) -> Chain[Job[Any]]:
        """Calls that run one after the other: `app.chain(load.bind(day), clean, report).enqueue()`. Each waits for
        the success of the one before it, whose result it finds in `ctx.results()`."""
        return Chain(calls, self.__internals__.enqueue)

    def dag(self) -> Dag[Job[Any]]:
        """A builder for calls that wait for each other by name."""
        return Dag(self.__internals__.enqueue)

    # -- run at once -----------------------------------------------------------------------------------------------
    def run_now(self, task: Task[..., P, Any, Job[R]], /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Start a job in this process at once if fewer than the task's `max_running` run anywhere, else raise
        AtCapacity, with the holders and a hint when to ask again. `app.run_now(research.using(max_running=4), "t1")`.
        Returns the job as soon as it has begun; `job.result(timeout)` waits for it."""
        if (tenant := self.__internals__.tenant) is not None:
            task = task.using(tenant=tenant)
        return task.run_now(*args, **kwargs)

    async def arun_now(self, task: Task[..., P, Any, Job[R]], /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        return await to_thread(self.run_now, task, *args, **kwargs)

    def run_by_id(self, job_id: str, *, worker: str | None = None, wait: Duration = 0) -> RunResult | NotRun:
        """Run a stored job in this process: for ids that are delivered by another queue (RQ, SQS …).
        Claims exactly this job, whatever its queue, runs it with all that a worker gives, and returns when the database
        has its ending: `RunResult(job, retry_in)`. Else `NotRun(job_id, state, why, retry_in)`, and the job is as it
        was. `retry_in` is None when the message is done with, else the seconds to come back after.

        `wait`: how long to ask again while it may still become free, such as a lease whose worker is dead. `worker` is
        the name of the holder; no other process may use that name at the same time."""
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
        """One page of jobs, newest first, like `jobs`, that were created in that time and have this text in their
        arguments (as JSON) or in their error, whatever its case; never in sensitive arguments. A page looks into at
        most 10,000 jobs and says how many (`looked`); it may be empty and still have a `next`: ask for more with
        `cursor=found.next`."""
        search = Search(Filter(checked_states(state), **criteria), text, since, until)
        return self.__internals__.operations.search_jobs(search, limit, cursor)

    asearch = aio(search)

    def metrics(self) -> Metrics:
        """How runs have ended since the beginning, how long jobs waited and ran; and what there is now: jobs by
        state, the oldest ones, leases, workers, slots, open questions. What `GET /metrics` tells."""
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
        """Delete jobs that ended longer ago than this, or than their task's own `retention` says; with `override` that
        does not count. Never what halts a lane, is awaited, or belongs to a group that still lives. What holds a unique
        key for good goes only with `unique_for_ever`, groups with a limit but without jobs only with `budgets`.
        `dry_run` only counts."""
        return self.__internals__.operations.prune(
            older_than, PruneChoice(dry_run, override, unique_for_ever, budgets), actor=actor
        )

    aprune = aio(prune)

    def sweep(self, wait: Duration | None = None) -> list[Reaped]:
        """One sweep now, as every worker makes them: takes over jobs whose lease was missed, ends jobs and questions
        whose time is over. A missed lease is looked at twice, a third of its length apart: `sweep` waits for that, at
        most `wait` long. With `wait=0` it looks once, and the next call is the second look. Gives back what was taken
        over."""
        return self.__internals__.sweep(None if wait is None else seconds(wait, "wait"))

    asweep = aio(sweep)


class Tenant(AppView):
    """One tenant: the same tasks, and jobs of its own. `acme = app.tenant("acme")`."""

    @property
    def name(self) -> str:
        """The tenant's name."""
        return self.__internals__.tenant or ""

    def __repr__(self) -> str:
        return f"<Tenant {self.name}>"
