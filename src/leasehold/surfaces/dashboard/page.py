"""Pages: each reads its values in a thread, and is rendered whole, or its main part repeatedly as a stream."""

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
"""Seconds between two reads of a stream, at least."""
SHARE = 10
"""A stream rests this many times as long as its page took, so that a slow page does not load the database."""
LONGEST_REST = 15.0
QUIET = 5.0
"""Seconds after which a stream without changes sends a comment: the send fails if the viewer has left."""

Read = Callable[[PageRequest], dict[str, Any]]


@frozen
class Page:
    path: str
    """The route's path below the dashboard's base."""
    name: str
    """The name of the menu entry to highlight."""
    template: str
    read: Read
    """Reads the values for the template, in a thread. Raises our errors."""
    live: bool = True


def values_of(page: Page, page_request: PageRequest) -> dict[str, Any]:
    values = page.read(page_request)
    return {
        "page_request": page_request,
        "page": page,
        "notice": None,
        "now": page_request.operations.now(),
    } | values


async def show(page: Page, request: Request, access: Access, longest_read: float | None) -> Response:
    """The response with the page, or with its stream. Raises Denied and our errors."""
    page_request = await access.admit(request)
    if LIVE in request.query_params and page.live:
        return _stream(page, page_request, access, longest_read)
    with reads_within(longest_read):
        values = await run_in_threadpool(values_of, page, page_request)
        menu = await run_in_threadpool(menu_of, page_request)
    values |= menu | {"notice": notices.of(request)}
    text = await run_in_threadpool(render.page, page.template, values)
    answer = HTMLResponse(text, headers={"Cache-Control": "no-store"})
    notices.clear(answer, request)
    return answer


def menu_of(page_request: PageRequest) -> dict[str, Any]:
    """The values for the menu, which is on every page."""
    allowed = page_request.caller.access
    tenants: list[str] = []
    if allowed.tenants:
        rows = page_request.caller.app.__internals__.operations.list_tenants()
        tenants = [row.name for row in rows if allowed.may_use_tenant(row.name)][:200]
    return {"tenants": tenants}


def _stream(page: Page, page_request: PageRequest, access: Access, longest_read: float | None) -> Response:
    def main() -> str:
        with reads_within(longest_read):
            return render.main_part(page.template, values_of(page, page_request))

    async def parts() -> AsyncIterator[str]:
        yield "retry: 2000\n\n"
        last, sent_at = "", time.monotonic()
        while True:
            began = time.monotonic()
            text = await run_in_threadpool(main)
            took = time.monotonic() - began
            if text != last:
                yield "".join(f"data: {line}\n" for line in text.splitlines()) + "\n"
                last, sent_at = text, time.monotonic()
            elif time.monotonic() - sent_at > QUIET:
                yield ": nothing new\n\n"
                sent_at = time.monotonic()
            await asyncio.sleep(min(LONGEST_REST, max(EVERY, SHARE * took)))
            await access.admit(page_request.request)  # a revoked token must see no more

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_until_error(parts()), media_type="text/event-stream", headers=headers)


async def _until_error(parts: AsyncIterator[str]) -> AsyncIterator[str]:
    """The parts until an error. The stream just ends: the browser reconnects, and gets the error then."""
    try:
        async for part in parts:
            yield part
    except (LeaseholdError, Denied):
        return
