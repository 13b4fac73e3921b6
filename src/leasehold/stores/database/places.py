"""Conversion of rows to values and back, for every dialect: jobs and their places, attempts, other records.

Nothing here touches a database. `assemble` and `row_of` are inverse to each other; the view `job_row` shows
the same as `assemble`, and tests/stores/test_places.py compares the two.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from leasehold.domain.job import Job
from leasehold.domain.lanes import STARTED
from leasehold.domain.outcome import Move
from leasehold.domain.policy import Policy
from leasehold.domain.records import AttemptRecord
from leasehold.domain.states import HOLDS_UNIQUE_KEY, LIVE, Flag, State
from leasehold.stores.database.database import Row

# -- rows to values ----------------------------------------------------------------------------------------------------

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
BOOLEANS = frozenset(
    {
        "limited",
        "ready",
        "halts_lane",
        "held",
        "alone",
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
"""Fields whose column has another name."""
_COLUMNS_OF_JOB = frozenset(COLUMNS.get(f.name, f.name) for f in fields(Job))


def record_of(cls: type[R], row: Row, **more: Any) -> R:
    """Build a record from a row with a column per field; `more` gives the fields that are not plain column values."""
    values = row | more
    for name, column in COLUMNS.items():
        if name in cls.__annotations__ and column in values:
            values[name] = values.pop(column)
    return cls(**values)


def job_from_row(row: Row) -> Job:
    """Build a job from a row of the view job_row. Unknown columns are ignored: a newer schema may have more."""
    values = {name: value for name, value in row.items() if name in _COLUMNS_OF_JOB}
    values["state"] = State(values["state"])
    values["policy"] = Policy.load(values["policy"])
    values["tags"] = tags_of(values["tags"])
    if values["stop_requested"] is not None:
        values["stop_requested"] = Flag(values["stop_requested"])
    return record_of(Job, values)


def tags_of(text: str | None) -> tuple[str, ...]:
    """Parse the column `tags`. Unreadable text counts as no tags: one row edited by hand must not break a list."""
    try:
        found = json.loads(text) if text else []
    except ValueError:
        return ()
    return tuple(map(str, found)) if isinstance(found, list) else ()


# -- the records of a job's attempts -----------------------------------------------------------------------------------

_WENT_WRONG = frozenset({"failed", "timed_out", "lost", "crashed", "abandoned", "breached", "snoozed"})
_ENDS = _WENT_WRONG | {"asked", "stopped", "handed_back", "detached"}
"""History events that end an attempt."""


def records_of(runs: Sequence[Row], history: Sequence[Row]) -> list[AttemptRecord]:
    """Build the attempt records, oldest first. An operator's later changes of the job are left out."""
    ends = {
        entry["token"]: entry
        for entry in history
        if entry["event"] in _ENDS and entry["from_state"] == "running"
    }
    return [_record(run, ends.get(run["token"])) for run in runs]


def _record(run: Row, end: Row | None) -> AttemptRecord:
    if end is None or run["outcome"] == "running":
        return AttemptRecord(
            run["number"], run["worker"], run["started_at"], run["ended_at"], run["outcome"], None
        )
    return AttemptRecord(
        attempt=run["number"],
        worker=run["worker"] if run["worker"] is not None else end["actor"],
        started_at=run["started_at"],
        ended_at=end["at"],
        outcome=end["event"],
        error=end["detail"] if end["event"] in _WENT_WRONG else None,
    )


# -- places ------------------------------------------------------------------------------------------------------------


class Place(StrEnum):
    """The tables that a job's moving row can be in, in the order of a job's life. A probe in this order finds
    a job in one pass: hot statements only move it forward."""

    READY = "ready"
    LANE = "lane_place"
    LEASE = "lease"
    PARKED = "parked"
    OUTCOME = "outcome"


PARKED_STATES = {State.PENDING: 1, State.WAITING: 2, State.PAUSED: 3, State.RUNNING: 4}
"""A running job that is parked is an orphan."""
ENDED_STATES = {State.SUCCEEDED: 1, State.CANCELLED: 2, State.FAILED: 3, State.TIMED_OUT: 4}
STOP_NUMBERS: dict[Flag | None, int] = {None: 0, Flag.FINISH: 1, Flag.PAUSE: 2, Flag.CANCEL: 3}
DEADLINE, START_BY = 1, 2
"""The two time limits of a job, as stored."""

_PARKED = {number: state for state, number in PARKED_STATES.items()}
_ENDED = {number: state for state, number in ENDED_STATES.items()}
STOP_OF_NUMBER = {number: flag for flag, number in STOP_NUMBERS.items()}


def place_of(job: Job) -> Place:
    if job.state is State.QUEUED:
        return Place.READY if job.lane is None else Place.LANE
    if job.state in ENDED_STATES:
        return Place.OUTCOME
    return Place.PARKED if job.state is not State.RUNNING or job.orphan else Place.LEASE


# -- rows to a job ----------------------------------------------------------------------------------------------------


def assemble(anchor: Row, place: Place, row: Row, side: Row) -> Job:
    """Build the job from its rows: the anchor, the row of its place, and the rows beside it."""
    job = _fixed_columns(anchor)
    job |= {
        "special": row["special"],
        "lease_token": row["token"],
        "attempt": row["attempt"],
        "failures": side["failures"] or 0,
        "crashes": side["crashes"] or 0,
        "error": side["error"],
        "first_started_at": side["first_started_at"],
        "started_at": side["started_at"],
        "updated_at": side["changed_at"] or anchor["created_at"],
        "available_at": side["available_at"] or anchor["available_at"] or anchor["created_at"],
    }
    match place:
        case Place.READY | Place.LANE:
            job |= {"state": State.QUEUED, "reason": side["reason"], "available_at": row["available_at"]}
            job["lane_at"] = row["lane_at"] if place is Place.LANE else None
        case Place.LEASE:
            job |= _running(row, side)
            job |= {"worker": row["worker"], "lease_expires_at": row["expires_at"]}
            job["lane_at"] = STARTED if anchor["lane"] is not None else None
            job["reason"] = side["reason"] if row["stop"] else None
            job["updated_at"] = row["started_at"]
        case Place.PARKED:
            state = _PARKED[row["state"]]
            job |= _running(row, side) if state is State.RUNNING else {"started_at": row["started_at"]}
            job |= {name: row[name] for name in ("lane_at", "held", "unmet", "reason")}
            job["state"] = state
            job["updated_at"] = row["started_at"] if state is State.RUNNING else row["since"]
        case Place.OUTCOME:
            job |= _ended(row, side)
    return record_of(Job, job)


def _fixed_columns(anchor: Row) -> dict[str, Any]:
    names = ("seq", "id", "task", "queue", "gate", "limited", "priority", "args", "created_at", "lane")
    job = {name: anchor[name] for name in names}
    more = ("lease_seconds", "unique_key", "group_name", "deadline_at", "start_by", "retry_of", "trace")
    job |= {name: anchor[name] for name in more}
    job["policy"] = Policy.load(anchor["policy"])
    job["unique_for"] = "ever" if anchor["unique_for_ever"] else "live"
    job["tags"] = tags_of(anchor["tags"])
    return job


def _running(row: Row, side: Row) -> dict[str, Any]:
    has_site = side["site"] is not None and side["placed_in"] == row["attempt"]
    return {
        "state": State.RUNNING,
        "stop_requested": STOP_OF_NUMBER[row["stop"]],
        "started_at": row["started_at"],
        "first_started_at": side["first_started_at"] or row["started_at"],
        "execution_site": side["site"] if has_site else None,
        "execution_name": side["name"] if has_site else None,
        "execution_started_at": side["execution_started_at"] if has_site else None,
    }


def _ended(row: Row, side: Row) -> dict[str, Any]:
    state = _ENDED[row["state"]]
    halts = bool(side["halts"]) and state in (State.FAILED, State.TIMED_OUT)
    return {
        "state": state,
        "finished_at": row["finished_at"],
        "updated_at": row["finished_at"],
        "started_at": row["started_at"] or side["started_at"],
        "first_started_at": side["first_started_at"] or row["started_at"],
        "settled_by": row["worker"],
        "settled_token": row["token"] if row["worker"] is not None else None,
        "result": row["result"],
        "result_ref": row["result_ref"],
        "error": _last_error(state, row, side),
        "reason": row["reason"],
        "halts_lane": halts,
        "lane_at": STARTED if halts else None,
        "unmet": side["unmet"] if state is State.TIMED_OUT else 0,
    }


def _last_error(state: State, row: Row, side: Row) -> str | None:
    """The job's error; none if it has succeeded: the attempt records keep the errors of earlier attempts."""
    if state is State.SUCCEEDED:
        return None
    found: str | None = row["error"] if row["error"] is not None else side["error"]
    return found


def as_stored(move: Move, now: datetime) -> Job:
    """Return a decided job as the next reader will see it, without the values that no row stores."""
    job = replace(move.job, updated_at=_updated_at(move, now))
    if job.state in ENDED_STATES:
        unmet = job.unmet if job.state is State.TIMED_OUT else 0
        return replace(job, lane_at=STARTED if job.halts_lane else None, unmet=unmet)
    return replace(job, settled_by=None, settled_token=None)


def _updated_at(move: Move, now: datetime) -> datetime:
    job = move.job
    if job == move.before:
        return move.before.updated_at
    if job.state is State.RUNNING:
        return job.started_at or now
    return job.finished_at or now


# -- a job to rows ----------------------------------------------------------------------------------------------------


def row_of(job: Job, now: datetime) -> dict[str, Any]:
    """The moving row of a job, for the table of its place."""
    common = {"token": job.lease_token, "attempt": job.attempt, "special": job.special}
    match place_of(job):
        case Place.READY | Place.LANE:
            queued = {
                "seq": job.seq,
                "gate": job.gate,
                "priority": job.priority,
                "available_at": job.available_at,
                "lease_seconds": job.lease_seconds,
            }
            lane = {"lane": job.lane, "lane_at": job.lane_at} if job.lane is not None else {}
            return common | queued | lane
        case Place.LEASE:
            return common | {
                "job": job.seq,
                "expires_at": job.lease_expires_at,
                "started_at": job.started_at,
                "worker": job.worker,
                "lease_seconds": job.lease_seconds,
                "stop": STOP_NUMBERS[job.stop_requested],
            }
        case Place.PARKED:
            return common | {
                "job": job.seq,
                "state": PARKED_STATES[job.state],
                "since": now,
                "stop": STOP_NUMBERS[job.stop_requested],
                "held": job.held,
                "unmet": job.unmet,
                "lane_at": job.lane_at,
                "started_at": job.started_at,
                "reason": job.reason,
            }
        case Place.OUTCOME:
            return common | {
                "job": job.seq,
                "finished_at": job.finished_at,
                "started_at": job.started_at,
                "worker": job.settled_by,
                "state": ENDED_STATES[job.state],
                "result": job.result,
                "result_ref": job.result_ref,
                "error": job.error,
                "reason": job.reason,
            }


def failure_state_of(before: Job, after: Job) -> dict[str, Any] | None:
    """The row of `failure_state` that a move leaves, or None if nothing in it has changed."""
    was, will = place_of(before), place_of(after)
    names = ["failures", "crashes", "first_started_at", "available_at"]
    if will is not Place.OUTCOME:
        names += ["started_at", "error"]
        if will is not Place.PARKED:
            names.append("reason")
    # Values that only the row in `lease` or `outcome` stores would be deleted with it.
    leaves = will is not Place.OUTCOME and was is not will and was in (Place.LEASE, Place.OUTCOME)
    # Rows in `ready` and `lane_place` do not store since when a job is there.
    queued = was is Place.PARKED and will in (Place.READY, Place.LANE)
    flagged = before.stop_requested is not after.stop_requested and will is Place.LEASE
    changed = any(getattr(before, name) != getattr(after, name) for name in names)
    if not (leaves or queued or flagged or changed):
        return None
    return {
        "job": after.seq,
        "failures": after.failures,
        "crashes": after.crashes,
        "first_started_at": after.first_started_at,
        "started_at": after.started_at,
        "available_at": after.available_at,
        "error": after.error,
        "reason": after.reason,
    }


def attempt_of(before: Job, after: Job, event: str | None, now: datetime) -> dict[str, Any] | None:
    """The record of a grant that this move ends without ending the job, or of the attempt whose outcome a
    resume deletes."""
    was, will = place_of(before), place_of(after)
    if was is Place.LEASE and will not in (Place.LEASE, Place.OUTCOME):
        settled = after.settled_by is not None and after.settled_token == before.lease_token
        ended, ended_at, error, worker = event or after.state.value, now, after.error, before.worker
    elif was is Place.OUTCOME and will is not Place.OUTCOME and before.started_at is not None:
        if before.state is State.TIMED_OUT and before.settled_by is None:
            return None  # it expired while it did not run: its last attempt is recorded already
        settled, worker = before.settled_by is not None, before.settled_by
        ended, ended_at, error = before.state.value, before.finished_at or now, before.error
    else:
        return None
    return {
        "job": before.seq,
        "token": before.lease_token,
        "number": before.attempt,
        "worker": worker,
        "settled": settled,
        "started_at": before.started_at,
        "ended_at": ended_at,
        "ended": ended,
        "error": error,
    }


# -- rows beside the place ---------------------------------------------------------------------------------------------


def holds_lane(job: Job) -> bool:
    """Whether the job has started in its lane and keeps it, or halts it."""
    if job.lane is None or job.state in (State.SUCCEEDED, State.CANCELLED, State.PENDING):
        return False
    return job.halts_lane if job.state in ENDED_STATES else job.lane_at == STARTED


def stops_lane(job: Job) -> bool:
    """Whether the job blocks its lane without having started in it."""
    return job.lane is not None and job.state is State.PAUSED and job.lane_at != STARTED


def holds_key(job: Job) -> bool:
    return job.unique_key is not None and (job.unique_for == "ever" or job.state in HOLDS_UNIQUE_KEY)


def holds_slots(job: Job) -> bool:
    return job.limited and job.state is State.RUNNING


def counts_as_live(job: Job) -> bool:
    """Whether its group counts the job as live: it may still run, by itself or after a pause."""
    return job.state in LIVE or job.state is State.PAUSED


def time_limits_of(job: Job) -> set[tuple[int, datetime]]:
    """The limits that a sweep must enforce. A paused job has none: they apply again once it is resumed."""
    if job.state not in LIVE:
        return set()
    given = {(DEADLINE, job.deadline_at)} if job.deadline_at is not None else set()
    return given | ({(START_BY, job.start_by)} if job.start_by is not None and job.attempt == 0 else set())
