"""The types of verbs' arguments: checks, limits and help, the same on every surface."""

from __future__ import annotations

import os
import time
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field

from leasehold.domain.budgets import (
    LARGEST_AMOUNT,
    LONGEST_KEY,
    BudgetOwner,
    checked_amounts,
    checked_limits,
    checked_owner,
)
from leasehold.domain.bulk import BULK_STATES
from leasehold.domain.checks.ids import checked_id, make_id
from leasehold.domain.checks.payload import LONGEST_CURSOR
from leasehold.domain.checks.texts import (
    LONGEST_NAME,
    checked_actor,
    checked_criterion,
    checked_name,
    checked_reason,
    checked_tenant,
    storable_name,
)
from leasehold.domain.checks.times import checked_instant
from leasehold.domain.errors import InvalidInput, JobNotFound
from leasehold.domain.groups import GroupState, checked_group_state
from leasehold.domain.limits import checked_number, parse_rate
from leasehold.domain.states import State
from leasehold.operations.verb import Check, Hidden, Internal

ID = r"^[0-9A-Fa-f-]{32,36}$"
EXAMPLE_ID = "019a7c1e-5b0c-7d11-9a3e-0f2d6c4b8a10"


def checked_job_id(job_id: object) -> str:
    """Return the id in canonical form. A text that is not an id raises JobNotFound, because people cut ids off."""
    try:
        return checked_id(job_id)
    except InvalidInput:
        if not isinstance(job_id, str):
            raise
        raise JobNotFound(job_id, "a job's id is a UUID, as enqueue returned it") from None


def new_id() -> str:
    return make_id(time.time_ns() // 1_000_000, os.urandom(10))


def _text(value: object) -> object:
    """Refuse a number, which pydantic would take for a time."""
    if isinstance(value, str):
        return value
    raise ValueError("give a time as text, with its zone: 2026-11-17T09:00:00Z")


def _no_bool(value: object) -> object:
    """Refuse True and False, which Python takes for numbers."""
    if isinstance(value, bool):
        raise ValueError("give a number")
    return value


def _known_verb(word: str) -> str:
    if word not in BULK_STATES:
        raise ValueError(f"give one of {', '.join(BULK_STATES)}")
    return word


def _name_verbs(schema: dict[str, Any]) -> None:
    schema["enum"] = list(BULK_STATES)


# -- ids, actors and reasons -------------------------------------------------------------------------------------------
JobId = Annotated[str, Check(lambda value, _: checked_job_id(value))]
NewId = Annotated[str, Internal, Check(lambda value, _: value or new_id())]
"""The id of the job that the verb creates; empty: a new id."""
Actor = Annotated[str | None, Internal, Check(lambda value, _: checked_actor(value))]
Reason = Annotated[
    str | None,
    Check(lambda value, _: checked_reason(value)),
    Field(max_length=16_384, description="Kept in the history."),
]

# -- names -------------------------------------------------------------------------------------------------------------
Name = Annotated[str, Check(checked_name)]
GroupName = Annotated[str, Check(lambda value, _: checked_name(value, "group"))]
QuestionKey = Annotated[str, Check(checked_name), Field(description="Which of the job's questions.")]
TaskName = Annotated[str, Check(lambda value, _: checked_name(value, "name"))]
LaneName = Annotated[str, Check(lambda value, _: storable_name(value, "lane"))]
LimitName = Annotated[str, Check(storable_name)]
QueueName = Annotated[str, Check(lambda value, _: checked_name(value, "queue"))]
ScheduleName = Annotated[str, Check(lambda value, _: checked_name(value, "schedule"))]
TenantName = Annotated[str, Check(lambda value, _: checked_tenant(value))]

# -- values ------------------------------------------------------------------------------------------------------------
Args = Annotated[dict[str, Any] | None, Hidden, Field(description="Other arguments than before.")]
Fresh = Annotated[bool, Field(strict=True, description="Forget its stored steps and its checkpoint.")]
Answer = Annotated[Any, Hidden, Field(description="It must fit the question's schema.")]
Units = Annotated[
    int,
    Check(lambda value, name: checked_number(value, name, 0)),
    Field(strict=True, ge=0, le=1_000_000, description="Units; 0 closes it."),
]
RateText = Annotated[
    str,
    Check(lambda value, name: parse_rate(value, name)[0]),
    Field(min_length=1, max_length=100, description="Such as 60/min, 5/s, 3/10s."),
]
Burst = Annotated[
    int,
    Field(strict=True, ge=1, le=1_000_000, description="How many may start at once after a quiet time."),
]
Number = Annotated[float, BeforeValidator(_no_bool), Field(strict=True)]
Duration = Annotated[
    Number | str, Field(description='Seconds, or text such as "10m".', examples=["10m", 600])
]
Instant = Annotated[AwareDatetime, BeforeValidator(_text)]
DueTime = Annotated[
    AwareDatetime,
    BeforeValidator(_text),
    Check(checked_instant),
    Field(description="When it is due; a time in the past means now."),
]
Unit = Annotated[str, Field(min_length=1, max_length=LONGEST_KEY)]
Amount = Annotated[int, Field(strict=True, ge=0, le=LARGEST_AMOUNT)]
Amounts = Annotated[
    dict[Unit, Amount],
    Check(lambda value, _: checked_amounts(value, "top_up")),
    Field(min_length=1, max_length=100, description="By how much each limit is raised."),
]
Limits = Annotated[
    dict[Unit, Amount | None],
    Check(lambda value, _: checked_limits(value)),
    Field(min_length=1, max_length=100, description="By unit; null takes a limit away."),
]

BulkWord = Annotated[str, AfterValidator(_known_verb), Field(json_schema_extra=_name_verbs)]
"""A verb on many jobs. The table is read at each use, because an app may add verbs."""

# -- filters and cursors of lists --------------------------------------------------------------------------------------
Named = Annotated[str | None, Check(checked_criterion), Field(max_length=LONGEST_NAME)]
"""A name as a filter."""
States = Annotated[list[State], Field(max_length=20, description="May be repeated.")]
OfGroupState = Annotated[
    GroupState | None, Check(lambda value, _: checked_group_state(value)), Field(description="Empty: any.")
]
OfOwner = Annotated[
    BudgetOwner | None, Check(lambda value, _: checked_owner(value)), Field(description="Empty: of both.")
]
Limit = Annotated[int, Field(ge=1, le=500, description="At most this many.")]
Since = Annotated[int, Field(ge=0, le=2**53, description="Only what came after this number.")]
AttemptNumber = Annotated[int, Field(ge=0, le=2**31 - 1, description="0: the newest that has logged.")]
Cursor = Annotated[
    str | None, Field(pattern=rf"^$|{ID}", description="`next` of the page before.", examples=[EXAMPLE_ID])
]
PageCursor = Annotated[
    str | None,
    Field(pattern=r"^[A-Za-z0-9_-]*$", max_length=LONGEST_CURSOR, description="`next` of the page before."),
]
SeqCursor = Annotated[
    str | None,
    Field(pattern="^[0-9]{0,18}$", description="`next` of the page before.", examples=["4711"]),
]
