"""Middleware: the user's functions around every attempt, for tracing and error reporting."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.domain.job import Grant
from leasehold.run.state import current_run
from leasehold.tasks.definition import TaskDefinition

M = TypeVar("M", bound=Callable[..., Any])


@frozen
class Run:
    """One attempt, as middleware sees it."""

    job_id: str
    task: str
    queue: str
    attempt: int
    args: dict[str, Any]
    """The arguments as the handler gets them, without its context."""
    lane: str | None
    group: str | None
    trace: str | None
    """The trace given with `.using(trace=…)`."""


class Middlewares:
    """Middleware in the order of registration: the first is the outermost. Async functions wrap async tasks, plain ones
    wrap plain tasks."""

    def __init__(self) -> None:
        self._on_loop: list[Callable[..., Awaitable[Any]]] = []
        self._in_threads: list[Callable[..., Any]] = []

    def add(self, function: Callable[..., Any]) -> None:
        _check(function)
        (self._on_loop if _is_async(function) else self._in_threads).append(function)

    def apply_to(self, definition: TaskDefinition) -> None:
        """Wrap the task's function. Without middleware an attempt calls the function itself, at no cost."""
        if definition.in_process:
            # It wraps the function, so it runs in the function's process.
            definition.layers = list(self._on_loop if _is_async(definition.function) else self._in_threads)
            return
        if definition.is_async and self._on_loop:
            definition.handler = _around_async(definition, list(self._on_loop))
        elif not definition.is_async and self._in_threads:
            definition.handler = _around_plain(definition, list(self._in_threads))


def _around_async(
    definition: TaskDefinition, layers: list[Callable[..., Awaitable[Any]]]
) -> Callable[..., Any]:
    async def handler(**arguments: Any) -> Any:
        return await _layered(definition, layers, arguments)()

    return handler


def _around_plain(definition: TaskDefinition, layers: list[Callable[..., Any]]) -> Callable[..., Any]:
    def handler(**arguments: Any) -> Any:
        return _layered(definition, layers, arguments)()

    return handler


def _layered(
    definition: TaskDefinition, layers: list[Callable[..., Any]], arguments: dict[str, Any]
) -> Callable[[], Any]:
    state = current_run.get()
    assert state is not None, "a handler is called by its run"
    shown = {name: value for name, value in arguments.items() if name != definition.context_parameter}
    run = _run_of(state.grant, shown)
    call: Callable[[], Any] = functools.partial(definition.inner, **arguments)
    for layer in reversed(layers):
        call = functools.partial(layer, run, call)
    return call


def _run_of(grant: Grant, args: dict[str, Any]) -> Run:
    return Run(
        job_id=grant.id,
        task=grant.task,
        queue=grant.queue,
        attempt=grant.attempt,
        args=args,
        lane=grant.lane,
        group=grant.group,
        trace=grant.trace,
    )


def _is_async(function: Callable[..., Any]) -> bool:
    """Return whether it is async; also for a callable object."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _check(function: object) -> None:
    remedy = "give a function of two: async def trace(run, call_next), or plain for plain tasks"
    if not callable(function):
        raise InvalidInput("middleware", f"{function!r} cannot be called", remedy)
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as error:
        raise InvalidInput(
            "middleware", f"{function!r} does not take a run and call_next ({error})", remedy
        ) from None
