"""Rows to values and back, the same for every dialect."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from leasehold.domain.job import Job
from leasehold.domain.policy import Policy
from leasehold.domain.states import Flag, State

TIMES = frozenset(
    {
        "created_at",
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
        "changed_at",
        "closed_until",
    }
)
FLAGS = frozenset(
    {
        "limited",
        "halts_lane",
        "held",
        "shared",
        "blocked",
        "draining",
        "old",
        "awaited",
        "met",
        "closed",
        "secret",
        "answered",
        "expired",
    }
)

_JOB_FIELDS = frozenset(f.name for f in fields(Job))
_FIXED = frozenset(
    {
        "seq",
        "kind",
        "queue",
        "gate",
        "limited",
        "priority",
        "policy",
        "created_at",
        "lane",
        "lease_seconds",
        "unique_key",
        "unique_for",
        "group_name",
        "tags",
        "awaited",
        "deadline_at",
        "start_by",
        "retry_of",
        "trace",
    }
)
"""Given when the job was made, or kept by a statement of their own; no move changes them."""
_WRITTEN = tuple(f.name for f in fields(Job) if f.name not in _FIXED)


def job_from_row(row: dict[str, Any]) -> Job:
    """Columns that this code does not know are passed over: a newer schema may have more."""
    values = {name: value for name, value in row.items() if name in _JOB_FIELDS}
    values["state"] = State(values["state"])
    values["policy"] = Policy.load(values["policy"])
    values["tags"] = tuple(json.loads(values["tags"])) if values["tags"] else ()
    if values["stop_requested"] is not None:
        values["stop_requested"] = Flag(values["stop_requested"])
    return Job(**values)


def record_from_job(job: Job) -> dict[str, Any]:
    """What update_jobs writes."""
    return {name: getattr(job, name) for name in _WRITTEN}
