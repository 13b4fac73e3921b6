"""A verb over an async connection: the verb runs in a thread, its statements on the loop of the connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from leasehold.stores.caller_transaction.borrowed import Answer, Execute
from leasehold.threads import to_thread, until_done

T = TypeVar("T")


async def in_thread(work: Callable[[Execute], T], execute: Callable[[str, Any], Awaitable[Answer]]) -> T:
    """Give `work` something that executes, in a thread. A cancelled caller gets control back only when the thread has
    ended: what it wrote after the caller's rollback would be a transaction by itself."""
    loop = asyncio.get_running_loop()
    under_way: Future[Answer] | None = None
    cancelled = False

    async def answer(sql: str, parameters: Any) -> Answer:
        if cancelled:
            raise asyncio.CancelledError
        return await execute(sql, parameters)

    def hop(sql: str, parameters: Any) -> Answer:
        nonlocal under_way
        under_way = asyncio.run_coroutine_threadsafe(answer(sql, parameters), loop)
        return under_way.result()

    def cancel() -> None:
        nonlocal cancelled
        cancelled = True
        if under_way is not None:
            under_way.cancel()

    call = asyncio.ensure_future(to_thread(work, hop))
    stop = await until_done(call, cancel)
    if stop is not None:
        if not call.cancelled():
            call.exception()  # retrieve it, or asyncio logs "exception was never retrieved"
        raise stop
    return call.result()
