"""What a caller is told: the values of `domain/records.py` and its neighbours, without what is ours alone."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from leasehold.domain.explanation import Cause
from leasehold.domain.groups import GroupState
from leasehold.domain.groups import GroupStatus as Status
from leasehold.domain.records import Scope, Verdict
from leasehold.domain.states import State
from leasehold.domain.stop import StopMode

Decoded = BeforeValidator(lambda text: json.loads(text) if isinstance(text, str) else text)
"""Of what is encoded JSON where it comes from."""

ID = Annotated[str, Field(examples=["019a7c1e-5b0c-7d11-9a3e-0f2d6c4b8a10"])]


class Record(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class Created(Record):
    """The new job, or the one that was there already."""

    id: ID
    created: bool


class CreatedBatch(Record):
    jobs: list[Created]


class Progress(Record):
    done: float
    total: float | None
    note: str
    at: datetime


class JobSummary(Record):
    """A job as a list shows it."""

    id: ID
    task: str = Field(examples=["add"])
    queue: str = Field(examples=["default"])
    state: State
    reason: str | None
    priority: int
    created_at: datetime
    available_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    lane: str | None
    group: str | None
    tags: list[str]
    attempt: int
    failures: int
    crashes: int
    stop_requested: str | None
    worker: str | None
    lease_expires_at: datetime | None
    error: str | None


class JobPage(Record):
    jobs: list[JobSummary]
    next: str | None = Field(
        description="The cursor of the page that follows. A page may be short and yet have one."
    )


class Job(JobSummary):
    """Everything about a job but its result. Sensitive arguments are hidden."""

    args: Annotated[dict[str, Any], Decoded]
    unique_key: str | None
    deadline_at: datetime | None
    start_by: datetime | None
    retry_of: str | None
    progress: Progress | None = None


class Result(Record):
    id: ID
    state: Literal["succeeded"]
    result: Any


class NotYet(Record):
    """It has not ended; ask again."""

    id: ID
    state: State


class Hold(Record):
    """One thing that holds a job, with what would change it."""

    cause: Cause
    detail: str
    remedy: str


class Attempt(Record):
    number: int
    worker: str | None
    started_at: datetime
    ended_at: datetime | None
    outcome: str
    error: str | None


class HistoryEntry(Record):
    at: datetime
    event: str
    from_state: str
    to_state: str
    attempt: int
    actor: str | None
    detail: str | None


class Event(Record):
    seq: int
    kind: str
    data: Any
    key: str | None
    attempt: int
    at: datetime | None


class Events(Record):
    """What a job has told, in order; go on with `since` = the last `seq`."""

    state: State
    attempt: int
    events: list[Event]


class Log(Record):
    """The last lines of an attempt; `cut` characters before them were dropped."""

    attempt: int
    text: str
    cut: int


class Question(Record):
    key: str
    text: str
    schema_: Annotated[Any, Decoded] = Field(validation_alias="schema", serialization_alias="schema")
    status: str
    secret: bool
    asked_at: datetime
    expires_at: datetime | None
    answer: Annotated[Any, Decoded] = Field(description="Never that of a secret one.")


class OpenQuestion(Record):
    job_id: ID
    task: str
    queue: str
    group: str | None
    state: State
    key: str
    text: str
    schema_: Annotated[Any, Decoded] = Field(validation_alias="schema", serialization_alias="schema")
    secret: bool
    asked_at: datetime
    expires_at: datetime | None


class GroupResult(Record):
    """One that is kept as a file has only its name here; GET /v1/jobs/{id}/result reads it."""

    id: ID
    task: str
    result: Any
    result_ref: str | None


class GroupError(Record):
    id: ID
    task: str
    state: State
    error: str | None


class GroupRun(Record):
    id: ID
    task: str
    attempt: int
    progress: Progress | None
    emitted: list[Event]


class GroupStopped(Record):
    scope: dict[str, Any]
    mode: StopMode
    reason: str | None
    actor: str | None
    at: datetime


class Group(Record):
    """A group at one moment. Give `version` back as `since` to wait for what comes after it."""

    name: str
    state: GroupState
    reason: str | None
    version: int
    changed: bool
    changed_by: str | None
    changed_at: datetime | None
    last_stop: GroupStopped | None
    total: int
    succeeded: int
    live: int
    progress: float
    counts: dict[str, dict[State, int]]
    results: list[GroupResult]
    errors: list[GroupError]
    cap: int
    questions: int
    runs: list[GroupRun]
    noted: int

    @classmethod
    def of(cls, status: Status) -> Group:
        """Without reading files: a group may have many results, and whoever follows it looks at few of them."""
        names = cls.model_fields.keys() - {"results"}
        results = [
            {
                "id": one.id,
                "task": one.task,
                "result": None if one.result_ref is not None else one.result,
                "result_ref": one.result_ref,
            }
            for one in status.results
        ]
        return cls.model_validate({name: getattr(status, name) for name in names} | {"results": results})


class StopReport(Record):
    scope: dict[str, Any]
    mode: StopMode
    reason: str | None
    cancelled_counts: dict[str, dict[State, int]]
    flagged: dict[str, int]
    still_running: list[ID]
    unaffected_tasks: list[str]
    held: bool
    dry_run: bool


class Changed(Record):
    """False: it was so before."""

    changed: bool


class Pause(Record):
    name: str
    paused_by: str | None
    reason: str | None
    paused_at: datetime
    until: datetime | None


class PauseOf(Pause):
    scope: Scope


class Queue(Record):
    """One task in one queue."""

    queue: str
    task: str
    workers: int = Field(description="Live ones that serve the queue and know the task.")
    queue_pause: Pause | None
    task_pause: Pause | None
    counts: dict[State, int]


class Task(Record):
    """A registered task."""

    name: str
    queue: str
    description: str
    arguments: dict[str, Any] = Field(description="JSON Schema of its arguments.")


class Lane(Record):
    lane: str
    id: ID
    state: State
    task: str
    error: str | None
    reason: str | None
    worker: str | None


class SlotHolder(Record):
    job_id: ID
    units: int
    task: str
    worker: str | None


class Slot(Record):
    name: str
    limit: int
    used: int
    holders: list[SlotHolder]


class Rate(Record):
    key: str
    limit: str
    burst: int
    next_in: float | None
    closed: bool
    closed_until: datetime | None
    closed_by: str | None
    closed_reason: str | None


class Schedule(Record):
    name: str
    task: str
    args: Annotated[dict[str, Any], Decoded]
    every: float | None
    cron: str | None
    tz: str
    missed: str
    overlap: str
    source: str
    next_at: datetime
    last_at: datetime | None
    last_job: str | None
    passed: int
    paused: bool
    paused_by: str | None
    reason: str | None
    orphaned: bool


class Worker(Record):
    name: str
    queues: list[str]
    tasks: list[str]
    tenants: list[str]
    concurrency: int
    running: int
    draining: bool
    version: str
    started_at: datetime | None
    seen_at: datetime | None


class Live(Record):
    status: Literal["ok"] = "ok"


class Ready(Record):
    """What was looked at, and how it stands. Details are in the server's log."""

    status: Literal["ok", "bad"]
    checks: dict[str, Verdict]
