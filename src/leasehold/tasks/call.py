"""A task together with its arguments and settings: a call that has not been made yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from leasehold.domain.job import NewJob
from leasehold.tasks.blueprint import Blueprint, HasId
from leasehold.tasks.definition import TaskDefinition
from leasehold.tasks.settings import CallSettings, TaskSettings

P = ParamSpec("P")
J = TypeVar("J", bound=HasId)
"""What enqueueing gives: the handle of the stored job."""
StoreJobs = Callable[[Sequence[NewJob]], list[J]]


class Bindable(Protocol[P, J]):
    """A task, or a task with its arguments."""

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Bound[J]: ...


class Bound(Generic[J]):
    """What `task.bind(…)` gives: to be enqueued later, alone, in a chain, in a DAG, or as a follow-up."""

    def __init__(
        self,
        definition: TaskDefinition,
        settings: TaskSettings,
        call: CallSettings,
        arguments: Mapping[str, Any],
        store: StoreJobs[J],
    ) -> None:
        self._definition = definition
        self._settings = settings
        self._call = call
        self._arguments = arguments
        self._store = store

    def __repr__(self) -> str:
        return f"<Bound {self.name}>"

    @property
    def name(self) -> str:
        return self._definition.name

    @property
    def call(self) -> CallSettings:
        return self._call

    def bind(self) -> Bound[J]:
        """Itself: so that what takes a task without arguments takes this too."""
        return self

    def new_job(self, **changes: Any) -> NewJob:
        """What will be stored; wrong arguments are refused here."""
        (job,) = Blueprint(self._definition, self._settings, self._call).make([self._arguments])
        return replace(job, **changes) if changes else job

    def store(self, job: NewJob) -> J:
        return self._store([job])[0]

    def enqueue(self) -> J:
        """Store a job; it is durable when this returns."""
        return self.store(self.new_job())

    async def aenqueue(self) -> J:
        return await asyncio.to_thread(self.enqueue)
