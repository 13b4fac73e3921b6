"""Exit codes of commands: the one table of codes for our errors, and the error line on stderr.

With --json the error is an object on stdout instead, so that a program that reads stdout always reads JSON:
`{"error": {"type": "JobNotFound", "message": "…", "job_id": "…"}}`; the facts are the error's own attributes.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from enum import IntEnum
from typing import Any

from leasehold.domain.errors import (
    AcquireTimedOut,
    AtCapacity,
    GroupOnHold,
    InvalidInput,
    JobError,
    JobNotFound,
    JobNotSucceeded,
    LeaseholdError,
    ResultMissing,
    RunnerUnreachable,
    ScheduleNotFound,
    StoreError,
    TenantNotFound,
    WaitTimedOut,
)
from leasehold.surfaces.cli.render import clean


class Exit(IntEnum):
    OK = 0
    """The command succeeded."""
    JOB_FAILED = 1
    """The job that the command waited for ended without success, or a check found something wrong."""
    USAGE = 2
    """The command line, or a value in it, is not valid."""
    NOT_FOUND = 3
    """There is no such job, schedule, tenant or result."""
    REFUSED = 4
    """The job's present state, or a limit, does not allow the command."""
    TIMED_OUT = 5
    """The command waited, and the time ran out."""
    UNREACHABLE = 6
    """The database cannot be reached or used, or denies a permission; or a runner cannot be reached."""
    GAVE_UP = 75
    """The worker gave up and should be restarted (EX_TEMPFAIL)."""
    INTERRUPTED = 130
    """Interrupted with Ctrl-C."""


_CODES: tuple[tuple[type[LeaseholdError], Exit], ...] = (
    (JobNotFound, Exit.NOT_FOUND),
    (ScheduleNotFound, Exit.NOT_FOUND),
    (ResultMissing, Exit.NOT_FOUND),
    (TenantNotFound, Exit.NOT_FOUND),
    (JobNotSucceeded, Exit.JOB_FAILED),
    (JobError, Exit.REFUSED),
    (AtCapacity, Exit.REFUSED),
    (GroupOnHold, Exit.REFUSED),
    (WaitTimedOut, Exit.TIMED_OUT),
    (AcquireTimedOut, Exit.TIMED_OUT),
    (InvalidInput, Exit.USAGE),
    (StoreError, Exit.UNREACHABLE),
    (RunnerUnreachable, Exit.UNREACHABLE),
    (LeaseholdError, Exit.JOB_FAILED),
)
"""The first row that matches an error applies."""


def code_of(error: LeaseholdError) -> Exit:
    return next(code for class_, code in _CODES if isinstance(error, class_))


def facts_of(error: LeaseholdError) -> dict[str, Any]:
    return {"type": type(error).__name__, "message": str(error), **vars(error)}


def _plain(value: object) -> object:
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) else str(value)  # type: ignore[arg-type] # an instance, as it has fields


def first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def notify(error: LeaseholdError, as_json: bool) -> Exit:
    """Report an error, and return the exit code."""
    if as_json:
        print(json.dumps({"error": facts_of(error)}, default=_plain))
    else:
        complain(str(error))
    return code_of(error)


def print_usage_error(message: str, as_json: bool) -> Exit:
    if as_json:
        print(json.dumps({"error": {"type": "UsageError", "message": message}}))
    else:
        complain(message)
    return Exit.USAGE


def complain(message: str) -> None:
    """Print the error in one line. Its text may come from a job, so control characters are replaced."""
    print(f"error: {clean(first_line(message))}", file=sys.stderr)
