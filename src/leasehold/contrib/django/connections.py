"""Django's connections around a run: as around a request, no run gets a connection that is broken or too old, and none
is left open longer than CONN_MAX_AGE says. Top-level functions: a job in a process of its own imports them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import close_old_connections, connections

from leasehold.types import Run


def tidy(run: Run, call_next: Callable[[], Any]) -> Any:
    """Around a plain task, in its thread: Django keeps its connections by thread."""
    close_old_connections()
    try:
        return call_next()
    finally:
        close_old_connections()


async def tidy_async(run: Run, call_next: Callable[[], Awaitable[Any]]) -> Any:
    """Around an async task. Its database calls (`aget`, `sync_to_async`) get a thread of their own, as those of a
    request under ASGI do: else all runs would wait for one thread. The connections end with the thread."""
    async with ThreadSensitiveContext():
        try:
            return await call_next()
        finally:
            await sync_to_async(connections.close_all)()
