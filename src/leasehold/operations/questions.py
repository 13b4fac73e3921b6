"""Questions that jobs ask, and the answers."""

from __future__ import annotations

from leasehold.domain.checks.payload import encode
from leasehold.domain.job import Job, Question
from leasehold.domain.records import OpenQuestion
from leasehold.operations.arguments import Actor, Answer, JobId, Limit, Name, Named
from leasehold.operations.notify import notify_workers
from leasehold.operations.verb import Backend, read, verb


@verb(
    "question.answer",
    scope="operate",
    guard="job",
    http="POST /v1/jobs/{id}/questions/{key:path}/answer",
    after=notify_workers,
    rules=lambda backend, given: encode(given["value"], "answer"),
    audit=lambda given: {"key": given["key"]},
    examples={"value": {"approved": True}},
)
def answer(backend: Backend, job_id: JobId, key: Name, value: Answer, *, actor: Actor = None) -> Job:
    """Answer a question. A waiting job goes on; a paused one keeps the answer for its resume."""
    return backend.store.answer(job_id, key, encode(value, "answer"), actor)


@read("questions.list", guard="rows", http="GET /v1/questions")
def open_questions(
    backend: Backend, *, group: Named = None, queue: Named = None, task: Named = None, limit: Limit = 100
) -> list[OpenQuestion]:
    """Open questions, the oldest first."""
    return backend.store.open_questions(group, queue, task, limit)


@read("questions_of_job.list", guard="job", http="GET /v1/jobs/{id}/questions")
def questions(backend: Backend, job_id: JobId) -> list[Question]:
    """All that it has asked. Secret answers are left out."""
    return backend.store.questions(job_id)
