"""Threads for blocking calls of the async verbs: each verb is written once, and its async twin waits in a thread.

asyncio's own threads belong to the program: there are few, and its blocking calls may use them all, so that no job
could be cancelled. Nor may our calls take them away from the program.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

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
        """Like `asyncio.to_thread`: the call sees its caller's context, and runs to its end even if the caller is
        cancelled."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._most, thread_name_prefix=f"leasehold-{self._name}")
        call = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    def _forget(self) -> None:
        """A forked child has the executor, but none of its threads."""
        self._executor = None


async def until_done(
    future: asyncio.Future[Any], on_cancel: Callable[[], object]
) -> asyncio.CancelledError | None:
    """Wait for its end even if the caller is cancelled repeatedly. Each cancellation calls `on_cancel`; the last one is
    returned, to be raised."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
            on_cancel()
    return cancelled


to_thread = Threads(32, "call").call
"""For calls that wait for the database, or for one of its connections."""
