"""The API: trigger a run, look at it. `uvicorn examples.model_runs.api:api`"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field

from .app import delivery
from .database import prepare, read_run
from .tasks import model_run


class NewRun(BaseModel):
    model: Literal["mock", "blocking", "flaky", "broken"] = "mock"
    seconds: Annotated[float, Field(ge=0, le=3600)] = 1.0


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncIterator[None]:
    prepare()
    yield


api = FastAPI(title="model_runs", lifespan=lifespan)


@api.post("/runs", status_code=202)
def trigger_run(new: NewRun) -> dict[str, str]:
    """The run is in the database first; then its id is published. If Redis is away, the poll publishes it later."""
    job = model_run.enqueue(new.model, new.seconds)
    delivery.publish(job)
    return {"id": job.id, "status": "PENDING"}


@api.get("/runs/{run_id}")
def get_run(run_id: str) -> dict[str, Any]:
    if (run := read_run(run_id)) is None:
        raise HTTPException(404, f"there is no run {run_id}")
    return run
