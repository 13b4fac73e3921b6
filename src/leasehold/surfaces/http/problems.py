"""Problem responses (RFC 9457) for our errors: the one table of HTTP statuses and codes."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_jsonable_python
from starlette.exceptions import HTTPException

from leasehold.domain.errors import (
    AtCapacity,
    DuplicateJob,
    GroupOnHold,
    IdempotencyKeyReused,
    InvalidAnswer,
    InvalidArguments,
    InvalidInput,
    InvalidState,
    JobError,
    JobNotFound,
    JobNotSucceeded,
    LeaseholdError,
    NotSerializable,
    PoolExhausted,
    ReadTooSlow,
    ResultMissing,
    ScheduleNotFound,
    StoreError,
    TenantNotFound,
    UnknownTask,
    WaitTimedOut,
)
from leasehold.surfaces.guard import STATUSES, Denied

logger = logging.getLogger("leasehold.http")

MEDIA_TYPE = "application/problem+json"
_TYPE = "urn:leasehold:problem:"

_ERRORS: tuple[tuple[type[LeaseholdError], int, str], ...] = (
    (JobNotFound, 404, "job-not-found"),
    (ScheduleNotFound, 404, "schedule-not-found"),
    (TenantNotFound, 404, "tenant-not-found"),
    (ResultMissing, 404, "result-missing"),
    (IdempotencyKeyReused, 422, "idempotency-key-reused"),
    (UnknownTask, 422, "unknown-task"),
    (InvalidArguments, 422, "invalid-arguments"),
    (InvalidAnswer, 422, "invalid-answer"),
    (NotSerializable, 422, "not-serializable"),
    (InvalidInput, 422, "invalid-input"),
    (DuplicateJob, 409, "duplicate-job"),
    (InvalidState, 409, "invalid-state"),
    (JobNotSucceeded, 409, "job-not-succeeded"),
    (JobError, 409, "job-error"),
    (GroupOnHold, 409, "group-on-hold"),
    (AtCapacity, 429, "at-capacity"),
    (WaitTimedOut, 504, "wait-timed-out"),
    (StoreError, 503, "database-unavailable"),
    (LeaseholdError, 500, "internal"),
)
"""The first row that matches an error applies."""


class Fault(BaseModel):
    """One error in a request, and a pointer to it."""

    pointer: str = Field(examples=["/body/args/a"])
    detail: str


class Problem(BaseModel):
    """An error (RFC 9457). `code` is for programs and does not change; `detail` is for people."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:leasehold:problem:job-not-found",
                    "title": "Not Found",
                    "status": 404,
                    "code": "job-not-found",
                    "detail": "no job has the id 0199…; it may have been pruned",
                }
            ]
        }
    )
    type: str
    title: str
    status: int
    code: str
    detail: str
    errors: list[Fault] | None = None
    facts: dict[str, Any] | None = Field(
        default=None,
        description="The facts in `detail`, for programs: the job's state, the holder of a key …",
    )


_DESCRIPTIONS = {
    400: "The body cannot be read",
    401: "No valid token",
    403: "The token, or the page that calls, may not do this",
    404: "Not found, or not visible to this token",
    409: "Not possible in this state",
    413: "The body is too large",
    421: "The Host header names another server",
    422: "The request is not valid",
    429: "Too many requests; Retry-After says when to try again",
    503: "The database cannot be reached, or takes too long",
}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {
        "description": text,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    for status, text in _DESCRIPTIONS.items()
}
"""The error responses of every route, for OpenAPI."""


def answer_to(error: Exception) -> JSONResponse:
    """The response for an error. An unexpected error is logged; the caller gets no details of it."""
    match error:
        case Denied():
            return problem(STATUSES[error.reason], error.reason, error.detail, headers=error.headers)
        case RequestValidationError():
            faults = [
                Fault(pointer=_pointer(fault["loc"]), detail=str(fault["msg"])) for fault in error.errors()
            ]
            return problem(422, "invalid-request", _listed(faults), faults)
        case HTTPException():
            code = HTTPStatus(error.status_code).name.lower().replace("_", "-")
            return problem(error.status_code, code, str(error.detail), headers=dict(error.headers or {}))
        case ReadTooSlow():
            logger.warning("%s", error)
            return problem(
                503,
                "read-too-slow",
                f"the database took more than {error.seconds:g} s to read that; ask for less at once, or again later",
            )
        case PoolExhausted():
            logger.error("%s", error)
            return problem(
                503,
                "pool-exhausted",
                "all database connections of this server are in use; try again later",
            )
        case StoreError():
            logger.error("%s: %s", type(error).__name__, error)
            return problem(
                503,
                "database-unavailable",
                "the database cannot be reached or used; see the server's log",
            )
        case LeaseholdError():
            return _answer_to_ours(error)
        case _:
            logger.error("a request failed", exc_info=error)
            return problem(500, "internal", "internal error; see the server's log")


def _answer_to_ours(error: LeaseholdError) -> JSONResponse:
    status, code = next((status, code) for class_, status, code in _ERRORS if isinstance(error, class_))
    faults = None
    if isinstance(error, InvalidArguments):
        faults = [Fault(pointer=f"/body/args/{name}", detail=text) for name, text in error.problems.items()]
    elif isinstance(error, InvalidInput):
        faults = [Fault(pointer=f"/{error.field}", detail=error.problem)]
    headers = {"Retry-After": f"{error.retry_after:.0f}"} if isinstance(error, AtCapacity) else None
    return problem(status, code, str(error), faults, headers, _facts(error))


def _facts(error: LeaseholdError) -> dict[str, Any]:
    """The error's own attributes. A client rebuilds the error from them and the code."""
    known = {name: value for name, value in vars(error).items() if not name.startswith("_")}
    text = json.dumps(to_jsonable_python(known, fallback=str), ensure_ascii=False)
    facts: dict[str, Any] = json.loads(_sendable(text))
    return facts


def problem(
    status: int,
    code: str,
    detail: str,
    errors: Sequence[Fault] | None = None,
    headers: dict[str, str] | None = None,
    facts: dict[str, Any] | None = None,
) -> JSONResponse:
    reported = Problem(
        type=_TYPE + code,
        title=HTTPStatus(status).phrase,
        status=status,
        code=code,
        detail=_sendable(detail),
        errors=None
        if errors is None
        else [Fault(pointer=_sendable(e.pointer), detail=_sendable(e.detail)) for e in errors],
        facts=facts,
    )
    return JSONResponse(reported.model_dump(exclude_none=True), status, headers, media_type=MEDIA_TYPE)


def _pointer(location: Sequence[object]) -> str:
    return "/" + "/".join(map(str, location))


def _listed(faults: Sequence[Fault]) -> str:
    return "; ".join(f"{fault.pointer}: {fault.detail}" for fault in faults[:5])


def _sendable(text: str) -> str:
    """The text without lone surrogates: UTF-8 cannot encode them, and a caller may have sent one."""
    return text.encode("utf-8", "replace").decode()
