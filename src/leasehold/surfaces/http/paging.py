"""Links: where a list goes on, and where a new job is."""

from __future__ import annotations

from fastapi import Request, Response


def add_link(request: Request, response: Response, cursor: str | None) -> None:
    """To the page that follows, if there is one."""
    if cursor is not None:
        url = request.url.include_query_params(cursor=cursor)
        response.headers["Link"] = f'<{url.path}?{url.query}>; rel="next"'


def add_location(request: Request, response: Response, path: str, job_id: str) -> None:
    """Of a new job. `path` is how the path of the route that made it begins, behind what the API is mounted at."""
    mounted = request.url.path.rpartition(path)[0]
    response.headers["Location"] = f"{mounted}/v1/jobs/{job_id}"
