"""Verbs and reads of the questions that jobs ask."""

from __future__ import annotations

from leasehold.domain.checks.payload import encode
from leasehold.domain.job import Job
from leasehold.domain.questions import OpenQuestion, Question
from leasehold.operations.arguments import Actor, Answer, JobId, Limit, Named, QuestionKey
from leasehold.operations.verb import Backend, notify_workers, read, verb


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
def answer(backend: Backend, job_id: JobId, key: QuestionKey, value: Answer, *, actor: Actor = None) -> Job:
    """Answer a question. A waiting job continues; a paused one keeps the answer."""
    return backend.store.answer(job_id, key, encode(value, "answer"), actor)


@read("questions.list", guard="rows", http="GET /v1/questions")
def open_questions(
    backend: Backend, *, group: Named = None, queue: Named = None, task: Named = None, limit: Limit = 100
) -> list[OpenQuestion]:
    """List open questions, oldest first."""
    return backend.store.open_questions(group, queue, task, limit)


@read("questions_of_job.list", guard="job", http="GET /v1/jobs/{id}/questions")
def questions(backend: Backend, job_id: JobId) -> list[Question]:
    """List the questions of a job. Secret answers are left out."""
    return backend.store.questions(job_id)
