"""Pages: where a list goes on."""

from __future__ import annotations

from fastapi import Request, Response


def add_link(request: Request, response: Response, cursor: str | None) -> None:
    """To the page that follows, if there is one."""
    if cursor is not None:
        url = request.url.include_query_params(cursor=cursor)
        response.headers["Link"] = f'<{url.path}?{url.query}>; rel="next"'
