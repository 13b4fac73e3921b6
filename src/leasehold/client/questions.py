"""`app.questions`: questions that jobs ask, and their answers."""

from __future__ import annotations

from typing import Any

from leasehold.client.aio import aio
from leasehold.client.job import FindTask, Job
from leasehold.domain.records import OpenQuestion
from leasehold.operations import questions
from leasehold.operations.local import Operator


class Questions:
    """The questions of all jobs."""

    def __init__(self, operator: Operator, find_task: FindTask) -> None:
        self._operator = operator
        self._find_task = find_task

    def list(
        self,
        *,
        group: str | None = None,
        queue: str | None = None,
        task: str | None = None,
        limit: int = 100,
    ) -> list[OpenQuestion]:
        """List open questions, oldest first."""
        return self._operator.call(questions.open_questions, group=group, queue=queue, task=task, limit=limit)

    alist = aio(list)

    def answer(self, job_id: str, key: str, value: Any, *, actor: str | None = None) -> Job[Any]:
        """Answer a question with a JSON value. A waiting job goes on; a paused one keeps the answer. Raises
        InvalidAnswer if the value does not fit the question, which then stays open."""
        row = self._operator.call(questions.answer, job_id, key, value, actor=actor)
        return Job(row.id, self._operator, self._find_task, row)

    aanswer = aio(answer)
