"""From what a user gives as `tx` to something that executes statements in that transaction."""

from __future__ import annotations

from typing import Any

from leasehold.domain.errors import InvalidInput
from leasehold.stores.caller_transaction.borrowed import Borrowed
from leasehold.stores.caller_transaction.drivers import DRIVERS, class_of, names_of, unknown
from leasehold.stores.caller_transaction.frameworks import ASYNC_FRAMEWORKS, FRAMEWORKS

_PLAIN = DRIVERS | FRAMEWORKS


def borrow(tx: Any) -> Borrowed:
    """For a caller that cannot await: connections of async drivers are refused."""
    for name in names_of(tx):
        if name in ASYNC_FRAMEWORKS:
            raise _needs_await(tx)
        if name in _PLAIN:
            borrowed = _PLAIN[name](tx)
            if borrowed.is_async:
                raise _needs_await(tx)
            return borrowed
    raise unknown(tx)


async def aborrow(tx: Any) -> Borrowed:
    """Of either colour."""
    for name in names_of(tx):
        if name in ASYNC_FRAMEWORKS:
            return await ASYNC_FRAMEWORKS[name](tx)
        if name in _PLAIN:
            return _PLAIN[name](tx)
    raise unknown(tx)


def _needs_await(tx: Any) -> InvalidInput:
    return InvalidInput(
        "tx",
        f"a {class_of(tx)} has to be awaited, and enqueue does not",
        "use aenqueue: await task.using(tx=connection).aenqueue(…)",
    )
