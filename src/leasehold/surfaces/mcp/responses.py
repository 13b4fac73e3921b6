"""Response models of the MCP tools, and waiting for a job without a thread.

The responses are short, because a model reads every word.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from leasehold.domain.groups import GroupState
from leasehold.domain.job import Job as StoredJob
from leasehold.domain.questions import Question as JobQuestion
from leasehold.domain.records import Cause
from leasehold.domain.states import ENDED, State
from leasehold.operations import jobs, questions
from leasehold.surfaces.guard import Caller
from leasehold.threads import to_thread

LONGEST_RESULT = 20_000
"""Characters of a result that a response may contain."""
LONGEST_ERROR = 1_000
_PARKED = frozenset({State.PENDING, State.WAITING, State.PAUSED})


class Record(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class Task(Record):
    name: str
    queue: str
    description: str
    arguments: dict[str, Any] = Field(description="JSON Schema of its arguments.")


class Tasks(Record):
    tasks: list[Task]


class Question(Record):
    key: str
    text: str
    answer_schema: Any = Field(description="JSON Schema of the answer; null: anything.")
    secret: bool = Field(description="True: a person must answer it elsewhere.")


class Job(Record):
    id: str
    task: str
    state: State
    group: str | None = None
    attempt: int = 0
    progress: str | None = None
    result: Any = Field(default=None, description="The result, once the job has succeeded.")
    error: str | None = None
    questions: list[Question] = Field(default_factory=list, description="The open questions.")
    next_poll_s: float | None = Field(
        default=None, description="Seconds after which to poll again; null: the job has ended."
    )
    hint: str | None = Field(default=None, description="What to do next.")


class Created(Job):
    created: bool = Field(default=True, description="False: the job existed already.")


class JobLine(Record):
    id: str
    task: str
    queue: str
    state: State
    group: str | None
    created_at: datetime
    error: str | None


class Jobs(Record):
    jobs: list[JobLine]
    next: str | None = Field(description="cursor of the next page.")


class Hold(Record):
    cause: Cause
    detail: str
    remedy: str


class Holds(Record):
    id: str
    state: State
    holds: list[Hold] = Field(description="The causes that keep it from running, in order; empty: none.")


class QuestionOfJob(Question):
    job_id: str
    task: str


class Questions(Record):
    questions: list[QuestionOfJob]


class Group(Record):
    group: str
    state: GroupState
    version: int = Field(description="Pass it as since in the next call.")
    total: int
    live: int
    succeeded: int
    progress: float
    counts: dict[str, dict[State, int]]
    errors: list[str] = Field(description="The newest errors, as id and message.")
    open_questions: int
    next_poll_s: float | None


class StopResult(Record):
    cancelled_counts: dict[str, dict[State, int]]
    flagged: dict[str, int]
    still_running: list[str]
    unaffected_tasks: list[str]
    dry_run: bool


def poll_after(job: StoredJob) -> float:
    """Seconds until a client should poll again: few for a young job, many for an old one, 5 for a job that waits."""
    if job.state in _PARKED:
        return 5.0
    age = (datetime.now(UTC) - job.created_at).total_seconds()
    return round(min(30.0, max(0.5, age / 20)), 1)


def job_of(caller: Caller, job: StoredJob) -> Job:
    """The response for a job, with its progress, result and questions. Blocks."""
    state = job.state
    found = Job(
        id=job.id,
        task=job.task,
        state=state,
        group=job.group,
        attempt=job.attempt,
        progress=progress_of(caller, job),
        error=first_lines(job.error) if state is not State.SUCCEEDED else None,
    )
    if state is State.SUCCEEDED:
        text = caller.operations.result_text(job) or "null"
        if len(text) > LONGEST_RESULT:
            found.hint = (
                f"the result has {len(text):,} characters: too many to show; `leasehold jobs result {job.id}`"
            )
        else:
            found.result = json.loads(text)
    if state is State.WAITING:
        found.questions = [question_of(one) for one in open_questions(caller, job)]
    if state not in ENDED:
        found.next_poll_s = poll_after(job)
    found.hint = found.hint or _hint(found)
    return found


def open_questions(caller: Caller, job: StoredJob) -> list[JobQuestion]:
    return [one for one in caller.operations.call(questions.questions, job.id) if one.status == "open"]


def question_of(question: Any) -> Question:
    return Question(
        key=question.key,
        text=question.text,
        answer_schema=None if question.schema is None else json.loads(question.schema),
        secret=question.secret,
    )


def progress_of(caller: Caller, job: StoredJob) -> str | None:
    progress = caller.operations.call(jobs.progress, job.id)
    if progress is None:
        return None
    of = "" if progress.total is None else f"/{progress.total:g}"
    return f"{progress.done:g}{of} {progress.note}".strip()


def first_lines(text: str | None) -> str | None:
    return text if text is None or len(text) <= LONGEST_ERROR else text[:LONGEST_ERROR] + " …"


def _hint(job: Job) -> str | None:
    match job.state:
        case State.WAITING if any(not one.secret for one in job.questions):
            return "it waits for answers: call answer_question"
        case State.WAITING:
            return "it waits for a secret, which a person must give with `leasehold questions answer`"
        case State.PAUSED | State.FAILED | State.TIMED_OUT:
            return "resume_job continues it"
        case State.QUEUED | State.PENDING:
            return "explain_job says what it waits for"
        case _:
            return None


# -- waiting -----------------------------------------------------------------------------------------------------------

SETTLED = {*ENDED, State.WAITING, State.PAUSED}
"""States that a job does not leave by itself."""


async def settled(caller: Caller, id: str, seconds: float) -> StoredJob:
    """Return the job as soon as it has ended, waits or is paused, or when the time is over."""
    until = time.monotonic() + seconds
    while True:
        mark = await to_thread(caller.operations.job_mark, id) if seconds else None
        job = await to_thread(caller.job, id)
        left = until - time.monotonic()
        if job.state in SETTLED or left <= 0 or mark is None:
            return job
        await caller.operations.await_job(job.id, mark, left)
