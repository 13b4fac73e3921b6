"""Threads of our own for what blocks under an async name: the verbs are written once, and their twins wait for them.

asyncio's are the program's: a handful, all of which its own blocking calls may have taken; then nobody could cancel a
job. Nor must ours keep the program from its own.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """Of a process, so many at a time; made with the first call."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._executor: ThreadPoolExecutor | None = None
        os.register_at_fork(after_in_child=self._forget)

    async def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """As `asyncio.to_thread`: it sees the context of its caller, and runs to its end though its caller is
        cancelled."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._most, thread_name_prefix=f"leasehold-{self._name}")
        call = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    def _forget(self) -> None:
        """A forked child has the executor, and none of its threads."""
        self._executor = None


to_thread = Threads(32, "call").call
"""For calls that wait for the database, or for one of its connections."""
