"""Contains `sys.exit` and KeyboardInterrupt in a task that a handler has started.

asyncio lets these two out of the loop, whichever task raises them: one job's `sys.exit` would end the worker, and all
other jobs with it. So a worker's loop wraps the tasks of its attempts: it turns the two into a `HandlerExit`, and ends
the attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, NoReturn, Protocol

from leasehold.domain.signals import HandlerExit
from leasehold.run.state import RunState, current_run

_EXITS = (SystemExit, KeyboardInterrupt)


class TaskFactory(Protocol):
    def __call__(self, loop: asyncio.AbstractEventLoop, coro: Any, /, **more: Any) -> asyncio.Future[Any]: ...


class ExitGuard:
    """Active on a worker's loop while the worker lives. The loop's previous task factory still makes the tasks."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._before: Any = None

    def start(self) -> None:
        self._before = self._loop.get_task_factory()
        self._loop.set_task_factory(self._make)

    def stop(self) -> None:
        """Stop, but leave our factory if another one was installed on top of it: that one still calls ours."""
        if self._loop.get_task_factory() == self._make:
            self._loop.set_task_factory(self._before)

    def _make(self, loop: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> Any:
        context = more.get("context")
        run = current_run.get() if context is None else context.get(current_run)
        if run is not None and isinstance(coro, Coroutine) and not isinstance(coro, GuardedCoroutine):
            coro = GuardedCoroutine(coro, run)
        make: TaskFactory = self._before or _plain_task
        return make(loop, coro, **more)


def _plain_task(loop: asyncio.AbstractEventLoop, coro: Any, /, **more: Any) -> asyncio.Future[Any]:
    return asyncio.Task(coro, loop=loop, **more)


class GuardedCoroutine(Coroutine[Any, Any, Any]):
    """Wraps a coroutine to catch the two exceptions. Not an `async def` around it: if that is cancelled before its
    first step, the inner coroutine is never awaited, and Python warns about it."""

    def __init__(self, inner: Coroutine[Any, Any, Any], run: RunState) -> None:
        self._inner = inner
        self._run = run

    def __getattr__(self, name: str) -> Any:
        # Frame, code and name, for code that prints tasks.
        return getattr(self._inner, name)

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner.__await__()

    def send(self, value: Any) -> Any:
        try:
            return self._inner.send(value)
        except _EXITS as error:
            self._exit(error)

    def throw(self, *error: Any) -> Any:
        try:
            return self._inner.throw(*error)
        except _EXITS as found:
            self._exit(found)

    def close(self) -> None:
        self._inner.close()

    def _exit(self, error: BaseException) -> NoReturn:
        self._run.exited(error)
        raise HandlerExit(f"a task of the handler raised {type(error).__name__}") from error
