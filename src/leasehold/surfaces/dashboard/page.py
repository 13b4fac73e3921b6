"""How a page is made: it reads in a thread, is rendered whole, or its main part again and again as a stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from leasehold.domain.errors import LeaseholdError
from leasehold.domain.frozen import frozen
from leasehold.operations.patience import reads_within
from leasehold.surfaces.dashboard import notices, render
from leasehold.surfaces.dashboard.door import Door
from leasehold.surfaces.dashboard.visit import LIVE, Visit
from leasehold.surfaces.guard.denied import Denied

EVERY = 1.0
"""Seconds between two looks of a stream."""
SHARE = 10
"""A stream rests this many times as long as its page took: a slow page is not asked for without end."""
LONGEST_REST = 15.0
QUIET = 5.0
"""Seconds after which a stream without news says that it is there; a viewer who has left is noticed by that."""

Read = Callable[[Visit], dict[str, Any]]


@frozen
class Page:
    path: str
    """Below the dashboard's base; as routes are written."""
    name: str
    """Of the place in the menu that is lit."""
    template: str
    read: Read
    """What the template needs. Raises our errors. It runs in a thread."""
    live: bool = True


def values_of(page: Page, visit: Visit) -> dict[str, Any]:
    values = page.read(visit)
    return {"visit": visit, "page": page, "notice": None, "now": visit.operations.now()} | values


async def show(page: Page, request: Request, door: Door, longest_read: float | None) -> Response:
    """Raises Denied and our errors."""
    visit = await door.admit(request)
    if LIVE in request.query_params and page.live:
        return _stream(page, visit, door, longest_read)
    with reads_within(longest_read):
        values = await run_in_threadpool(values_of, page, visit)
        menu = await run_in_threadpool(menu_of, visit)
    values |= menu | {"notice": notices.of(request)}
    text = await run_in_threadpool(render.page, page.template, values)
    answer = HTMLResponse(text, headers={"Cache-Control": "no-store"})
    notices.clear(answer, request)
    return answer


def menu_of(visit: Visit) -> dict[str, Any]:
    """What stands around every page."""
    access = visit.who.access
    tenants: list[str] = []
    if access.tenants:
        rows = visit.who.app.__internals__.operations.list_tenants()
        tenants = [row.name for row in rows if access.may_use_tenant(row.name)][:200]
    return {"tenants": tenants}


def _stream(page: Page, visit: Visit, door: Door, longest_read: float | None) -> Response:
    def main() -> str:
        with reads_within(longest_read):
            return render.main_part(page.template, values_of(page, visit))

    async def parts() -> AsyncIterator[str]:
        yield "retry: 2000\n\n"
        last, told_at = "", time.monotonic()
        while True:
            began = time.monotonic()
            text = await run_in_threadpool(main)
            took = time.monotonic() - began
            if text != last:
                yield "".join(f"data: {line}\n" for line in text.splitlines()) + "\n"
                last, told_at = text, time.monotonic()
            elif time.monotonic() - told_at > QUIET:
                yield ": nothing new\n\n"
                told_at = time.monotonic()
            await asyncio.sleep(min(LONGEST_REST, max(EVERY, SHARE * took)))
            await door.admit(visit.request)  # a token that was revoked sees no more

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_until_trouble(parts()), media_type="text/event-stream", headers=headers)


async def _until_trouble(parts: AsyncIterator[str]) -> AsyncIterator[str]:
    """A stream that cannot go on just ends: the browser comes back, and is told then."""
    try:
        async for part in parts:
            yield part
    except (LeaseholdError, Denied):
        return
