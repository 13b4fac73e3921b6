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
from leasehold.operations.read_timeout import reads_within
from leasehold.surfaces.dashboard import notices, render
from leasehold.surfaces.dashboard.access import Access
from leasehold.surfaces.dashboard.page_request import LIVE, PageRequest
from leasehold.surfaces.guard.denied import Denied

EVERY = 1.0
"""Seconds between two looks of a stream."""
SHARE = 10
"""A stream rests this many times as long as its page took: a slow page is not asked for without end."""
LONGEST_REST = 15.0
QUIET = 5.0
"""Seconds after which a stream without news says that it is there; a viewer who has left is noticed by that."""

Read = Callable[[PageRequest], dict[str, Any]]


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


def values_of(page: Page, page_request: PageRequest) -> dict[str, Any]:
    values = page.read(page_request)
    return {
        "page_request": page_request,
        "page": page,
        "notice": None,
        "now": page_request.operations.now(),
    } | values


async def show(page: Page, request: Request, door: Access, longest_read: float | None) -> Response:
    """Raises Denied and our errors."""
    page_request = await door.admit(request)
    if LIVE in request.query_params and page.live:
        return _stream(page, page_request, door, longest_read)
    with reads_within(longest_read):
        values = await run_in_threadpool(values_of, page, page_request)
        menu = await run_in_threadpool(menu_of, page_request)
    values |= menu | {"notice": notices.of(request)}
    text = await run_in_threadpool(render.page, page.template, values)
    answer = HTMLResponse(text, headers={"Cache-Control": "no-store"})
    notices.clear(answer, request)
    return answer


def menu_of(page_request: PageRequest) -> dict[str, Any]:
    """What stands around every page."""
    access = page_request.caller.access
    tenants: list[str] = []
    if access.tenants:
        rows = page_request.caller.app.__internals__.operations.list_tenants()
        tenants = [row.name for row in rows if access.may_use_tenant(row.name)][:200]
    return {"tenants": tenants}


def _stream(page: Page, page_request: PageRequest, door: Access, longest_read: float | None) -> Response:
    def main() -> str:
        with reads_within(longest_read):
            return render.main_part(page.template, values_of(page, page_request))

    async def parts() -> AsyncIterator[str]:
        yield "retry: 2000\n\n"
        last, reported_at = "", time.monotonic()
        while True:
            began = time.monotonic()
            text = await run_in_threadpool(main)
            took = time.monotonic() - began
            if text != last:
                yield "".join(f"data: {line}\n" for line in text.splitlines()) + "\n"
                last, reported_at = text, time.monotonic()
            elif time.monotonic() - reported_at > QUIET:
                yield ": nothing new\n\n"
                reported_at = time.monotonic()
            await asyncio.sleep(min(LONGEST_REST, max(EVERY, SHARE * took)))
            await door.admit(page_request.request)  # a token that was revoked sees no more

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_until_trouble(parts()), media_type="text/event-stream", headers=headers)


async def _until_trouble(parts: AsyncIterator[str]) -> AsyncIterator[str]:
    """A stream that cannot go on just ends: the browser comes back, and is told then."""
    try:
        async for part in parts:
            yield part
    except (LeaseholdError, Denied):
        return
