"""What a caller sends: bodies and parameters. What is not listed here cannot be asked for over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, StrictBool

from leasehold.domain.budgets import LARGEST_AMOUNT, LONGEST_KEY
from leasehold.domain.bulk import BulkVerb
from leasehold.domain.checks.cursors import LONGEST_CURSOR
from leasehold.domain.checks.names import LONGEST_NAME
from leasehold.domain.job import HIGHEST_PRIORITY, LOWEST_PRIORITY
from leasehold.domain.states import State
from leasehold.domain.stop import StopMode

MOST_AT_ONCE = 1000
"""Jobs of a batch."""
MOST_IN_BULK = 10_000
"""Jobs that one request steers, one by one."""
LONGEST_WAIT = 60.0
"""Seconds. Proxies lose their patience soon after."""

_ID = r"^[0-9A-Fa-f-]{32,36}$"
_EXAMPLE_ID = "019a7c1e-5b0c-7d11-9a3e-0f2d6c4b8a10"

Wait = Annotated[float, Query(ge=0, le=LONGEST_WAIT, description="Seconds to wait for a change.")]
Limit = Annotated[int, Query(ge=1, le=500, description="At most this many.")]
Since = Annotated[int, Query(ge=0, le=2**53, description="Only what came after this number.")]
Cursor = Annotated[
    str, Query(pattern=rf"^$|{_ID}", description="`next` of the page before.", examples=[_EXAMPLE_ID])
]
PageCursor = Annotated[
    str,
    Query(pattern=r"^[A-Za-z0-9_-]*$", max_length=LONGEST_CURSOR, description="`next` of the page before."),
]
SeqCursor = Annotated[
    str, Query(pattern="^[0-9]{0,18}$", description="`next` of the page before.", examples=["4711"])
]
Named = Annotated[str, Query(max_length=LONGEST_NAME)]
"""A name to look for; empty: any."""

Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
Reason = Annotated[str | None, Field(max_length=16_384, description="Kept in the history.")]


def _text(value: object) -> object:
    """A number is no instant, though a library would make one of it."""
    if isinstance(value, str):
        return value
    raise ValueError("give a time as text, with its zone: 2026-11-17T09:00:00Z")


def _no_bool(value: object) -> object:
    """Python counts with True and False, JSON does not."""
    if isinstance(value, bool):
        raise ValueError("give a number")
    return value


Number = Annotated[float, BeforeValidator(_no_bool), Field(strict=True)]
Duration = Annotated[
    Number | str, Field(description='Seconds, or text such as "10m".', examples=["10m", 600])
]


Instant = Annotated[AwareDatetime, BeforeValidator(_text)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewJob(Body):
    """A call of a registered task. What is left out is as the task says."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"kind": "add", "args": {"a": 1, "b": 2}, "delay": "10m", "group": "task-42"}]
        },
    )
    kind: Annotated[str, Field(min_length=1, max_length=LONGEST_NAME, description="The name of the task.")]
    args: dict[str, Any] = Field(default_factory=dict, description="Its arguments, by name.")
    delay: Duration | None = None
    at: Instant | None = Field(default=None, description="When it may run; instead of a delay.")
    priority: Annotated[int, Field(strict=True, ge=LOWEST_PRIORITY, le=HIGHEST_PRIORITY)] | None = None
    group: Name | None = None
    tags: Annotated[list[Name], Field(max_length=50)] | None = None
    unique: Annotated[str, Field(min_length=1, max_length=16_384)] | None = Field(
        default=None, description="Its unique key."
    )


class Batch(Body):
    """Stored all or none, in the order given."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"jobs": [{"kind": "add", "args": {"a": 1, "b": 2}}]}]},
    )
    jobs: Annotated[list[NewJob], Field(min_length=1, max_length=MOST_AT_ONCE)]


class Why(Body):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"reason": "not needed any more"}]}
    )
    reason: Reason = None


class Resume(Body):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"fresh": True}]})
    args: dict[str, Any] | None = Field(default=None, description="Other arguments than before.")
    fresh: StrictBool = Field(default=False, description="Forget its stored steps and its checkpoint.")


class Answer(Body):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"value": {"approved": True}}]})
    value: Any = Field(description="It must fit the question's schema.")


class GroupStop(Body):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"mode": "graceful", "reason": "session completed"}]}
    )
    kinds: Annotated[list[Name], Field(min_length=1, max_length=100)] | None = Field(
        default=None, description="Only of these tasks."
    )
    mode: StopMode = "graceful"
    reason: Reason = None
    wait: Annotated[Number, Field(ge=0, le=LONGEST_WAIT)] = 30.0
    dry_run: StrictBool = False
    hold: StrictBool = Field(default=False, description="Refuse new jobs until it is released.")


class Stop(Body):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"queue": "agents", "mode": "immediate", "dry_run": True}]},
    )
    group: Name | None = None
    queue: Name | None = None
    kinds: Annotated[list[Name], Field(min_length=1, max_length=100)] | None = None
    lane: Annotated[str, Field(min_length=1, max_length=16_384)] | None = None
    tags: Annotated[list[Name], Field(min_length=1, max_length=50)] | None = None
    everything: StrictBool = False
    mode: StopMode = "graceful"
    reason: Reason = None
    wait: Annotated[Number, Field(ge=0, le=LONGEST_WAIT)] = 30.0
    dry_run: StrictBool = False
    hold: StrictBool = Field(
        default=False, description="Of a whole group: refuse new jobs until it is released."
    )


class Bulk(Body):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"verb": "cancel", "kind": "add", "states": ["queued"], "dry_run": True}]
        },
    )
    verb: BulkVerb
    states: Annotated[list[State], Field(max_length=20)] = Field(
        default_factory=list, description="Left out: those that the verb is meant for."
    )
    queue: Name | None = None
    kind: Name | None = None
    lane: Annotated[str, Field(min_length=1, max_length=16_384)] | None = None
    group: Name | None = None
    tag: Name | None = None
    everything: StrictBool = Field(default=False, description="Needed where nothing else is given.")
    dry_run: StrictBool = Field(default=True, description="Only count; false: do it.")
    limit: Annotated[int, Field(strict=True, ge=1, le=MOST_IN_BULK)] = 1000
    cursor: Annotated[str, Field(pattern=_ID)] | None = Field(
        default=None, description="`next` of the report before."
    )
    reason: Reason = None
    fresh: StrictBool = Field(default=False, description="Of resume: forget steps and checkpoints.")


class Closing(Body):
    """How long; with neither, until it is opened again."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"for": "1h", "reason": "deploy"}]},
        populate_by_name=True,
    )
    for_: Duration | None = Field(default=None, alias="for")
    until: Instant | None = None
    reason: Reason = None


Unit = Annotated[str, Field(min_length=1, max_length=LONGEST_KEY)]
Amount = Annotated[int, Field(strict=True, ge=0, le=LARGEST_AMOUNT)]


class TopUp(Body):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"amounts": {"tokens": 50_000}}]}
    )
    amounts: Annotated[dict[Unit, Amount], Field(min_length=1, max_length=100)] = Field(
        description="By how much each limit is raised."
    )


class GroupLimits(Body):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"limits": {"tokens": 1_000_000, "pages": None}}]}
    )
    limits: Annotated[dict[Unit, Amount | None], Field(min_length=1, max_length=100)] = Field(
        description="By unit; null takes a limit away."
    )


class SlotLimit(Body):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"limit": 4}]})
    limit: Annotated[int, Field(strict=True, ge=0, le=1_000_000, description="Units; 0 closes it.")]


class RateLimit(Body):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"limit": "60/min", "burst": 1}]}
    )
    limit: Annotated[str, Field(min_length=1, max_length=100)]
    burst: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] = 1
