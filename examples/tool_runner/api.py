"""The HTTP API. With a queue a request is stored and answered at once; without one it runs, or is rejected."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from examples.tool_runner.app import settings
from examples.tool_runner.database import query
from examples.tool_runner.metrics import queue_metrics
from examples.tool_runner.runs import RunExists, cancel_run, enqueue_run, list_runs, read_run, run_at_once
from examples.tool_runner.tools import TOOLS
from leasehold import AtCapacity
from leasehold.errors import InvalidInput

api = FastAPI(title="tool_runner")


class RunRequest(BaseModel):
    tool: str
    argument: str = ""
    run_id: UUID | None = None
    """Yours, so that a repeated request is noticed; left out, one is made."""
    queue: str = "default"
    priority: int = Field(0, ge=-100, le=100)
    max_attempts: int = Field(1, ge=1, le=100)
    timeout_seconds: float | None = Field(None, gt=0)


@api.post("/tool-runs")
def request_run(requested: RunRequest, response: Response) -> dict[str, Any]:
    if requested.tool not in TOOLS:
        raise HTTPException(422, f"there is no tool {requested.tool!r}")
    run_id = str(requested.run_id) if requested.run_id else None
    if not settings.queue_enabled:
        return run_at_once(requested.tool, requested.argument, run_id, timeout=requested.timeout_seconds)
    response.status_code = 202
    return enqueue_run(
        requested.tool,
        requested.argument,
        run_id,
        queue=requested.queue,
        priority=requested.priority,
        max_attempts=requested.max_attempts,
        timeout=requested.timeout_seconds,
    )


@api.get("/tool-runs")
def show_runs(limit: int = 50) -> list[dict[str, Any]]:
    return list_runs(limit)


@api.get("/tool-runs/{run_id}")
def show_run(run_id: UUID) -> dict[str, Any]:
    return read_run(str(run_id))


@api.post("/tool-runs/{run_id}/cancel")
def cancel(run_id: UUID) -> dict[str, Any]:
    return cancel_run(str(run_id))


@api.get("/tool-run-jobs/{run_id}")
def show_job(run_id: UUID) -> dict[str, Any]:
    """Its row in the queue: attempts, lease, last error."""
    for job in query("SELECT * FROM tool_run_jobs WHERE run_id = ?", str(run_id)):
        return job
    raise KeyError(run_id)


@api.get("/metrics")
def show_metrics() -> dict[str, Any]:
    return queue_metrics()


@api.exception_handler(AtCapacity)
def rejected(_: Request, full: AtCapacity) -> JSONResponse:
    told = f"{full.max_running} runs are under way, which is the cap"
    return JSONResponse({"detail": told}, 429, {"Retry-After": str(max(1, round(full.retry_after)))})


@api.exception_handler(RunExists)
def exists(_: Request, error: RunExists) -> JSONResponse:
    return JSONResponse({"detail": f"run {error} was requested before"}, 409)


@api.exception_handler(InvalidInput)
def refused(_: Request, error: InvalidInput) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 422)


@api.exception_handler(KeyError)
def missing(_: Request, error: KeyError) -> JSONResponse:
    return JSONResponse({"detail": f"there is no run {error.args[0]}"}, 404)
