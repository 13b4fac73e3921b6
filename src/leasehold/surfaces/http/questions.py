"""/v1/questions: what jobs ask, and the answers to it."""

from __future__ import annotations

from fastapi import APIRouter

from leasehold.surfaces.http import asked, told
from leasehold.surfaces.http.jobs import job_of
from leasehold.surfaces.http.route import Who, needs


def add_to(router: APIRouter) -> None:
    @router.get("/v1/questions", dependencies=needs("read"), tags=["questions"])
    def list_questions(
        who: Who,
        group: asked.Named = "",
        queue: asked.Named = "",
        kind: asked.Named = "",
        limit: asked.Limit = 100,
    ) -> list[told.OpenQuestion]:
        """Open questions, the oldest first."""
        rows = who.operations.open_questions(
            group=group or None, queue=queue or None, kind=kind or None, limit=limit
        )
        return [told.OpenQuestion.model_validate(row) for row in rows if who.access.may_use_queue(row.queue)]

    @router.get("/v1/jobs/{id}/questions", dependencies=needs("read"), tags=["questions"])
    def list_questions_of_job(id: str, who: Who) -> list[told.Question]:
        """All that it has asked. Secret answers are left out."""
        return [told.Question.model_validate(one) for one in who.job(id).questions()]

    @router.post(
        "/v1/jobs/{id}/questions/{key:path}/answer", dependencies=needs("operate"), tags=["questions"]
    )
    def answer_question(id: str, key: str, body: asked.Answer, who: Who) -> told.Job:
        """Answer a question. A waiting job goes on; a paused one keeps the answer for its resume."""
        return job_of(who.job(id).answer(key, body.value, actor=who.actor))
