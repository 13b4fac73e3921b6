"""Notices about an action, shown on the next page. A cookie carries the notice, and that page deletes the cookie."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from leasehold.domain.frozen import frozen

COOKIE = "leasehold_notice"
LONGEST = 600
"""Characters."""
_SECONDS = 60


@frozen
class Notice:
    kind: Literal["done", "refused"]
    text: str


def leave(response: Response, request: Request, notice: Notice) -> None:
    text = notice.text if len(notice.text) <= LONGEST else notice.text[: LONGEST - 1] + "…"
    # Escapes would make the text longer than a cookie may be.
    payload = json.dumps([notice.kind, text], ensure_ascii=False)
    value = base64.urlsafe_b64encode(payload.encode("utf-8", "replace")).decode()
    response.set_cookie(COOKIE, value, max_age=_SECONDS, path=_path(request), httponly=True, samesite="lax")


def of(request: Request) -> Notice | None:
    value = request.cookies.get(COOKIE)
    if not value:
        return None
    try:
        kind, text = json.loads(base64.urlsafe_b64decode(value))
    except (ValueError, binascii.Error, TypeError):
        return None
    return Notice("done" if kind == "done" else "refused", str(text)[:LONGEST])


def clear(response: Response, request: Request) -> None:
    if COOKIE in request.cookies:
        response.delete_cookie(COOKIE, path=_path(request), httponly=True, samesite="lax")


def _path(request: Request) -> str:
    return request.scope.get("root_path") or "/"
