"""Manages Django's connections around an attempt as around a request: no attempt gets a broken or old connection, and
none stays open longer than CONN_MAX_AGE. They are top-level functions, because a job in its own process imports
them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import close_old_connections, connections

from leasehold.types import Run


def tidy(run: Run, call_next: Callable[[], Any]) -> Any:
    """Wrap a plain task, in its thread: Django keeps its connections by thread."""
    close_old_connections()
    try:
        return call_next()
    finally:
        close_old_connections()


async def tidy_async(run: Run, call_next: Callable[[], Awaitable[Any]]) -> Any:
    """Wrap an async task. Its database calls (`aget`, `sync_to_async`) get their own thread, as those of a request
    under ASGI do: otherwise all attempts would wait for one thread. The connections end with the thread."""
    async with ThreadSensitiveContext():
        try:
            return await call_next()
        finally:
            await sync_to_async(connections.close_all)()
