"""Link headers of lists, and Location headers of new jobs."""

from __future__ import annotations

from fastapi import Request, Response


def add_link(request: Request, response: Response, cursor: str | None) -> None:
    """Add the link to the next page, if there is one."""
    if cursor is not None:
        url = request.url.include_query_params(cursor=cursor)
        response.headers["Link"] = f'<{url.path}?{url.query}>; rel="next"'


def add_location(request: Request, response: Response, path: str, job_id: str) -> None:
    """Add the address of a new job. `path` is the beginning of the route's path below the mount point of the API."""
    mounted = request.url.path.rpartition(path)[0]
    response.headers["Location"] = f"{mounted}/v1/jobs/{job_id}"
