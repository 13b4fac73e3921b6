"""Pages: where a list goes on, and what of it a caller may see."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from fastapi import Request, Response

from leasehold.surfaces.guard.callers import Caller


class _InQueue(Protocol):
    @property
    def queue(self) -> str | None: ...


Row = TypeVar("Row", bound=_InQueue)


def add_link(request: Request, response: Response, cursor: str | None) -> None:
    """To the page that follows, if there is one."""
    if cursor is not None:
        url = request.url.include_query_params(cursor=cursor)
        response.headers["Link"] = f'<{url.path}?{url.query}>; rel="next"'


def seen_by(who: Caller, rows: Iterable[Row]) -> list[Row]:
    """Those of the queues that the caller may know of. What is of no queue is of all of them."""
    if not who.access.queues:
        return list(rows)
    return [row for row in rows if row.queue is not None and who.access.may_use_queue(row.queue)]
