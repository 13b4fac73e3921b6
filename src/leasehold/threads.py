"""Threads for blocking calls of async verbs: each verb is written once, and its async twin runs it in a thread.

asyncio's own threads belong to the program. They are few: if the program's blocking calls used them all, no job could
be cancelled, and our calls must not take them from the program either.
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
