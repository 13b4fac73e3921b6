"""The HTTP edge. A request names its tenant with the header `X-Tenant`; jobs of others do not exist for it.

The header is believed: put whoever checks your users in front, and let it set the header. All paths are known with and
without the slash at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Header, HTTPException
from pydantic import BaseModel

from examples.agent_server import service
from examples.agent_server.tasks import Turn
from leasehold.errors import InvalidInput, InvalidState, JobNotFound, TenantNotFound

R = TypeVar("R")


class NewJob(BaseModel):
    turns: list[Turn]
    enqueue: bool = True
    """False: it stays PENDING until `…/enqueue/`."""


def tenant_of(x_tenant: Annotated[str | None, Header()] = None) -> str:
    if not x_tenant:
        raise HTTPException(400, "name the tenant with the header X-Tenant")
    return x_tenant


OfTenant = Annotated[str, Depends(tenant_of)]
router = APIRouter(prefix="/targets/{target_id}/jobs")
by_id = APIRouter(prefix="/jobs")
"""The short path of the document's diagram, which does not name the target."""


def answer(call: Callable[..., R], *args: Any, **settings: Any) -> R:
    """What the service says, or why not: 404 for what is not there, 409 for what its state does not allow. The advice
    that Leasehold adds after a semicolon is for programmers."""
    try:
        return call(*args, **settings)
    except (JobNotFound, TenantNotFound) as error:
        raise HTTPException(404, str(error).partition(";")[0]) from None
    except InvalidInput as error:
        raise HTTPException(422, str(error)) from None
    except InvalidState as error:
        raise HTTPException(409, str(error).partition(";")[0]) from None


@router.post("", status_code=201, include_in_schema=False)
@router.post("/", status_code=201)
def create(tenant: OfTenant, target_id: str, job: NewJob) -> dict[str, Any]:
    return answer(service.create_job, tenant, target_id, job.turns, enqueue=job.enqueue)


@router.get("", include_in_schema=False)
@router.get("/")
def list_jobs(tenant: OfTenant, target_id: str, before: str | None = None) -> dict[str, Any]:
    return answer(service.list_jobs, tenant, target_id, before)


@router.get("/{job_id}", include_in_schema=False)
@router.get("/{job_id}/")
def show(tenant: OfTenant, target_id: str, job_id: str) -> dict[str, Any]:
    return answer(service.get_job, tenant, target_id, job_id)


@router.post("/{job_id}/enqueue", include_in_schema=False)
@router.post("/{job_id}/enqueue/")
def enqueue(tenant: OfTenant, target_id: str, job_id: str) -> dict[str, Any]:
    return answer(service.enqueue_job, tenant, target_id, job_id)


@router.post("/{job_id}/cancel", include_in_schema=False)
@router.post("/{job_id}/cancel/")
def cancel(tenant: OfTenant, target_id: str, job_id: str) -> dict[str, Any]:
    return answer(service.request_job_cancel, tenant, target_id, job_id)


@router.post("/{job_id}/resume", include_in_schema=False)
@router.post("/{job_id}/resume/")
def resume(tenant: OfTenant, target_id: str, job_id: str) -> dict[str, Any]:
    return answer(service.resume_job, tenant, target_id, job_id)


@router.post("/{job_id}/resolve", include_in_schema=False)
@router.post("/{job_id}/resolve/")
def resolve(tenant: OfTenant, target_id: str, job_id: str) -> dict[str, Any]:
    return answer(service.skip_job, tenant, target_id, job_id)


@by_id.post("/{job_id}/resume/", include_in_schema=False)
@by_id.post("/{job_id}/resume")
def resume_by_id(tenant: OfTenant, job_id: str) -> dict[str, Any]:
    target_id = answer(service.target_of, tenant, job_id)
    return answer(service.resume_job, tenant, target_id, job_id)
