"""Threads for the blocking calls of async verbs, and locks that survive a fork.

asyncio's own threads belong to the program. They are few: if the program's blocking calls used them all, no job could
be cancelled, and our calls must not take them from the program either.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import CoroutineType
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """A pool with at most this many threads per process, made at the first call."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._executor: ThreadPoolExecutor | None = None
        os.register_at_fork(after_in_child=self._forget)

    async def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in a thread, like `asyncio.to_thread`: it sees its caller's context, and runs to its end even
        if the caller is cancelled."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._most, thread_name_prefix=f"leasehold-{self._name}")
        call = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    def _forget(self) -> None:
        """Drop the executor: a forked child has none of its threads."""
        self._executor = None


async def until_done(
    future: asyncio.Future[Any], on_cancel: Callable[[], object]
) -> asyncio.CancelledError | None:
    """Wait until the future is done, even if the caller is cancelled repeatedly. Each cancellation calls `on_cancel`;
    the last one is returned, for the caller to raise."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
            on_cancel()
    return cancelled


to_thread = Threads(32, "call").call
"""Run a function that waits for the database, or for a connection to it."""

# -- async names -------------------------------------------------------------------------------------------------------

S = TypeVar("S")


def aio(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], CoroutineType[Any, Any, T]]:
    """Return an async method that makes the same call in one of our threads. It looks the method up by name, so that a
    subclass that overrides `cancel` has the right `acancel` too. A method that waits for long, or yields, needs an
    async method of its own."""
    name = method.__name__
    if (
        inspect.isgeneratorfunction(method)
        or inspect.iscoroutinefunction(method)
        or inspect.isasyncgenfunction(method)
    ):
        raise TypeError(f"{name} cannot run in a thread as one call: write a{name} by hand")

    @functools.wraps(method)
    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await to_thread(functools.partial(getattr(self, name), *args, **kwargs))

    call.__name__ = f"a{name}"
    call.__qualname__ = f"{method.__qualname__.rpartition('.')[0]}.a{name}"
    return call  # type: ignore[return-value] # mypy reads `async def` as Coroutine, pyright as CoroutineType


# -- locks that are free in a forked child -----------------------------------------------------------------------------


class ForkLock:
    """A lock that is free after a fork: the child does not have the parent's thread that may have held it."""

    def __init__(self) -> None:
        self.renew()
        _all.add(self)

    def renew(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _renew_all() -> None:
    for lock in list(_all):
        lock.renew()


_all: weakref.WeakSet[ForkLock] = weakref.WeakSet()
os.register_at_fork(after_in_child=_renew_all)

unanswered: dict[int, float] = {}
"""The threads of this process, by their ident, that wait for a database's answer, and since when (monotonic)."""
os.register_at_fork(after_in_child=unanswered.clear)

after_fork = ForkLock()
"""One lock for all stores: a child process takes it once in its life."""
