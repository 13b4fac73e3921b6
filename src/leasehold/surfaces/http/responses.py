"""Response models that are not records of the domain: a created job, a result, a probe."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, create_model

from leasehold.domain import bulk, job, stream
from leasehold.domain.records import Verdict
from leasehold.domain.states import State
from leasehold.operations.arguments import BulkWord
from leasehold.operations.json_records import EXAMPLE_ID, Record, model


class Created(Record):
    """The new job, or the existing job with the same key (`created` is false)."""

    id: str = Field(examples=[EXAMPLE_ID])
    created: bool


class CreatedBatch(Record):
    jobs: list[Created]


Progress = model(stream.Progress)
_PROGRESS: Any = (Progress | None, None)
Job: Any = create_model(
    "Job",
    __base__=model(job.Job),
    __doc__="Everything about a job but its result. Sensitive arguments are hidden.",
    progress=_PROGRESS,
)
"""A job with its progress."""


BulkReport: Any = create_model(
    "BulkReport", __base__=model(bulk.BulkReport), __doc__=bulk.BulkReport.__doc__, verb=(BulkWord, ...)
)
"""A report that says in its schema which verbs there are."""


class Result(Record):
    id: str = Field(examples=[EXAMPLE_ID])
    state: Literal["succeeded"]
    result: Any


class NotYet(Record):
    """The job has not ended; request the result again."""

    id: str = Field(examples=[EXAMPLE_ID])
    state: State


class Changed(Record):
    """Whether the request changed anything."""

    changed: bool


class Live(Record):
    status: Literal["ok"] = "ok"


class Ready(Record):
    """The checks and their verdicts. Details are in the server's log."""

    status: Literal["ok", "bad"]
    checks: dict[str, Verdict]
