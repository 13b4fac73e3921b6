"""Dashboard pages and their streams, actions of forms, notices for the next page, and messages for errors."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from leasehold.domain.errors import (
    GroupOnHold,
    InvalidInput,
    JobError,
    JobNotFound,
    LeaseholdError,
    PoolExhausted,
    ReadTooSlow,
    ResultMissing,
    ScheduleNotFound,
    StoreError,
    TenantNotFound,
)
from leasehold.domain.frozen import frozen
from leasehold.domain.tokens import TokenScope
from leasehold.operations import tenants
from leasehold.operations.local import reads_within
from leasehold.operations.verb import Verb
from leasehold.surfaces.dashboard import render
from leasehold.surfaces.dashboard.access import SignIn
from leasehold.surfaces.dashboard.page_request import LIVE, Form, PageRequest
from leasehold.surfaces.guard import STATUSES, Denied

READ_PAGE_EVERY = 1.0
"""Seconds between two reads of a stream, at least."""
REST_FACTOR = 10
"""A stream rests this many times as long as its page took, so that a slow page does not load the database."""
LONGEST_REST = 15.0
COMMENT_AFTER = 5.0
"""Seconds after which a stream without changes sends a comment: the send fails if the browser has left."""

Read = Callable[[PageRequest], dict[str, Any]]


@frozen
class DashboardPage:
    path: str
    """The route's path below the dashboard's base."""
    name: str
    """The name of the menu entry to highlight."""
    template: str
    read: Read
    """Reads the values for the template, in a thread. Raises our errors."""
    live: bool = True


def values_of(page: DashboardPage, page_request: PageRequest) -> dict[str, Any]:
    values = page.read(page_request)
    return {
        "page_request": page_request,
        "page": page,
        "notice": None,
        "now": page_request.operations.now(),
    } | values


async def show(
    page: DashboardPage, request: Request, sign_in: SignIn, longest_read: float | None
) -> Response:
    """The response with the page, or with its stream. Raises Denied and our errors."""
    page_request = await sign_in.admit(request)
    if LIVE in request.query_params and page.live:
        return _stream(page, page_request, sign_in, longest_read)
    with reads_within(longest_read):
        values = await run_in_threadpool(values_of, page, page_request)
        menu = await run_in_threadpool(menu_of, page_request)
    values |= menu | {"notice": notice_of(request)}
    text = await run_in_threadpool(render.page, page.template, values)
    answer = HTMLResponse(text, headers={"Cache-Control": "no-store"})
    clear(answer, request)
    return answer


def menu_of(page_request: PageRequest) -> dict[str, Any]:
    """The values for the menu, which is on every page."""
    allowed = page_request.caller.access
    names: list[str] = []
    if allowed.tenants:
        rows = page_request.caller.app.__internals__.operations.call(tenants.list_tenants)
        names = [row.name for row in rows if allowed.may_use_tenant(row.name)][:200]
    return {"tenants": names}


def _stream(
    page: DashboardPage, page_request: PageRequest, sign_in: SignIn, longest_read: float | None
) -> Response:
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
            elif time.monotonic() - sent_at > COMMENT_AFTER:
                yield ": nothing new\n\n"
                sent_at = time.monotonic()
            await asyncio.sleep(min(LONGEST_REST, max(READ_PAGE_EVERY, REST_FACTOR * took)))
            await sign_in.admit(page_request.request)  # a revoked token must see no more

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_until_error(parts()), media_type="text/event-stream", headers=headers)


async def _until_error(parts: AsyncIterator[str]) -> AsyncIterator[str]:
    """Pass on the parts until an error. Then the stream just ends: the browser reconnects, and gets the error."""
    try:
        async for part in parts:
            yield part
    except (LeaseholdError, Denied):
        return


# -- notices -----------------------------------------------------------------------------------------------------------
# A cookie carries a notice to the next page, which deletes the cookie.

NOTICE_COOKIE = "leasehold_notice"
LONGEST_NOTICE = 600
"""Characters."""
_SECONDS = 60


@frozen
class Notice:
    kind: Literal["done", "refused"]
    text: str


def set_notice(response: Response, request: Request, notice: Notice) -> None:
    text = notice.text if len(notice.text) <= LONGEST_NOTICE else notice.text[: LONGEST_NOTICE - 1] + "…"
    # Escapes would make the text longer than a cookie may be.
    payload = json.dumps([notice.kind, text], ensure_ascii=False)
    value = base64.urlsafe_b64encode(payload.encode("utf-8", "replace")).decode()
    response.set_cookie(
        NOTICE_COOKIE, value, max_age=_SECONDS, path=_path(request), httponly=True, samesite="lax"
    )


def notice_of(request: Request) -> Notice | None:
    value = request.cookies.get(NOTICE_COOKIE)
    if not value:
        return None
    try:
        kind, text = json.loads(base64.urlsafe_b64decode(value))
    except (ValueError, binascii.Error, TypeError):
        return None
    return Notice("done" if kind == "done" else "refused", str(text)[:LONGEST_NOTICE])


def clear(response: Response, request: Request) -> None:
    if NOTICE_COOKIE in request.cookies:
        response.delete_cookie(NOTICE_COOKIE, path=_path(request), httponly=True, samesite="lax")


def _path(request: Request) -> str:
    return request.scope.get("root_path") or "/"


# -- actions -----------------------------------------------------------------------------------------------------------
# An action has the same name as its verb in the audit.


@frozen
class Done:
    """The outcome of an action: the notice for the user, and the next page."""

    text: str
    go: str | None = None
    """The address of the next page; None: the page with the form."""


@frozen
class Action:
    name: str
    scope: TokenScope
    run: Callable[[PageRequest, Form], Done]
    """Runs the action, in a thread. Raises our errors, which the page shows."""


def action_of(verb: Verb[..., Any], run: Callable[[PageRequest, Form], Done]) -> Action:
    """The action of a verb, with its name and scope from the table of verbs."""
    return Action(verb.name, verb.scope, run)


# -- errors ------------------------------------------------------------------------------------------------------------
# The one table of statuses.

logger = logging.getLogger("leasehold.dashboard")

_ERRORS: tuple[tuple[type[LeaseholdError], int], ...] = (
    (JobNotFound, 404),
    (ScheduleNotFound, 404),
    (TenantNotFound, 404),
    (ResultMissing, 404),
    (InvalidInput, 422),
    (JobError, 409),
    (GroupOnHold, 409),
    (StoreError, 503),
    (LeaseholdError, 500),
)
"""The first row that matches an error applies."""


def describe(error: Exception) -> tuple[int, str]:
    """The status and the message. An unexpected error is logged; the page shows no details of it."""
    match error:
        case Denied():
            return STATUSES[error.reason], error.detail
        case ReadTooSlow():
            logger.warning("%s", error)
            return 503, f"The database took more than {error.seconds:g} s to read that. Narrow the filter."
        case PoolExhausted():
            logger.error("%s", error)
            return 503, "All database connections of this server are in use. Try again later."
        case StoreError():
            logger.error("%s: %s", type(error).__name__, error)
            return 503, "The database is unreachable or not ready. See the server's log."
        case LeaseholdError():
            return next(status for class_, status in _ERRORS if isinstance(error, class_)), str(error)
        case _:
            logger.error("a page failed", exc_info=error)
            return 500, "Something went wrong. See the server's log."
