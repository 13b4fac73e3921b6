"""The arguments of our tools. A model reads their descriptions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from leasehold.domain.checks.names import LONGEST_NAME
from leasehold.domain.job import HIGHEST_PRIORITY, LOWEST_PRIORITY
from leasehold.domain.states import State
from leasehold.domain.stop import StopMode
from leasehold.operations.arguments import Args, Duration, Fresh, Reason

LONGEST_WAIT = 50.0
"""Seconds. Many clients give up on a call after a minute."""
USUAL_WAIT = 25.0

Id = Annotated[str, Field(min_length=1, max_length=64, description="Id of a job.")]
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
Wait = Annotated[
    float, Field(ge=0, le=LONGEST_WAIT, description="Seconds to wait for it; 0: respond at once.")
]
DryRun = Annotated[StrictBool, Field(description="Only report what would happen.")]


class Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Nothing(Arguments):
    pass


class EnqueueJob(Arguments):
    task: Annotated[Name, Field(description="Name of a task, as list_tasks shows it.")]
    args: Annotated[dict[str, Any], Field(default_factory=dict, description="Its arguments, by name.")]
    delay: Duration | None = None
    priority: Annotated[int, Field(ge=LOWEST_PRIORITY, le=HIGHEST_PRIORITY)] | None = None
    group: Annotated[Name | None, Field(description="To follow or stop many jobs together.")] = None
    tags: Annotated[list[Name], Field(max_length=50)] | None = None
    unique: Annotated[str, Field(min_length=1, max_length=16_384)] | None = Field(
        default=None, description="While a job with this key is live, no second one is made."
    )
    idempotency_key: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="The same key with the same arguments within a day makes one job."
    )
    wait_s: Wait = 0


class GetJob(Arguments):
    id: Id
    wait_s: Annotated[
        Wait, Field(description="Seconds to wait until it has ended or waits for an answer.")
    ] = 0


class OneJob(Arguments):
    id: Id


class ListJobs(Arguments):
    state: list[State] = Field(default_factory=list, description="Empty: any.")
    task: Name | None = None
    queue: Name | None = None
    group: Name | None = None
    tag: Name | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    cursor: Annotated[str, Field(max_length=64, description="next of the previous page.")] | None = None


class StopJob(Arguments):
    id: Id
    mode: Annotated[
        Literal["cancel", "pause", "interrupt"],
        Field(
            description="cancel: for good. pause: it can be resumed. interrupt: pause it if it runs, else cancel."
        ),
    ] = "cancel"
    reason: Reason = None
    dry_run: DryRun = False


class ResumeJob(Arguments):
    id: Id
    args: Args = None
    fresh: Fresh = False


class AnswerQuestion(Arguments):
    id: Id
    key: Annotated[Name, Field(description="Key of the question.")]
    value: Any = Field(description="The answer; it must fit the question's schema.")


class ListQuestions(Arguments):
    group: Name | None = None
    task: Name | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20


class GroupStatus(Arguments):
    group: Name
    wait_s: Annotated[Wait, Field(description="Seconds to wait until the version is not `since`.")] = 0
    since: Annotated[int, Field(ge=0, le=2**53)] | None = Field(
        default=None, description="version of an earlier response."
    )


class StopGroup(Arguments):
    group: Name
    tasks: Annotated[list[Name], Field(min_length=1, max_length=100)] | None = Field(
        default=None, description="Only jobs of these tasks."
    )
    mode: StopMode = "graceful"
    reason: Reason = None
    wait_s: Wait = 10.0
    hold: StrictBool = Field(default=False, description="Refuse new jobs of the group afterwards.")
    dry_run: DryRun = False
