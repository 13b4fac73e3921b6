"""Questions that jobs ask people, and their answers."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from leasehold.domain import operate
from leasehold.domain.checks.json_schema import first_problem
from leasehold.domain.checks.numbers import check_page
from leasehold.domain.checks.payload import check_text
from leasehold.domain.errors import InvalidAnswer, InvalidInput, InvalidState, JobNotFound
from leasehold.domain.job import Job
from leasehold.domain.questions import OpenQuestion, Question
from leasehold.domain.states import State
from leasehold.stores.database.database import Session
from leasehold.stores.database.places import as_stored, record_of
from leasehold.stores.verbs.groups import refuse_in_held_group
from leasehold.stores.verbs.locking import lock, lock_skip_locked
from leasehold.stores.verbs.writing import Verbs, write

LONGEST_LIST = 500


class QuestionVerbs(Verbs):
    """Questions that jobs ask people."""

    def answer(self, job_id: str, key: str, answer: str, actor: str | None = None) -> Job:
        """Answer an open question (encoded JSON). A waiting job is queued once it has no other open question; a paused
        job keeps the answer. An answer that does not fit the question's schema raises InvalidAnswer, and the question
        stays open."""
        value = _decoded(answer)

        def work(session: Session) -> Job:
            jobs, now = lock(session, [job_id])
            if job_id not in jobs or now is None:
                raise JobNotFound(job_id)
            refuse_in_held_group(session, jobs[job_id])
            return _answer(session, jobs[job_id], key, answer, value, actor, now)

        return self._database.transact(work)

    def questions(self, job_id: str) -> list[Question]:
        """All questions of the job in the order of asking, without secret answers."""
        return [Question(**row) for row in self._rows("list_questions", id=job_id)]

    def read_question(self, job_id: str, key: str) -> Question | None:
        """A question for the job's own attempt: with its answer, even a secret one, and expired if its time is over on
        the store's clock."""
        rows = self._rows("read_question", id=job_id, key=key)
        return Question(**rows[0]) if rows else None

    def open_questions(
        self, group: str | None = None, queue: str | None = None, task: str | None = None, limit: int = 100
    ) -> list[OpenQuestion]:
        """Open questions that can be answered, the oldest first."""
        check_page(limit, LONGEST_LIST)
        given = {"group": group, "queue": queue, "task": task}
        filters = {name: value for name, value in given.items() if value is not None}
        parts = [
            "list_open_questions",
            *(f"list_open_questions.where_{name}" for name in filters),
            "list_open_questions.page",
        ]
        rows = self._database.read(lambda session: session.listing(parts, limit=limit, **filters))
        return [record_of(OpenQuestion, row, state=State(row["state"])) for row in rows]

    def _expire_questions(self, ids: list[str]) -> list[Job]:
        """Close the expired questions of these jobs; returns the jobs that changed."""
        return self._database.transact(lambda session: _expire(session, ids)) if ids else []


def _answer(
    session: Session, job: Job, key: str, answer: str, value: Any, actor: str | None, now: datetime
) -> Job:
    operate.answer(job, key, now=now, actor=actor)  # raises if the job takes no answer
    rows = session.rows("read_question", id=job.id, key=key)
    question = Question(**rows[0]) if rows else None
    if question is not None and question.expired:
        raise InvalidState(job.id, "answer", job.state.value, f"question {key!r} has expired")
    if question is None or question.closed_at is not None:
        raise InvalidState(job.id, "answer", job.state.value, f"it has no open question {key!r}")
    problem = None if question.schema is None else first_problem(value, json.loads(question.schema))
    if problem is not None:
        raise InvalidAnswer(key, *problem)
    session.run("answer_question", id=job.id, key=key, answer=answer)
    still_open = _still_open(session, [job.id])
    move = operate.answer(job, key, now=now, actor=actor, still_asks=job.id in still_open)
    write(session, [move], now)
    return as_stored(move, now)


def _expire(session: Session, ids: list[str]) -> list[Job]:
    """Close expired questions. Locked jobs are left to the next sweep, so that this one does not wait."""
    jobs, now = lock_skip_locked(session, ids)
    if now is None:
        return []
    closed = session.rows("close_expired_questions", ids=sorted(jobs))
    # If several questions of a job expired at once, the last one lets the job go on.
    last = {row["job_id"]: row["key"] for row in closed}
    still_open = _still_open(session, sorted(last))
    moves = [
        operate.expire_question(
            jobs[row["job_id"]],
            row["key"],
            now=now,
            still_asks=row["job_id"] in still_open or last[row["job_id"]] != row["key"],
        )
        for row in closed
    ]
    write(session, moves, now)
    return [as_stored(move, now) for move in moves if move.job is not move.before]


def _still_open(session: Session, ids: list[str]) -> set[str]:
    """Which of these jobs have open questions now."""
    return {row[0] for row in session.tuples("find_jobs_with_open_questions", ids=ids)} if ids else set()


def _decoded(answer: str) -> Any:
    try:
        return json.loads(check_text(answer, "answer"))
    except json.JSONDecodeError as error:
        raise InvalidInput("answer", f"is not JSON ({error})", "encode it first") from None
