"""`@app.task(…)`, `@app.command(…)` and `@app.schedule(…)`: the decorators, with the types of the tasks that they
make."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from leasehold.client.job import Job
from leasehold.tasks.definition import AsyncHandlerContext, SyncHandlerContext
from leasehold.tasks.task import Task

A = TypeVar("A", bound=AsyncHandlerContext)
S = TypeVar("S", bound=SyncHandlerContext)
P = ParamSpec("P")
R = TypeVar("R")

T = TypeVar("T", bound=Task[..., ..., Any, Any])

Add = Callable[[Callable[..., Any], str | None, Mapping[str, Any]], Task[..., ..., Any, Any]]


class Register:
    """`@app.task(…)`: registers a function with these settings."""

    def __init__(self, add: Add, name: str | None, settings: Mapping[str, Any]) -> None:
        self._add = add
        self._name = name
        self._settings = settings

    @overload
    def __call__(
        self, function: Callable[Concatenate[A, P], Coroutine[Any, Any, R]]
    ) -> Task[Concatenate[A, P], P, Coroutine[Any, Any, R], Job[R]]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[S, P], R]) -> Task[Concatenate[S, P], P, R, Job[R]]: ...

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]]
    ) -> Task[P, P, Coroutine[Any, Any, R], Job[R]]: ...

    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, P, R, Job[R]]: ...

    def __call__(self, function: Any) -> Any:
        return self._add(function, self._name, self._settings)


class RegisterSchedule:
    """`@app.schedule(…)`: schedules a task, or a function, which becomes a task with default settings."""

    def __init__(self, add: Callable[[Any], Task[..., ..., Any, Any]]) -> None:
        self._add = add

    @overload
    def __call__(self, function: T) -> T: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[A, P], Coroutine[Any, Any, R]]
    ) -> Task[Concatenate[A, P], P, Coroutine[Any, Any, R], Job[R]]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[S, P], R]) -> Task[Concatenate[S, P], P, R, Job[R]]: ...

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]]
    ) -> Task[P, P, Coroutine[Any, Any, R], Job[R]]: ...

    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, P, R, Job[R]]: ...

    def __call__(self, function: Any) -> Any:
        return self._add(function)


class RegisterExternal:
    """`@app.command(…)`, `@app.container(…)` and `@app.external(…)`: register a function that returns what to run."""

    def __init__(self, add: Callable[[Callable[..., Any]], Task[..., ..., Any, Any]]) -> None:
        self._add = add

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]]
    ) -> Task[P, P, Coroutine[Any, Any, R], Job[Any]]: ...

    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, P, R, Job[Any]]: ...

    def __call__(self, function: Any) -> Any:
        return self._add(function)
