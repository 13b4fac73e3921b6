"""A task together with its arguments and settings: a call that has not been made yet."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

from leasehold.client.job import Job, StoreJobs
from leasehold.domain.job import NewJob
from leasehold.tasks.blueprint import Blueprint, CallSettings
from leasehold.tasks.definition import TaskDefinition, TaskSettings

R = TypeVar("R")


class Bound(Generic[R]):
    """What `task.bind(…)` gives: to be enqueued later, alone, in a chain, in a DAG, or as a follow-up."""

    def __init__(
        self,
        definition: TaskDefinition,
        settings: TaskSettings,
        call: CallSettings,
        arguments: Mapping[str, Any],
        store: StoreJobs,
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

    def bind(self) -> Bound[R]:
        """Itself: so that what takes a task without arguments takes this too."""
        return self

    def new_job(self, **changes: Any) -> NewJob:
        """What will be stored; wrong arguments are refused here."""
        (job,) = Blueprint(self._definition, self._settings, self._call).make([self._arguments])
        return replace(job, **changes) if changes else job

    def store(self, job: NewJob) -> Job[R]:
        return self._store([job])[0]

    def enqueue(self) -> Job[R]:
        """Store a job; it is durable when this returns."""
        return self.store(self.new_job())

    async def aenqueue(self) -> Job[R]:
        return await asyncio.to_thread(self.enqueue)
