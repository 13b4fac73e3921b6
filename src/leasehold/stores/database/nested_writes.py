"""Code that runs inside a transaction which a handler has in its hands.

Whatever else it writes to the same store would wait for that transaction: on SQLite, which has one writer, for itself,
until its time is up; on PostgreSQL it would be committed apart from it, whatever becomes of the block. So it is refused
at once, the same on both.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from leasehold.domain.errors import InvalidInput


class _Block:
    """Of one transaction. Tasks that are started in the block inherit it, and may outlive it: hence the flag."""

    def __init__(self, store: str, outer: _Block | None) -> None:
        self.store = store
        self.outer = outer
        self.is_open = True


_block: ContextVar[_Block | None] = ContextVar("leasehold_block", default=None)


@contextmanager
def inside_transaction(store: str) -> Iterator[None]:
    """For the code of the block: in its own context, not in that of a thread which opens the transaction for it."""
    outer = _block.get()
    block = _Block(store, outer)
    _block.set(block)
    try:
        yield
    finally:
        block.is_open = False
        _block.set(outer)


@contextmanager
def beside_transaction() -> Iterator[None]:
    """For what may be written beside it, because it is true whatever becomes of the block."""
    block = _block.get()
    _block.set(None)
    try:
        yield
    finally:
        _block.set(block)


def refuse_inside(store: str) -> None:
    """Before a write to this store begins."""
    block = _block.get()
    if block is not None:
        _refuse(block, store)


def _refuse(block: _Block | None, store: str) -> None:
    while block is not None:
        if block.is_open and block.store == store:
            raise InvalidInput(
                "transaction",
                f"this write comes from inside a transaction that is open on {store} (ctx.complete, or a step with"
                " tx=True)",
                "use task.using(tx=…) with what the block was given, ctx.enqueue (a follow-up, stored with the"
                " success), the transaction's own connection, or do it before or after the block",
            )
        block = block.outer
