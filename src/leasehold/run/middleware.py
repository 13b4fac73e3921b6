"""Wrappers around every attempt: the user's middleware, and the tracing span of `app.instrument`."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.domain.job import Grant
from leasehold.domain.outcome import Outcome, Success
from leasehold.domain.tracing import TracedEnding, TracedRun, Tracing, attempt_outcome
from leasehold.run.attempt import Attempt, Ended
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
        if definition.in_child_process:
            # Middleware wraps the function, so it runs in the function's process.
            definition.layers = list(self._on_loop if _is_async(definition.function) else self._in_threads)
            return
        if definition.runs_on_loop and self._on_loop:
            definition.handler = _around_async(definition, list(self._on_loop))
        elif not definition.runs_on_loop and self._in_threads:
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
    """Return whether the function, or the callable object, is async."""
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


# -- tracing -----------------------------------------------------------------------------------------------------------

logger = logging.getLogger("leasehold.worker")


async def run_traced(tracing: Tracing, run: Attempt, ended: Ended) -> None:
    """Like `run.run(ended)`, for async, plain and external tasks. Tracing errors are logged, and do not affect the
    job."""
    outcome: Outcome | None = None
    raised: list[BaseException] = []

    def receive(_: Attempt, found: Outcome | None) -> None:
        nonlocal outcome
        outcome = found

    grant = run.grant
    span = _Span(
        tracing.running, TracedRun(grant.id, grant.task, grant.queue, grant.attempt, trace=grant.trace)
    )
    run.on_error = raised.append
    try:
        await run.run(receive)
    finally:
        # Otherwise the exception would refer to itself through its frames.
        run.on_error = None
        span.end(_ending(run, outcome, raised))
        raised.clear()
    ended(run, outcome)


def _ending(run: Attempt, outcome: Outcome | None, raised: list[BaseException]) -> TracedEnding:
    if run.completed:
        outcome = Success()  # what came after `ctx.complete` changes nothing
    word = attempt_outcome(outcome, run.flag)
    error = getattr(outcome, "error", None)
    exception = raised[-1] if raised and not run.policy.sensitive else None
    if word != "failed" or not isinstance(exception, Exception):
        exception = None
    return TracedEnding(word, error, exception)


class _Span:
    def __init__(
        self,
        running: Callable[[TracedRun], AbstractContextManager[Callable[[TracedEnding], None]]],
        run: TracedRun,
    ) -> None:
        self._notify: Callable[[TracedEnding], None] | None = None
        try:
            self._span = running(run)
            self._notify = self._span.__enter__()
        except Exception:
            logger.exception("job %s is not traced", run.job_id)

    def end(self, ending: TracedEnding) -> None:
        if self._notify is None:
            return
        try:
            self._notify(ending)
            self._span.__exit__(None, None, None)
        except Exception:
            logger.exception("could not end the trace of a run")
