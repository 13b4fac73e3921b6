"""`api.questions`: what jobs ask, and the answers to it."""

from __future__ import annotations

from typing import Any

from leasehold.remote import decode
from leasehold.remote.exchange import Answer, get, once
from leasehold.remote.job import Job, answering
from leasehold.remote.transport import Line
from leasehold.types import OpenQuestion


class Questions:
    """`api.questions`: what jobs ask, and the answers."""

    def __init__(self, line: Line) -> None:
        self._line = line

    async def alist(
        self,
        *,
        group: str | None = None,
        queue: str | None = None,
        task: str | None = None,
        limit: int = 100,
    ) -> list[OpenQuestion]:
        ask = get("/v1/questions", group=group, queue=queue, task=task, limit=limit)
        return await self._line.arun(once(ask, decode.open_questions))

    def list(
        self,
        *,
        group: str | None = None,
        queue: str | None = None,
        task: str | None = None,
        limit: int = 100,
    ) -> list[OpenQuestion]:
        """Open questions, the oldest first."""
        ask = get("/v1/questions", group=group, queue=queue, task=task, limit=limit)
        return self._line.run(once(ask, decode.open_questions))

    def answer(self, job_id: str, key: str, value: Any) -> Job:
        """Answer a question with a JSON value. A waiting job goes on; a paused one keeps the answer. Raises
        InvalidAnswer when the value does not fit what was asked; the question stays open then."""
        return self._line.run(once(answering(job_id, key, value), self._answered))

    async def aanswer(self, job_id: str, key: str, value: Any) -> Job:
        return await self._line.arun(once(answering(job_id, key, value), self._answered))

    def _answered(self, answer: Answer) -> Job:
        row = decode.job(answer)
        return Job(row.id, self._line, row)
