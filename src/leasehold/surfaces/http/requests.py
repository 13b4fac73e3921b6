"""Request models of the HTTP API: bodies, parameters and names in paths; and the links in responses."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StrictBool
from starlette.convertors import StringConvertor, register_url_convertor

from leasehold.domain.checks.texts import LONGEST_NAME
from leasehold.domain.job import HIGHEST_PRIORITY, LOWEST_PRIORITY
from leasehold.domain.states import State
from leasehold.domain.stop import StopMode
from leasehold.operations.arguments import ID, BulkWord, Duration, Instant, Number, Reason

MOST_IN_BATCH = 1000
"""Jobs in one batch."""
MOST_IN_BULK = 10_000
"""Jobs that one bulk request may change."""
LONGEST_WAIT = 60.0
"""Seconds. Many proxies give up on a request soon after."""

Wait = Annotated[float, Query(ge=0, le=LONGEST_WAIT, description="Seconds to wait for a change.")]
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class JobCall(Body):
    """A call of a registered task. Options that are left out come from the task's settings."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"task": "add", "args": {"a": 1, "b": 2}, "delay": "10m", "group": "task-42"}]
        },
    )
    task: Annotated[str, Field(min_length=1, max_length=LONGEST_NAME, description="The name of the task.")]
    args: dict[str, Any] = Field(default_factory=dict, description="Its arguments, by name.")
    delay: Duration | None = None
    at: Instant | None = Field(default=None, description="When the job is due; instead of a delay.")
    priority: Annotated[int, Field(strict=True, ge=LOWEST_PRIORITY, le=HIGHEST_PRIORITY)] | None = None
    group: Name | None = None
    tags: Annotated[list[Name], Field(max_length=50)] | None = None
    unique: Annotated[str, Field(min_length=1, max_length=16_384)] | None = Field(
        default=None, description="Its unique key."
    )


class Batch(Body):
    """Jobs that are stored all or none, in their order."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"jobs": [{"task": "add", "args": {"a": 1, "b": 2}}]}]},
    )
    jobs: Annotated[list[JobCall], Field(min_length=1, max_length=MOST_IN_BATCH)]


class Answer(Body):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"value": {"approved": True}}]})
    value: Any = Field(description="It must fit the question's schema.")


class StopGroup(Body):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"mode": "graceful", "reason": "session completed"}]}
    )
    tasks: Annotated[list[Name], Field(min_length=1, max_length=100)] | None = Field(
        default=None, description="Only jobs of these tasks."
    )
    mode: StopMode = "graceful"
    reason: Reason = None
    wait: Annotated[Number, Field(ge=0, le=LONGEST_WAIT)] = 30.0
    dry_run: StrictBool = False
    hold: StrictBool = Field(default=False, description="Refuse new jobs until the group is released.")


class StopJobs(StopGroup):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"queue": "agents", "mode": "immediate", "dry_run": True}]},
    )
    group: Name | None = None
    queue: Name | None = None
    tasks: Annotated[list[Name], Field(min_length=1, max_length=100)] | None = None
    lane: Annotated[str, Field(min_length=1, max_length=16_384)] | None = None
    tags: Annotated[list[Name], Field(min_length=1, max_length=50)] | None = None
    everything: StrictBool = False
    hold: StrictBool = Field(
        default=False, description="For a whole group: refuse new jobs until the group is released."
    )


class BulkJobs(Body):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"verb": "cancel", "task": "add", "state": ["queued"], "dry_run": True}]
        },
    )
    verb: BulkWord
    state: Annotated[list[State], Field(max_length=20)] = Field(
        default_factory=list, description="Left out: the states that the verb is meant for."
    )
    queue: Name | None = None
    task: Name | None = None
    lane: Annotated[str, Field(min_length=1, max_length=16_384)] | None = None
    group: Name | None = None
    tag: Name | None = None
    everything: StrictBool = Field(default=False, description="Required if no other filter is given.")
    dry_run: StrictBool = Field(default=True, description="Only count the jobs; false: change them.")
    limit: Annotated[int, Field(strict=True, ge=1, le=MOST_IN_BULK)] = 1000
    cursor: Annotated[str, Field(pattern=ID)] | None = Field(
        default=None, description="`next` of the previous report."
    )


# -- names in paths ----------------------------------------------------------------------------------------------------

NAME_IN_PATH, ID_IN_PATH = "leasehold_name", "leasehold_id"
"""The names of the convertors in route paths."""

VERBS_IN_PATH = ("budget", "close", "open", "pause", "release", "resume", "run", "stop")


class _Name(StringConvertor):
    """Any text that does not end with a verb: `/v1/groups/a/stop` stops `a`; it does not name a group `a/stop`."""

    regex = ".*" + "".join(f"(?<!/{verb})" for verb in VERBS_IN_PATH)


class _Id(StringConvertor):
    """Any text except the words that have their own routes."""

    regex = "(?!(?:batch|bulk)$)[^/]+"


register_url_convertor(ID_IN_PATH, _Id())
register_url_convertor(NAME_IN_PATH, _Name())

# -- links -------------------------------------------------------------------------------------------------------------


def add_link(request: Request, response: Response, cursor: str | None) -> None:
    """Add the link to the next page, if there is one."""
    if cursor is not None:
        url = request.url.include_query_params(cursor=cursor)
        response.headers["Link"] = f'<{url.path}?{url.query}>; rel="next"'


def add_location(request: Request, response: Response, path: str, job_id: str) -> None:
    """Add the address of a new job. `path` is the beginning of the route's path below the mount point of the API."""
    mounted = request.url.path.rpartition(path)[0]
    response.headers["Location"] = f"{mounted}/v1/jobs/{job_id}"
