"""Async names of blocking methods: `acancel = aio(cancel)` below `def cancel`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from leasehold.threads import to_thread

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")


def aio(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
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
    return call
