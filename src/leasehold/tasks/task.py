"""What `@app.task` makes of a function: still the function, and a way to call it later."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, Generic, ParamSpec, TypeVar, Unpack

from leasehold.domain.errors import InvalidInput
from leasehold.domain.job import NewJob
from leasehold.tasks.blueprint import Blueprint, checked_parents
from leasehold.tasks.call import Call, J, Plan, StoreJobs
from leasehold.tasks.definition import TaskDefinition
from leasehold.tasks.settings import (
    CALL_ONLY,
    OF_TASK,
    CallOptions,
    CallSettings,
    TaskSettings,
    checked_max_running,
    checked_on_parent_failure,
)

F = ParamSpec("F")
"""What the function takes: its context, if it has one, and the task's arguments."""
P = ParamSpec("P")
"""The task's arguments."""
C = TypeVar("C")

RunNow = Callable[[NewJob, int], J]

_TASK_ONLY = frozenset({"queueing"})


class Task(Generic[F, P, C, J]):
    """A registered task. Still the plain function when called; `enqueue` takes the task's own arguments and nothing
    else, `using` says how."""

    def __init__(
        self,
        definition: TaskDefinition,
        store: StoreJobs[J],
        run_now: RunNow[J],
        settings: TaskSettings | None = None,
        call: CallSettings | None = None,
    ) -> None:
        self._definition = definition
        self._store = store
        self._run_now = run_now
        self._settings = settings or definition.settings
        self._call = call or CallSettings()
        functools.update_wrapper(self, definition.function)

    @property
    def name(self) -> str:
        return self._definition.name

    @functools.cached_property
    def _blueprint(self) -> Blueprint:
        return Blueprint(self._definition, self._settings, self._call)

    def __call__(self, *args: F.args, **kwargs: F.kwargs) -> C:
        answer: C = self._definition.function(*args, **kwargs)
        return answer

    def using(self, **settings: Unpack[CallOptions]) -> Task[F, P, C, J]:
        """The same task with other settings for the calls that follow: delay, at, hold, group, trace, after, and
        those of `@app.task` (priority, queue, lane, unique, tags, retry, …)."""
        known = (OF_TASK | CALL_ONLY) - _TASK_ONLY
        unknown = sorted(settings.keys() - known)
        if unknown:
            listed = ", ".join(sorted(known))
            raise InvalidInput(unknown[0], "is not a setting of a call", f"known: {listed}")
        call = {name: value for name, value in settings.items() if name in CALL_ONLY}
        own = {name: value for name, value in settings.items() if name in OF_TASK}
        if "after" in call:
            call["after"] = checked_parents(settings["after"])
        if "on_parent_failure" in call:
            call["on_parent_failure"] = checked_on_parent_failure(settings["on_parent_failure"])
        changed = self._definition.check_settings(self._settings.changed(own)) if own else self._settings
        return Task(self._definition, self._store, self._run_now, changed, _merged(self._call, call))

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Call[J]:
        """The call with these arguments, to be made later: in a chain, in a DAG, as a follow-up."""
        arguments = self._definition.bind(args, kwargs)
        return Call(Plan(self._definition, self._settings, self._call, arguments, self._store))

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> J:
        """Store a job; it is durable when this returns."""
        return self.enqueue_many([self._definition.bind(args, kwargs)])[0]

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> J:
        return await asyncio.to_thread(self.enqueue, *args, **kwargs)

    def enqueue_many(self, args: Iterable[Mapping[str, Any]]) -> list[J]:
        """Store many jobs in one transaction: all or none."""
        return self._store(self._blueprint.make(list(args)))

    async def aenqueue_many(self, args: Iterable[Mapping[str, Any]]) -> list[J]:
        return await asyncio.to_thread(self.enqueue_many, args)

    def run_now(self, *args: P.args, **kwargs: P.kwargs) -> J:
        """As `app.run_now`."""
        arguments = self._definition.bind(args, kwargs)
        max_running = checked_max_running(self.name, self._settings, self._call)
        (job,) = Blueprint(self._definition, self._settings, self._call, at_once=True).make([arguments])
        return self._run_now(job, max_running)

    async def arun_now(self, *args: P.args, **kwargs: P.kwargs) -> J:
        return await asyncio.to_thread(self.run_now, *args, **kwargs)


def _merged(call: CallSettings, changes: dict[str, Any]) -> CallSettings:
    return CallSettings(**{f.name: changes.get(f.name, getattr(call, f.name)) for f in fields(CallSettings)})
