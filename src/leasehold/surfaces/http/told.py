"""What a caller is told: the values of `domain/views.py` and its neighbours, without what is ours alone."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from leasehold.domain.explanation import Cause
from leasehold.domain.groups import GroupState
from leasehold.domain.groups import GroupStatus as Status
from leasehold.domain.states import State
from leasehold.domain.stop import StopMode
from leasehold.domain.views import Scope, Verdict

Decoded = BeforeValidator(lambda text: json.loads(text) if isinstance(text, str) else text)
"""Of what is encoded JSON where it comes from."""

ID = Annotated[str, Field(examples=["019a7c1e-5b0c-7d11-9a3e-0f2d6c4b8a10"])]


class Told(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class Created(Told):
    """The new job, or the one that was there already."""

    id: ID
    created: bool


class CreatedBatch(Told):
    jobs: list[Created]


class Progress(Told):
    done: float
    total: float | None
    note: str
    at: datetime


class JobSummary(Told):
    """A job as a list shows it."""

    id: ID
    kind: str = Field(examples=["add"])
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
    group: str | None = Field(validation_alias="group_name")
    tags: list[str]
    attempt: int
    failures: int
    crashes: int
    stop_requested: str | None
    worker: str | None = Field(validation_alias="lease_owner")
    lease_expires_at: datetime | None
    error: str | None


class JobPage(Told):
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


class Result(Told):
    id: ID
    state: Literal["succeeded"]
    result: Any


class NotYet(Told):
    """It has not ended; ask again."""

    id: ID
    state: State


class Hold(Told):
    """One thing that holds a job, with what would change it."""

    cause: Cause
    detail: str
    remedy: str


class Attempt(Told):
    number: int
    worker: str | None = Field(validation_alias="owner")
    started_at: datetime
    ended_at: datetime | None
    outcome: str
    error: str | None


class HistoryEntry(Told):
    at: datetime
    event: str
    from_state: str
    to_state: str
    attempt: int
    actor: str | None
    detail: str | None


class Event(Told):
    seq: int
    kind: str
    data: Any
    key: str | None
    attempt: int
    at: datetime | None


class Events(Told):
    """What a job has told, in order; go on with `since` = the last `seq`."""

    state: State
    attempt: int
    events: list[Event]


class Log(Told):
    """The last lines of an attempt; `cut` characters before them were dropped."""

    attempt: int
    text: str
    cut: int


class Question(Told):
    key: str
    text: str
    schema_: Annotated[Any, Decoded] = Field(validation_alias="schema", serialization_alias="schema")
    status: str
    secret: bool
    asked_at: datetime
    expires_at: datetime | None
    answer: Annotated[Any, Decoded] = Field(description="Never that of a secret one.")


class OpenQuestion(Told):
    job_id: ID
    kind: str
    queue: str
    group: str | None = Field(validation_alias="group_name")
    state: State
    key: str
    text: str
    schema_: Annotated[Any, Decoded] = Field(validation_alias="schema", serialization_alias="schema")
    secret: bool
    asked_at: datetime
    expires_at: datetime | None


class GroupResult(Told):
    """One that is kept as a file has only its name here; GET /v1/jobs/{id}/result reads it."""

    id: ID
    kind: str
    result: Any
    result_ref: str | None


class GroupError(Told):
    id: ID
    kind: str
    state: State
    error: str | None


class GroupRun(Told):
    id: ID
    kind: str
    attempt: int
    progress: Progress | None
    emitted: list[Event]


class GroupStopped(Told):
    scope: dict[str, Any]
    mode: StopMode
    reason: str | None
    actor: str | None
    at: datetime


class Group(Told):
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
                "kind": one.kind,
                "result": None if one.result_ref is not None else one.result,
                "result_ref": one.result_ref,
            }
            for one in status.results
        ]
        return cls.model_validate({name: getattr(status, name) for name in names} | {"results": results})


class StopReport(Told):
    scope: dict[str, Any]
    mode: StopMode
    reason: str | None
    cancelled_counts: dict[str, dict[State, int]]
    flagged: dict[str, int]
    still_running: list[ID]
    unaffected_kinds: list[str]
    held: bool
    dry_run: bool


class Changed(Told):
    """False: it was so before."""

    changed: bool


class Pause(Told):
    name: str
    paused_by: str | None
    reason: str | None
    paused_at: datetime
    until: datetime | None


class PauseOf(Pause):
    scope: Scope


class Queue(Told):
    """One task in one queue."""

    queue: str
    kind: str
    workers: int = Field(description="Live ones that serve the queue and know the task.")
    queue_pause: Pause | None
    kind_pause: Pause | None
    counts: dict[State, int]


class Kind(Told):
    """A registered task."""

    name: str
    queue: str
    description: str
    arguments: dict[str, Any] = Field(description="JSON Schema of its arguments.")


class Lane(Told):
    lane: str
    id: ID
    state: State
    kind: str
    error: str | None
    reason: str | None
    worker: str | None = Field(validation_alias="lease_owner")


class SlotHolder(Told):
    job_id: ID
    units: int
    kind: str
    worker: str | None = Field(validation_alias="owner")


class Slot(Told):
    name: str
    limit: int
    used: int
    holders: list[SlotHolder]


class Rate(Told):
    key: str
    limit: str
    burst: int
    next_in: float | None
    closed: bool
    closed_until: datetime | None
    closed_by: str | None
    closed_reason: str | None


class Schedule(Told):
    name: str
    kind: str
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


class Worker(Told):
    owner: str
    queues: list[str]
    kinds: list[str]
    tenants: list[str]
    concurrency: int
    running: int
    draining: bool
    version: str
    started_at: datetime | None
    seen_at: datetime | None


class Live(Told):
    status: Literal["ok"] = "ok"


class Ready(Told):
    """What was looked at, and how it stands. Details are in the server's log."""

    status: Literal["ok", "bad"]
    checks: dict[str, Verdict]
