"""What a handler learns about its own run."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, ParamSpec

from leasehold.domain.job import Grant, NewJob
from leasehold.domain.signals import StopRequested
from leasehold.engine.follow_ups import Bindable, FollowUp, FollowUps
from leasehold.engine.parents import parents_of, results_of
from leasehold.stores.contract import Relative, Store

P = ParamSpec("P")


class RunFacts:
    """One run of one job. `stop_requested` is set from another thread when the run shall end."""

    _follow_ups: FollowUps | None = None
    """Made with the first: most runs have none."""

    def __init__(self, grant: Grant, resources: Any = None, store: Store | None = None) -> None:
        self._grant = grant
        self._store = store
        self._stopped = threading.Event()
        self.resources = resources
        """What the app's lifespan has yielded."""

    @property
    def job_id(self) -> str:
        return self._grant.id

    @property
    def kind(self) -> str:
        return self._grant.kind

    @property
    def queue(self) -> str:
        return self._grant.queue

    @property
    def attempt(self) -> int:
        """1 for the first run."""
        return self._grant.attempt

    @property
    def lease_token(self) -> int:
        """Names this lease and no other: a resource that remembers the highest token it has seen can refuse a run
        that has lost its lease."""
        return self._grant.token

    @property
    def lane(self) -> str | None:
        return self._grant.lane

    @property
    def group(self) -> str | None:
        return self._grant.group_name

    @property
    def stop_requested(self) -> bool:
        """The run shall end: cancelled, paused, drained, timed out, or its lease is lost."""
        return self._stopped.is_set()

    def raise_if_stopped(self) -> None:
        if self._stopped.is_set():
            raise StopRequested

    def _ask_for(self, task: Bindable[P], args: Any, kwargs: Any) -> FollowUp:
        if self._follow_ups is None:
            self._follow_ups = FollowUps()
        follow_up = FollowUp(self._grant.id, task.bind(*args, **kwargs), self._follow_ups)
        self._follow_ups.append(follow_up)
        return follow_up

    def _unstored(self) -> tuple[NewJob, ...]:
        """The follow-ups that go with the success."""
        return () if self._follow_ups is None else self._follow_ups.unstored()


class Context(RunFacts):
    """The context of an async handler."""

    def enqueue(self, task: Bindable[P], /, *args: P.args, **kwargs: P.kwargs) -> FollowUp:
        """Ask for a follow-up. It is stored with this job's success, in one transaction, and not at all if the job
        does not succeed. `task.using(now=True)` stores it when it is awaited: `await ctx.enqueue(…)`."""
        return self._ask_for(task, args, kwargs)

    async def results(self) -> dict[str, Any]:
        """What the jobs that this one waited for have returned, by their ids, in the order of `after`. Those that did
        not succeed are left out."""
        return await asyncio.to_thread(results_of, self._store, self._grant.id)

    async def parents(self) -> list[Relative]:
        """The jobs that this one waited for, with their states."""
        return await asyncio.to_thread(parents_of, self._store, self._grant.id)


class SyncContext(RunFacts):
    """The context of a plain handler, which runs in a thread."""

    def enqueue(self, task: Bindable[P], /, *args: P.args, **kwargs: P.kwargs) -> FollowUp:
        """Ask for a follow-up. It is stored with this job's success, in one transaction, and not at all if the job
        does not succeed. `task.using(now=True)` is stored before this returns."""
        follow_up = self._ask_for(task, args, kwargs)
        if follow_up.now:
            follow_up.store()
        return follow_up

    def results(self) -> dict[str, Any]:
        """What the jobs that this one waited for have returned, by their ids, in the order of `after`. Those that did
        not succeed are left out."""
        return results_of(self._store, self._grant.id)

    def parents(self) -> list[Relative]:
        """The jobs that this one waited for, with their states."""
        return parents_of(self._store, self._grant.id)

    def wait(self, seconds: float) -> None:
        """Sleep, but not longer than until a stop is requested; then raise."""
        self._stopped.wait(seconds)
        self.raise_if_stopped()
