"""Rows to values, the same for every dialect."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, TypeVar

from leasehold.domain.job import Job
from leasehold.domain.policy import Policy
from leasehold.domain.states import Flag, State
from leasehold.stores.database.database import Row

TIMES = frozenset(
    {
        "created_at",
        "changed_at",
        "revoked_at",
        "available_at",
        "lane_at",
        "lease_expires_at",
        "execution_started_at",
        "first_started_at",
        "started_at",
        "finished_at",
        "deadline_at",
        "start_by",
        "now",
        "at",
        "paused_at",
        "until",
        "asked_at",
        "closed_at",
        "expires_at",
        "seen_at",
        "next_at",
        "stopped_at",
        "closed_until",
        "due_at",
        "since",
        "ended_at",
        "placed_at",
        "updated_at",
        "saved_at",
        "last_at",
        "minute",
    }
)
FLAGS = frozenset(
    {
        "limited",
        "ready",
        "halts_lane",
        "held",
        "shared",
        "blocked",
        "draining",
        "old",
        "met",
        "closed",
        "secret",
        "answered",
        "expired",
        "unique_for_ever",
        "for_ever",
        "settled",
        "halts",
        "paused",
        "at_start",
        "webhook",
        "allow_private",
    }
)

R = TypeVar("R")

COLUMNS = {"group": "group_name"}
"""Fields that have another name than their column."""
_COLUMNS_OF_JOB = frozenset(COLUMNS.get(f.name, f.name) for f in fields(Job))


def record_of(cls: type[R], row: Row, **more: Any) -> R:
    """A record from a row with a column for each field; `more` gives fields that need more than the column's value."""
    values = row | more
    for name, column in COLUMNS.items():
        if name in cls.__annotations__ and column in values:
            values[name] = values.pop(column)
    return cls(**values)


def job_from_row(row: Row) -> Job:
    """A row of the view job_row. Columns that this code does not know are passed over: a newer schema may have more."""
    values = {name: value for name, value in row.items() if name in _COLUMNS_OF_JOB}
    values["state"] = State(values["state"])
    values["policy"] = Policy.load(values["policy"])
    values["tags"] = tags_of(values["tags"])
    if values["stop_requested"] is not None:
        values["stop_requested"] = Flag(values["stop_requested"])
    return record_of(Job, values)


def tags_of(text: str | None) -> tuple[str, ...]:
    """Unreadable text counts as no tags: a row that was edited by hand must not break a list for all others."""
    try:
        found = json.loads(text) if text else []
    except ValueError:
        return ()
    return tuple(map(str, found)) if isinstance(found, list) else ()
