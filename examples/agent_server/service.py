"""The document's functions on the database; `claim_next_job` and `renew_job_lease` are the worker's, in the engine."""

from __future__ import annotations

from typing import Any

from examples.agent_server.app import app
from examples.agent_server.fields import INTERRUPTED, job_fields
from examples.agent_server.tasks import Turn, execute_api_in_background_with_tenant
from leasehold import Job, State
from leasehold.errors import JobNotFound
from leasehold.types import Reaped


def create_job(tenant: str, target_id: str, turns: list[Turn], *, enqueue: bool = True) -> dict[str, Any]:
    """Stored when this returns: QUEUED, or PENDING until `enqueue_job`."""
    task = execute_api_in_background_with_tenant.using(tenant=tenant, hold=not enqueue)
    return get_job(tenant, target_id, task.enqueue(target_id=target_id, turns=turns).id)


def enqueue_job(tenant: str, target_id: str, job_id: str) -> dict[str, Any]:
    """PENDING → QUEUED."""
    find_job(tenant, target_id, job_id).release()
    return get_job(tenant, target_id, job_id)


def request_job_cancel(tenant: str, target_id: str, job_id: str) -> dict[str, Any]:
    """From any process. A RUNNING job gets its `cancel_requested` and is PAUSED by its worker; what does not run is
    CANCELED now. Which of the two is decided under the row's lock: a job that is claimed at this moment is paused."""
    find_job(tenant, target_id, job_id).interrupt(INTERRUPTED)
    return get_job(tenant, target_id, job_id)


def resume_job(tenant: str, target_id: str, job_id: str) -> dict[str, Any]:
    """PAUSED or ERROR → QUEUED, in its old place in the target's queue."""
    find_job(tenant, target_id, job_id).resume()
    return get_job(tenant, target_id, job_id)


def skip_job(tenant: str, target_id: str, job_id: str) -> dict[str, Any]:
    """It stays ERROR, and the target's queue goes on without it."""
    find_job(tenant, target_id, job_id).skip()
    return get_job(tenant, target_id, job_id)


def expire_stale_running_jobs(tenant: str) -> list[Reaped]:
    """RUNNING jobs whose lease has run out → ERROR. Every server does this by itself, every heartbeat; this is for
    a script that will not wait for one."""
    return app.tenant(tenant).sweep()


def get_job(tenant: str, target_id: str, job_id: str) -> dict[str, Any]:
    job = find_job(tenant, target_id, job_id)
    (tokens,) = job.budget()
    return {
        **job_fields(job),
        "tenant": tenant,
        "target_id": target_id,
        "token_usage": tokens.spent,
        "token_limit": tokens.limit,
        "result": job.result() if job.state is State.SUCCEEDED else None,
    }


def list_jobs(tenant: str, target_id: str, before: str | None = None) -> dict[str, Any]:
    """Newest first, 50 at a time."""
    page = app.tenant(tenant).jobs(lane=target_id, cursor=before)
    return {"jobs": [job_fields(row) for row in page.jobs], "next": page.next}


def target_of(tenant: str, job_id: str) -> str:
    return str(app.tenant(tenant).get(job_id).args["target_id"])


def find_job(tenant: str, target_id: str, job_id: str) -> Job[Any]:
    """A job of another target, or of another tenant, is not found."""
    job = app.tenant(tenant).get(job_id)
    if job.args["target_id"] != target_id:
        raise JobNotFound(job_id)
    return job
