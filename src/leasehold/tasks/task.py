"""The task object that `@app.task` makes: callable like the function, and able to enqueue it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, ParamSpec, TypeVar, Unpack

from leasehold.domain.checks.texts import checked_tenant
from leasehold.domain.errors import InvalidInput
from leasehold.domain.job import MOST_INSERTED
from leasehold.tasks.blueprint import Blueprint, checked_parents
from leasehold.tasks.call import Call, J, Plan, Producer
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
from leasehold.threads import to_thread

F = ParamSpec("F")
"""The parameters of the function: its context, if it has one, and the task's arguments."""
P = ParamSpec("P")
"""The task's arguments."""
C = TypeVar("C")

_TASK_ONLY = frozenset(
    {"queueing", "mirror", "sensitive", "retention", "run_in", "memory", "cpu_time", "expose"}
)


class Task(Generic[F, P, C, J]):
    """A registered task. Calling it calls the plain function; `enqueue` takes only the task's arguments, `using`
    changes settings."""

    def __init__(
        self,
        definition: TaskDefinition,
        producer: Producer[J],
        settings: TaskSettings | None = None,
        call: CallSettings | None = None,
        said: frozenset[str] = frozenset(),
    ) -> None:
        self._definition = definition
        self._producer = producer
        self._settings = settings or definition.settings
        self._call = call or CallSettings()
        self._said = said
        """Names of the settings that were given to `using`."""
        functools.update_wrapper(self, definition.function)

    @property
    def name(self) -> str:
        """The name of the task in the database."""
        return self._definition.name

    def __refuse_using__(self, what: str) -> None:
        """Raises if `using` was called: a schedule, for example, enqueues with the settings of the task alone."""
        if self._said:
            raise InvalidInput(
                min(self._said),
                f"was given to .using(), and {what} with the settings of the task alone",
                "say it in @app.task(…), if need be of a second task that calls the same function",
            )

    @functools.cached_property
    def _blueprint(self) -> Blueprint:
        if self._call.key is not None:
            raise InvalidInput(
                "key", "names a follow-up", "leave it out, or ask for the job with ctx.enqueue"
            )
        return Blueprint(self._definition, self._settings, self._call)

    def __call__(self, *args: F.args, **kwargs: F.kwargs) -> C:
        answer: C = self._definition.function(*args, **kwargs)
        return answer

    def using(self, **settings: Unpack[CallOptions]) -> Task[F, P, C, J]:
        """Return the same task with other settings for the next calls: delay, at, hold, group, trace, after, and those
        of `@app.task` (priority, queue, lane, unique, tags, retry, …). With `tx`, your own connection, jobs are stored
        in its open transaction: with its commit, or not at all. `tenant`: the tenant that gets the jobs."""
        known = (OF_TASK | CALL_ONLY | {"tenant"}) - _TASK_ONLY
        unknown = sorted(settings.keys() - known)
        if unknown:
            listed = ", ".join(sorted(known))
            raise InvalidInput(unknown[0], "is not a setting of a call", f"known: {listed}")
        call: dict[str, Any] = {name: value for name, value in settings.items() if name in CALL_ONLY}
        own = {name: value for name, value in settings.items() if name in OF_TASK}
        if "after" in call:
            call["after"] = checked_parents(settings["after"])
        if "tx" in call and call["tx"] is None:
            raise InvalidInput(
                "tx", "is None", "give your connection, or leave it out: then it is stored at once"
            )
        if "on_parent_failure" in call:
            call["on_parent_failure"] = checked_on_parent_failure(settings["on_parent_failure"])
        changed = self._definition.check_settings(self._settings.changed(own)) if own else self._settings
        producer = self._producer
        if "tenant" in settings:
            tenant = settings["tenant"]
            producer = producer.of_tenant(None if tenant is None else checked_tenant(tenant))
        said = self._said | settings.keys()
        return Task(self._definition, producer, changed, replace(self._call, **call), said)

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Call[J]:
        """Return the call with these arguments, to be made later: in a chain, in a DAG, as a follow-up."""
        arguments = self._definition.bind(args, kwargs)
        return Call(Plan(self._definition, self._settings, self._call, arguments, self._producer))

    def __bind_named__(self, arguments: Mapping[str, Any]) -> Call[J]:
        """Bind arguments by name, as a request has them; they are checked when the job is made."""
        return Call(Plan(self._definition, self._settings, self._call, arguments, self._producer))

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> J:
        """Store a job; it is durable when this returns. With `using(tx=…)`, when your transaction is committed."""
        jobs = self._blueprint.make([self._definition.bind(args, kwargs)])
        if self._call.tx is not None:
            return self._producer.enqueue_within(self._call.tx, [jobs])[0]
        return self._producer.enqueue(jobs)[0]

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> J:
        if self._call.tx is not None:
            jobs = self._blueprint.make([self._definition.bind(args, kwargs)])
            return (await self._producer.aenqueue_within(self._call.tx, [jobs]))[0]
        return await to_thread(self.enqueue, *args, **kwargs)

    def enqueue_many(self, args: Iterable[Mapping[str, Any]]) -> Sequence[J]:
        """Store many jobs, up to 5,000 in one transaction: all or none. More are stored in order, 5,000 at a time, as
        they are taken from `args`, which may be a generator of any length; an error after the first 5,000 raises
        PartlyStored, which says how many are stored."""
        pieces = map(self._blueprint.make, _pieces(args))
        if self._call.tx is not None:
            return self._producer.enqueue_within(self._call.tx, pieces)
        return self._producer.enqueue_pieces(pieces)

    async def aenqueue_many(self, args: Iterable[Mapping[str, Any]]) -> Sequence[J]:
        if self._call.tx is not None:
            pieces = map(self._blueprint.make, _pieces(args))
            return await self._producer.aenqueue_within(self._call.tx, pieces)
        return await to_thread(self.enqueue_many, args)

    def run_now(self, *args: P.args, **kwargs: P.kwargs) -> J:
        """See `app.run_now`."""
        arguments = self._definition.bind(args, kwargs)
        max_running = checked_max_running(self.name, self._settings, self._call)
        (job,) = Blueprint(self._definition, self._settings, self._call, at_once=True).make([arguments])
        return self._producer.run_now(job, max_running)

    async def arun_now(self, *args: P.args, **kwargs: P.kwargs) -> J:
        return await to_thread(self.run_now, *args, **kwargs)


def _pieces(args: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    remedy = "give a list, or a generator, of the arguments of each job: [{'n': 1}, {'n': 2}]"
    if isinstance(args, Mapping) or not isinstance(args, Iterable):
        raise InvalidInput("args", f"{type(args).__name__} is not a list of arguments", remedy)
    calls = iter(args)
    while piece := list(itertools.islice(calls, MOST_INSERTED)):
        for call in piece:
            if type(call) is not dict and not isinstance(call, Mapping):
                raise InvalidInput("args", f"{type(call).__name__} is not a mapping of arguments", remedy)
        yield piece
        del piece  # before the next piece is read: only one at a time is in memory
